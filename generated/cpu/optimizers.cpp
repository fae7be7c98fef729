// optimizers: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// g = clip * grad / grad_scale (-g to maximize); nothing changes where found_inf is not 0; m = beta1 m + (1 -
//   beta1) g; v = beta2 v + (1 - beta2) g^2; p = p (1 - lr weight_decay) - lr / (1 - beta1^step) m / (sqrt(v
//   / (1 - beta2^step)) + eps)
// Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization, arXiv:1711.05101
template <class C>
AVO_KERNEL void adamw_numbers(AVO_PARAMETERS) {
  [[maybe_unused]] const double* given = a->scalars;
  C* found = static_cast<C*>(a->partials);
  const C lr = C(given[0]);
  const C beta1 = C(given[1]);
  const C beta2 = C(given[2]);
  const C weight_decay = C(given[3]);
  const C eps = C(given[4]);
  const C maximize = C(given[5]);
  const C grad_scale = C(given[6]);
  const C clip = C(given[7]);
  const C step_ = C(given[8]);
  const C factor = m_where(m_ne(maximize, C(0.0)), -clip, clip) / grad_scale;
  const C t1 = m_sqrt(C(1.0) - m_pow(beta2, step_));
  const C correction = m_recip(t1);
  const C step_size = lr / (C(1.0) - m_pow(beta1, step_));
  found[0] = factor;
  found[1] = beta1;
  found[2] = C(1.0) - beta1;
  found[3] = beta2;
  found[4] = C(1.0) - beta2;
  found[5] = t1;
  found[6] = correction;
  found[7] = eps;
  found[8] = m_fma(-lr, weight_decay, C(1.0));
  found[9] = -step_size;
}

template <class C>
AVO_KERNEL void adamw_elements(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C shared9 = C(a->scalars[0]);
  const C factor = C(a->scalars[1]);
  const C shared2 = C(a->scalars[2]);
  const C beta1 = C(a->scalars[3]);
  const C shared4 = C(a->scalars[4]);
  const C beta2 = C(a->scalars[5]);
  const C shared5 = C(a->scalars[6]);
  const C correction = C(a->scalars[7]);
  const C eps = C(a->scalars[8]);
  const C shared8 = C(a->scalars[9]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* grad_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* exp_avg_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* exp_avg_sq_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      const C* param_row = load_row<C>(a, 3, row, c0, n, buffer(3));
      C* new_param_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      C* new_exp_avg_row = open_row<C>(a, 5, row, c0, n, buffer(5));
      C* new_exp_avg_sq_row = open_row<C>(a, 6, row, c0, n, buffer(6));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V grad = part.load(grad_row + c);
        const V exp_avg = part.load(exp_avg_row + c);
        const V exp_avg_sq = part.load(exp_avg_sq_row + c);
        const V param = part.load(param_row + c);
        const V t1 = grad * V(factor);
        const V mean = m_fma(t1, V(shared2), exp_avg * V(beta1));
        const V square = m_fma(t1 * t1, V(shared4), exp_avg_sq * V(beta2));
        const V denominator = m_quotient(m_sqrt(square), V(shared5), V(correction)) + V(eps);
        part.store(new_param_row + c, m_fma(V(shared9), mean / denominator, param * V(shared8)));
        part.store(new_exp_avg_row + c, mean);
        part.store(new_exp_avg_sq_row + c, square);
      });
      close_row<C>(a, 4, row, c0, n, new_param_row);
      close_row<C>(a, 5, row, c0, n, new_exp_avg_row);
      close_row<C>(a, 6, row, c0, n, new_exp_avg_sq_row);
    }
  }
}

