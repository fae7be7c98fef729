// cross_entropy_rows: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// (1 - s) w[t] (lse(x) - x[t]) + s / N sum(w (lse(x) - x)) + z lse(x)^2, 0 where t is ignore_index; lse(x) =
//   max(x) + log(sum(exp(x - max(x)))), s the label smoothing, z the z-loss
// Source: Szegedy et al., arXiv:1512.00567 (label smoothing, as torch.nn.functional.cross_entropy); de
//   Brebisson and Vincent, arXiv:1604.08859 (z-loss)
template <class C>
AVO_KERNEL void cross_entropy_rows_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C ignore_index = C(a->scalars[0]);
  const C z_loss = C(a->scalars[1]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const int64_t target = load_whole_number(a, 1, row);
      const auto t1 = m_eq(C(target), ignore_index);
      const auto t2 = m_and(m_ge(C(target), C(0.0)), m_lt(C(target), C(N)));
      C t3(0);
      if (target >= 0 && target < a->N) {
        t3 = load_element<C>(a, 0, row, target);
      }
      V largest_lanes[2] = {V(lowest<C>()), V(lowest<C>())};
      sweep_pairs<C>(0, N, [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        largest_lanes[chain] = part.amax(largest_lanes[chain], x);
      });
      const C largest = hamax(Whole::amax(largest_lanes[0], largest_lanes[1]));
      const C of_target = t3 - largest;
      V t4_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t4_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V centred = x - V(largest);
          const V exponential = m_exp(centred);
          t4_block = part.sum(t4_block, exponential);
        });
        t4_lanes = t4_lanes + t4_block;
      }
      const C t4 = hsum(t4_lanes);
      const C log_sum = m_log(t4);
      const C log_sum_exp = largest + log_sum;
      const C loss = log_sum - of_target;
      const C loss_ = m_fma(z_loss, log_sum_exp * log_sum_exp, loss);
      const C loss__ = m_where(t2, loss_, quiet_nan<C>());
      const C t5 = m_where(t1, C(0.0), loss__);
      store_stat<C>(a, 2, row, t5);
      store_stat<C>(a, 3, row, largest);
      store_stat<C>(a, 4, row, t4);
      store_stat<C>(a, 5, row, log_sum_exp);
      store_stat<C>(a, 6, row, C(0.0));
    }
  }
}

template <class C>
AVO_KERNEL void cross_entropy_rows_forward_yes(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C ignore_index = C(a->scalars[0]);
  const C z_loss = C(a->scalars[1]);
  const C label_smoothing = C(a->scalars[2]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const int64_t target = load_whole_number(a, 1, row);
      const auto t1 = m_eq(C(target), ignore_index);
      const auto t2 = m_and(m_ge(C(target), C(0.0)), m_lt(C(target), C(N)));
      const C of_target = C(1.0) - label_smoothing;
      C t3(0);
      if (target >= 0 && target < a->N) {
        t3 = load_element<C>(a, 0, row, target);
      }
      const C share = label_smoothing / C(N);
      V largest_lanes[2] = {V(lowest<C>()), V(lowest<C>())};
      sweep_pairs<C>(0, N, [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        largest_lanes[chain] = part.amax(largest_lanes[chain], x);
      });
      const C largest = hamax(Whole::amax(largest_lanes[0], largest_lanes[1]));
      const C of_target_ = t3 - largest;
      V t4_lanes(C(0));
      V sum_centred_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t4_block = V(C(0));
        V sum_centred_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V centred = x - V(largest);
          const V exponential = m_exp(centred);
          t4_block = part.sum(t4_block, exponential);
          sum_centred_block = part.sum(sum_centred_block, centred);
        });
        t4_lanes = t4_lanes + t4_block;
        sum_centred_lanes = sum_centred_lanes + sum_centred_block;
      }
      const C t4 = hsum(t4_lanes);
      const C sum_centred = hsum(sum_centred_lanes);
      const C log_sum = m_log(t4);
      const C log_sum_exp = largest + log_sum;
      const C loss = log_sum - of_target_;
      const C others = m_fma(log_sum, C(N), -sum_centred);
      const C loss_ = m_fma(of_target, loss, share * others);
      const C loss__ = m_fma(z_loss, log_sum_exp * log_sum_exp, loss_);
      const C loss___ = m_where(t2, loss__, quiet_nan<C>());
      const C t5 = m_where(t1, C(0.0), loss___);
      store_stat<C>(a, 2, row, t5);
      store_stat<C>(a, 3, row, largest);
      store_stat<C>(a, 4, row, t4);
      store_stat<C>(a, 5, row, log_sum_exp);
      store_stat<C>(a, 6, row, C(0.0));
    }
  }
}

template <class C>
AVO_KERNEL void cross_entropy_rows_forward_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C ignore_index = C(a->scalars[0]);
  const C z_loss = C(a->scalars[1]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const int64_t target = load_whole_number(a, 2, row);
      const auto t1 = m_eq(C(target), ignore_index);
      const auto t2 = m_and(m_ge(C(target), C(0.0)), m_lt(C(target), C(N)));
      C t3(0);
      if (target >= 0 && target < a->N) {
        t3 = load_element<C>(a, 0, row, target);
      }
      C t4(0);
      if (target >= 0 && target < a->N) {
        t4 = load_element<C>(a, 1, 0, target);
      }
      V largest_lanes[2] = {V(lowest<C>()), V(lowest<C>())};
      sweep_pairs<C>(0, N, [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        largest_lanes[chain] = part.amax(largest_lanes[chain], x);
      });
      const C largest = hamax(Whole::amax(largest_lanes[0], largest_lanes[1]));
      const C of_target = t3 - largest;
      V t5_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t5_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V centred = x - V(largest);
          const V exponential = m_exp(centred);
          t5_block = part.sum(t5_block, exponential);
        });
        t5_lanes = t5_lanes + t5_block;
      }
      const C t5 = hsum(t5_lanes);
      const C log_sum = m_log(t5);
      const C loss = log_sum - of_target;
      const C log_sum_exp = largest + log_sum;
      const C loss_ = m_fma(loss, t4, z_loss * (log_sum_exp * log_sum_exp));
      const C loss__ = m_where(t2, loss_, quiet_nan<C>());
      const C t6 = m_where(t1, C(0.0), loss__);
      store_stat<C>(a, 3, row, t6);
      store_stat<C>(a, 4, row, largest);
      store_stat<C>(a, 5, row, t5);
      store_stat<C>(a, 6, row, log_sum_exp);
      store_stat<C>(a, 7, row, t4);
    }
  }
}

template <class C>
AVO_KERNEL void cross_entropy_rows_forward_weight_yes(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C ignore_index = C(a->scalars[0]);
  const C z_loss = C(a->scalars[1]);
  const C label_smoothing = C(a->scalars[2]);
  const C* weight_row = load_row<C>(a, 1, 0, 0, N, buffer(1));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const int64_t target = load_whole_number(a, 2, row);
      const auto t1 = m_eq(C(target), ignore_index);
      const auto t2 = m_and(m_ge(C(target), C(0.0)), m_lt(C(target), C(N)));
      const C t3 = C(1.0) - label_smoothing;
      C t4(0);
      if (target >= 0 && target < a->N) {
        t4 = load_element<C>(a, 0, row, target);
      }
      C t5(0);
      if (target >= 0 && target < a->N) {
        t5 = load_element<C>(a, 1, 0, target);
      }
      const C share = label_smoothing / C(N);
      V largest_lanes[2] = {V(lowest<C>()), V(lowest<C>())};
      sweep_pairs<C>(0, N, [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        largest_lanes[chain] = part.amax(largest_lanes[chain], x);
      });
      const C largest = hamax(Whole::amax(largest_lanes[0], largest_lanes[1]));
      const C of_target = t4 - largest;
      V t6_lanes(C(0));
      V sum_weight_lanes(C(0));
      V sum_weighted_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t6_block = V(C(0));
        V sum_weight_block = V(C(0));
        V sum_weighted_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V weight = part.load(weight_row + c);
          const V centred = x - V(largest);
          const V exponential = m_exp(centred);
          t6_block = part.sum(t6_block, exponential);
          sum_weight_block = part.sum(sum_weight_block, weight);
          sum_weighted_block = part.sum(sum_weighted_block, weight, centred);
        });
        t6_lanes = t6_lanes + t6_block;
        sum_weight_lanes = sum_weight_lanes + sum_weight_block;
        sum_weighted_lanes = sum_weighted_lanes + sum_weighted_block;
      }
      const C t6 = hsum(t6_lanes);
      const C sum_weight = hsum(sum_weight_lanes);
      const C sum_weighted = hsum(sum_weighted_lanes);
      const C log_sum = m_log(t6);
      const C log_sum_exp = largest + log_sum;
      const C loss = log_sum - of_target;
      const C loss_ = loss * t5;
      const C others = m_fma(log_sum, sum_weight, -sum_weighted);
      const C loss__ = m_fma(t3, loss_, share * others);
      const C loss___ = m_fma(z_loss, log_sum_exp * log_sum_exp, loss__);
      const C loss____ = m_where(t2, loss___, quiet_nan<C>());
      const C t7 = m_where(t1, C(0.0), loss____);
      store_stat<C>(a, 3, row, t7);
      store_stat<C>(a, 4, row, largest);
      store_stat<C>(a, 5, row, t6);
      store_stat<C>(a, 6, row, log_sum_exp);
      store_stat<C>(a, 7, row, t5);
    }
  }
}