// g = clip * grad / grad_scale (-g to maximize); nothing changes where found_inf is not 0; p = p (1 - lr
//   weight_decay) - lr sign(beta1 m + (1 - beta1) g); m = beta2 m + (1 - beta2) g
// Source: Chen et al., Symbolic Discovery of Optimization Algorithms, arXiv:2302.06675
template <class C>
AVO_KERNEL void lion_numbers(AVO_PARAMETERS) {
  [[maybe_unused]] const double* given = a->scalars;
  C* found = static_cast<C*>(a->partials);
  const C lr = C(given[0]);
  const C beta1 = C(given[1]);
  const C beta2 = C(given[2]);
  const C weight_decay = C(given[3]);
  const C maximize = C(given[4]);
  const C grad_scale = C(given[5]);
  const C clip = C(given[6]);
  const C factor = m_where(m_ne(maximize, C(0.0)), -clip, clip) / grad_scale;
  const C t1 = -lr;
  found[0] = factor;
  found[1] = beta1;
  found[2] = C(1.0) - beta1;
  found[3] = m_fma(t1, weight_decay, C(1.0));
  found[4] = t1;
  found[5] = beta2;
  found[6] = C(1.0) - beta2;
}

template <class C>
AVO_KERNEL void lion_elements(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C shared4 = C(a->scalars[0]);
  const C factor = C(a->scalars[1]);
  const C shared2 = C(a->scalars[2]);
  const C beta1 = C(a->scalars[3]);
  const C shared3 = C(a->scalars[4]);
  const C shared6 = C(a->scalars[5]);
  const C beta2 = C(a->scalars[6]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* grad_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* exp_avg_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* param_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* new_param_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      C* new_exp_avg_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V grad = part.load(grad_row + c);
        const V exp_avg = part.load(exp_avg_row + c);
        const V param = part.load(param_row + c);
        const V t1 = grad * V(factor);
        const V update = m_sign(m_fma(t1, V(shared2), exp_avg * V(beta1)));
        part.store(new_param_row + c, m_fma(V(shared4), update, param * V(shared3)));
        part.store(new_exp_avg_row + c, m_fma(t1, V(shared6), exp_avg * V(beta2)));
      });
      close_row<C>(a, 3, row, c0, n, new_param_row);
      close_row<C>(a, 4, row, c0, n, new_exp_avg_row);
    }
  }
}

// g = clip * grad / grad_scale (-g to maximize); nothing changes where found_inf is not 0; p = p - lr (g +
//   weight_decay p)
// Source: Robbins and Monro, A Stochastic Approximation Method, 1951; as torch.optim.SGD
template <class C>
AVO_KERNEL void sgd_numbers(AVO_PARAMETERS) {
  [[maybe_unused]] const double* given = a->scalars;
  C* found = static_cast<C*>(a->partials);
  const C lr = C(given[0]);
  const C weight_decay = C(given[1]);
  const C maximize = C(given[2]);
  const C grad_scale = C(given[3]);
  const C clip = C(given[4]);
  const C factor = m_where(m_ne(maximize, C(0.0)), -clip, clip) / grad_scale;
  found[0] = factor;
  found[1] = weight_decay;
  found[2] = -lr;
}

template <class C>
AVO_KERNEL void sgd_elements(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C shared2 = C(a->scalars[0]);
  const C weight_decay = C(a->scalars[1]);
  const C factor = C(a->scalars[2]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* param_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* new_param_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V param = part.load(param_row + c);
        const V grad = part.load(grad_row + c);
        const V g = m_fma(param, V(weight_decay), grad * V(factor));
        part.store(new_param_row + c, m_fma(V(shared2), g, param));
      });
      close_row<C>(a, 2, row, c0, n, new_param_row);
    }
  }
}

// g = clip * grad / grad_scale (-g to maximize); nothing changes where found_inf is not 0; d = g +
//   weight_decay p; b = momentum b + (1 - dampening) d, at first d; p = p - lr b, or lr (d + momentum b) if
//   nesterov
// Source: Sutskever et al., On the Importance of Initialization and Momentum in Deep Learning, ICML 2013; as
//   torch.optim.SGD
template <class C>
AVO_KERNEL void sgd_momentum_numbers(AVO_PARAMETERS) {
  [[maybe_unused]] const double* given = a->scalars;
  C* found = static_cast<C*>(a->partials);
  const C lr = C(given[0]);
  const C momentum = C(given[1]);
  const C dampening = C(given[2]);
  const C weight_decay = C(given[3]);
  const C nesterov = C(given[4]);
  const C is_first_step = C(given[5]);
  const C maximize = C(given[6]);
  const C grad_scale = C(given[7]);
  const C clip = C(given[8]);
  const C factor = m_where(m_ne(maximize, C(0.0)), -clip, clip) / grad_scale;
  found[0] = factor;
  found[1] = weight_decay;
  found[2] = momentum;
  found[3] = C(1.0) - dampening;
  found[4] = m_ne(is_first_step, C(0.0)) ? C(1) : C(0);
  found[5] = m_ne(nesterov, C(0.0)) ? C(1) : C(0);
  found[6] = -lr;
}