template <class C>
AVO_KERNEL void cross_entropy_rows_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C ignore_index = C(a->scalars[0]);
  const C z_loss = C(a->scalars[1]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* grad_x_row = open_row<C>(a, 6, row, c0, n, buffer(1));
      const int64_t target = load_whole_number(a, 1, row);
      const C grad = load_stat<C>(a, 2, row);
      const C largest = load_stat<C>(a, 3, row);
      const C total_ = load_stat<C>(a, 4, row);
      const C log_sum_exp = load_stat<C>(a, 5, row);
      const auto t1 = m_eq(C(target), ignore_index);
      const C t2 = m_recip(total_);
      const C t3 = m_fma(z_loss * C(2.0), log_sum_exp, C(1.0));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V column = numbers_from<C>(c0 + c);
        const V centred = x - V(largest);
        const V exponential = m_exp(centred);
        const V gradient = m_fma(m_quotient(exponential, V(total_), V(t2)), V(t3), -m_round_f32(m_where(m_eq(V(C(target)), column), V(C(1.0)), V(C(0.0)))));
        part.store(grad_x_row + c, m_where(m_ne(V(C(t1)), V(C(0))), V(C(0.0)), V(grad) * gradient));
      });
      close_row<C>(a, 6, row, c0, n, grad_x_row);
    }
  }
}

template <class C>
AVO_KERNEL void cross_entropy_rows_backward_yes(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const int64_t N = a->N;
  const C ignore_index = C(a->scalars[0]);
  const C z_loss = C(a->scalars[1]);
  const C label_smoothing = C(a->scalars[2]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* grad_x_row = open_row<C>(a, 6, row, c0, n, buffer(1));
      const int64_t target = load_whole_number(a, 1, row);
      const C grad = load_stat<C>(a, 2, row);
      const C largest = load_stat<C>(a, 3, row);
      const C total_ = load_stat<C>(a, 4, row);
      const C log_sum_exp = load_stat<C>(a, 5, row);
      const auto t1 = m_eq(C(target), ignore_index);
      const C t2 = m_recip(total_);
      const C share = label_smoothing / C(N);
      const C of_target = C(1.0) - label_smoothing;
      const C of_all = m_fma(C(N), share, of_target);
      const C t3 = m_fma(z_loss * C(2.0), log_sum_exp, of_all);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V column = numbers_from<C>(c0 + c);
        const V centred = x - V(largest);
        const V exponential = m_exp(centred);
        const V gradient = m_fma(m_quotient(exponential, V(total_), V(t2)), V(t3), -m_where(m_eq(V(C(target)), column), V(of_target), V(C(0.0))));
        const V gradient_ = gradient - V(share);
        part.store(grad_x_row + c, m_where(m_ne(V(C(t1)), V(C(0))), V(C(0.0)), V(grad) * gradient_));
      });
      close_row<C>(a, 6, row, c0, n, grad_x_row);
    }
  }
}