template <class C>
AVO_KERNEL void sgd_momentum_elements(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C shared6 = C(a->scalars[0]);
  const C shared5 = C(a->scalars[1]);
  const C momentum = C(a->scalars[2]);
  const C shared4 = C(a->scalars[3]);
  const C weight_decay = C(a->scalars[4]);
  const C factor = C(a->scalars[5]);
  const C shared3 = C(a->scalars[6]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* param_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* momentum_buffer_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* new_param_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      C* new_momentum_buffer_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      const auto t1 = m_ne(C(0.0), shared5);
      const auto t2 = m_ne(shared4, C(0.0));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V param = part.load(param_row + c);
        const V grad = part.load(grad_row + c);
        const V momentum_buffer = part.load(momentum_buffer_row + c);
        const V g = m_fma(param, V(weight_decay), grad * V(factor));
        const V t3 = m_where(m_ne(V(C(t2)), V(C(0))), g, m_fma(V(shared3), g, momentum_buffer * V(momentum)));
        const V update = m_where(m_ne(V(C(t1)), V(C(0))), m_fma(V(momentum), t3, g), t3);
        part.store(new_param_row + c, m_fma(V(shared6), update, param));
        part.store(new_momentum_buffer_row + c, t3);
      });
      close_row<C>(a, 3, row, c0, n, new_param_row);
      close_row<C>(a, 4, row, c0, n, new_momentum_buffer_row);
    }
  }
}

// g = clip * grad / grad_scale (-g to maximize); nothing changes where found_inf is not 0; m = beta1 m + (1 -
//   beta1) g; v = beta2 v + (1 - beta2) g^2; u = max(u, v); p = p (1 - lr weight_decay) - lr / (1 -
//   beta1^step) m / (sqrt(u / (1 - beta2^step)) + eps)
// Source: Reddi, Kale and Kumar, On the Convergence of Adam and Beyond, ICLR 2018; as
//   torch.optim.AdamW(amsgrad=True)
template <class C>
AVO_KERNEL void adamw_amsgrad_numbers(AVO_PARAMETERS) {
  [[maybe_unused]] const double* given = a->scalars;
  C* found = static_cast<C*>(a->partials);
  const C lr = C(given[0]);
  const C beta1 = C(given[1]);
  const C beta2 = C(given[2]);
  const C weight_decay = C(given[3]);
  const C eps = C(given[4]);
  const C maximize = C(given[5]);
  const C grad_scale = C(given[6]);
  const C clip = C(given[7]);
  const C step_ = C(given[8]);
  const C factor = m_where(m_ne(maximize, C(0.0)), -clip, clip) / grad_scale;
  const C t1 = m_sqrt(C(1.0) - m_pow(beta2, step_));
  const C correction = m_recip(t1);
  const C step_size = lr / (C(1.0) - m_pow(beta1, step_));
  found[0] = factor;
  found[1] = beta1;
  found[2] = C(1.0) - beta1;
  found[3] = beta2;
  found[4] = C(1.0) - beta2;
  found[5] = t1;
  found[6] = correction;
  found[7] = eps;
  found[8] = m_fma(-lr, weight_decay, C(1.0));
  found[9] = -step_size;
}

template <class C>
AVO_KERNEL void adamw_amsgrad_elements(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C shared9 = C(a->scalars[0]);
  const C factor = C(a->scalars[1]);
  const C shared2 = C(a->scalars[2]);
  const C beta1 = C(a->scalars[3]);
  const C shared4 = C(a->scalars[4]);
  const C beta2 = C(a->scalars[5]);
  const C shared5 = C(a->scalars[6]);
  const C correction = C(a->scalars[7]);
  const C eps = C(a->scalars[8]);
  const C shared8 = C(a->scalars[9]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* grad_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* exp_avg_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* max_exp_avg_sq_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      const C* exp_avg_sq_row = load_row<C>(a, 3, row, c0, n, buffer(3));
      const C* param_row = load_row<C>(a, 4, row, c0, n, buffer(4));
      C* new_param_row = open_row<C>(a, 5, row, c0, n, buffer(5));
      C* new_exp_avg_row = open_row<C>(a, 6, row, c0, n, buffer(6));
      C* new_exp_avg_sq_row = open_row<C>(a, 7, row, c0, n, buffer(7));
      C* new_max_exp_avg_sq_row = open_row<C>(a, 8, row, c0, n, buffer(8));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V grad = part.load(grad_row + c);
        const V exp_avg = part.load(exp_avg_row + c);
        const V max_exp_avg_sq = part.load(max_exp_avg_sq_row + c);
        const V exp_avg_sq = part.load(exp_avg_sq_row + c);
        const V param = part.load(param_row + c);
        const V t1 = grad * V(factor);
        const V mean = m_fma(t1, V(shared2), exp_avg * V(beta1));
        const V square = m_fma(t1 * t1, V(shared4), exp_avg_sq * V(beta2));
        const V largest = m_max(max_exp_avg_sq, square);
        const V denominator = m_quotient(m_sqrt(largest), V(shared5), V(correction)) + V(eps);
        part.store(new_param_row + c, m_fma(V(shared9), mean / denominator, param * V(shared8)));
        part.store(new_exp_avg_row + c, mean);
        part.store(new_exp_avg_sq_row + c, square);
        part.store(new_max_exp_avg_sq_row + c, largest);
      });
      close_row<C>(a, 5, row, c0, n, new_param_row);
      close_row<C>(a, 6, row, c0, n, new_exp_avg_row);
      close_row<C>(a, 7, row, c0, n, new_exp_avg_sq_row);
      close_row<C>(a, 8, row, c0, n, new_max_exp_avg_sq_row);
    }
  }
}

// sqrt(sum of x^2 over all elements of all tensors), in float64
// Source: what torch.nn.utils.get_total_norm computes
template <class C>
AVO_KERNEL void list_norm_numbers(AVO_PARAMETERS) {
  [[maybe_unused]] const double* given = a->scalars;
  C* found = static_cast<C*>(a->partials);
  const C total_ = C(given[0]);
  found[0] = m_sqrt(total_);
}

template <class C>
AVO_KERNEL void list_norm_elements(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          t1_block[chain] = part.sum(t1_block[chain], x, x);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      store_stat<C>(a, 1, row, t1);
    }
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_optimizers[] = {
    {"adamw_numbers", adamw_numbers<float>, adamw_numbers<double>},
    {"adamw_elements", adamw_elements<float>, adamw_elements<double>},
    {"lion_numbers", lion_numbers<float>, lion_numbers<double>},
    {"lion_elements", lion_elements<float>, lion_elements<double>},
    {"sgd_numbers", sgd_numbers<float>, sgd_numbers<double>},
    {"sgd_elements", sgd_elements<float>, sgd_elements<double>},
    {"sgd_momentum_numbers", sgd_momentum_numbers<float>, sgd_momentum_numbers<double>},
    {"sgd_momentum_elements", sgd_momentum_elements<float>, sgd_momentum_elements<double>},
    {"adamw_amsgrad_numbers", adamw_amsgrad_numbers<float>, adamw_amsgrad_numbers<double>},
    {"adamw_amsgrad_elements", adamw_amsgrad_elements<float>, adamw_amsgrad_elements<double>},
    {"list_norm_numbers", list_norm_numbers<float>, list_norm_numbers<double>},
    {"list_norm_elements", list_norm_elements<float>, list_norm_elements<double>},
};
AVO_HIDDEN extern const int kernels_optimizers_count = 12;

} // namespace AVO_ISA_NAMESPACE