template <class C>
AVO_KERNEL void cross_entropy_rows_backward_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C ignore_index = C(a->scalars[0]);
  const C z_loss = C(a->scalars[1]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* grad_x_row = open_row<C>(a, 7, row, c0, n, buffer(1));
      const int64_t target = load_whole_number(a, 1, row);
      const C grad = load_stat<C>(a, 2, row);
      const C largest = load_stat<C>(a, 3, row);
      const C total_ = load_stat<C>(a, 4, row);
      const C log_sum_exp = load_stat<C>(a, 5, row);
      const C statistic3 = load_stat<C>(a, 6, row);
      const auto t1 = m_eq(C(target), ignore_index);
      const C t2 = m_recip(total_);
      const C t3 = m_fma(z_loss * C(2.0), log_sum_exp, statistic3);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V column = numbers_from<C>(c0 + c);
        const V centred = x - V(largest);
        const V exponential = m_exp(centred);
        const V gradient = m_fma(m_quotient(exponential, V(total_), V(t2)), V(t3), -m_where(m_eq(V(C(target)), column), V(statistic3), V(C(0.0))));
        part.store(grad_x_row + c, m_where(m_ne(V(C(t1)), V(C(0))), V(C(0.0)), V(grad) * gradient));
      });
      close_row<C>(a, 7, row, c0, n, grad_x_row);
    }
  }
}

template <class C>
AVO_KERNEL void cross_entropy_rows_backward_weight_yes(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C ignore_index = C(a->scalars[0]);
  const C label_smoothing = C(a->scalars[1]);
  const C z_loss = C(a->scalars[2]);
  const C* weight_row = load_row<C>(a, 1, 0, 0, N, buffer(2));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      C* grad_x_row = open_row<C>(a, 8, row, panel, buffer(1));
      const int64_t target = load_whole_number(a, 2, row);
      const C grad = load_stat<C>(a, 3, row);
      const C largest = load_stat<C>(a, 4, row);
      const C total_ = load_stat<C>(a, 5, row);
      const C log_sum_exp = load_stat<C>(a, 6, row);
      const C statistic3 = load_stat<C>(a, 7, row);
      const auto t1 = m_eq(C(target), ignore_index);
      const C share = label_smoothing / C(N);
      const C t2 = m_recip(total_);
      const C t3 = z_loss * C(2.0);
      const C of_target = (C(1.0) - label_smoothing) * statistic3;
      V sum_weight_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_weight_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V weight = part.load(weight_row + c);
          sum_weight_block[chain] = part.sum(sum_weight_block[chain], weight);
        });
        sum_weight_lanes = sum_weight_lanes + (sum_weight_block[0] + sum_weight_block[1]);
      }
      const C sum_weight = hsum(sum_weight_lanes);
      const C of_all = m_fma(sum_weight, share, of_target);
      const C t4 = m_fma(t3, log_sum_exp, of_all);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V weight = part.load(weight_row + c);
        const V x = part.load(x_row + c);
        const V column = numbers_from<C>(c);
        const V centred = x - V(largest);
        const V exponential = m_exp(centred);
        const V gradient = m_fma(m_quotient(exponential, V(total_), V(t2)), V(t4), -m_where(m_eq(V(C(target)), column), V(of_target), V(C(0.0))));
        const V gradient_ = m_fma(-weight, V(share), gradient);
        part.store(grad_x_row + c, m_where(m_ne(V(C(t1)), V(C(0))), V(C(0.0)), V(grad) * gradient_));
      });
      close_row<C>(a, 8, row, panel, grad_x_row);
    }
    store_panel<C>(a, 8, panel, buffer(1));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_cross_entropy_rows[] = {
    {"cross_entropy_rows_forward", cross_entropy_rows_forward<float>, cross_entropy_rows_forward<double>},
    {"cross_entropy_rows_forward_yes", cross_entropy_rows_forward_yes<float>, cross_entropy_rows_forward_yes<double>},
    {"cross_entropy_rows_forward_weight", cross_entropy_rows_forward_weight<float>, cross_entropy_rows_forward_weight<double>},
    {"cross_entropy_rows_forward_weight_yes", cross_entropy_rows_forward_weight_yes<float>, cross_entropy_rows_forward_weight_yes<double>},
    {"cross_entropy_rows_backward", cross_entropy_rows_backward<float>, cross_entropy_rows_backward<double>},
    {"cross_entropy_rows_backward_yes", cross_entropy_rows_backward_yes<float>, cross_entropy_rows_backward_yes<double>},
    {"cross_entropy_rows_backward_weight", cross_entropy_rows_backward_weight<float>, cross_entropy_rows_backward_weight<double>},
    {"cross_entropy_rows_backward_weight_yes", cross_entropy_rows_backward_weight_yes<float>, cross_entropy_rows_backward_weight_yes<double>},
};
AVO_HIDDEN extern const int kernels_cross_entropy_rows_count = 8;

} // namespace AVO_ISA_NAMESPACE
