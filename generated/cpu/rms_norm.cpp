// rms_norm: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// x / sqrt(mean(x^2) + eps) * weight, or * (1 + weight) as in Gemma; eps=None: the machine epsilon of the
//   dtype of the math
// Source: Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467
template <class C>
AVO_KERNEL void rms_norm_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      C* y_row = open_row<C>(a, 1, row, panel, buffer(1));
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
      const C rstd = m_rsqrt(eps + t1 / C(N));
      store_stat<C>(a, 2, row, rstd);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V y = x * V(rstd);
        part.store(y_row + c, y);
      });
      close_row<C>(a, 1, row, panel, y_row);
    }
    store_panel<C>(a, 1, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void rms_norm_forward_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  const C* weight_row = load_row<C>(a, 1, 0, 0, N, buffer(2));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      C* y_row = open_row<C>(a, 2, row, panel, buffer(1));
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
      const C rstd = m_rsqrt(eps + t1 / C(N));
      store_stat<C>(a, 3, row, rstd);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V weight = part.load(weight_row + c);
        const V x = part.load(x_row + c);
        const V y = x * V(rstd);
        const V y_ = weight * y;
        part.store(y_row + c, y_);
      });
      close_row<C>(a, 2, row, panel, y_row);
    }
    store_panel<C>(a, 2, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void rms_norm_forward_weight_one_plus_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  const C* weight_row = load_row<C>(a, 1, 0, 0, N, buffer(2));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      C* y_row = open_row<C>(a, 2, row, panel, buffer(1));
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
      const C rstd = m_rsqrt(eps + t1 / C(N));
      store_stat<C>(a, 3, row, rstd);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V weight = part.load(weight_row + c);
        const V y = x * V(rstd);
        const V y_ = y * (weight + V(C(1.0)));
        part.store(y_row + c, y_);
      });
      close_row<C>(a, 2, row, panel, y_row);
    }
    store_panel<C>(a, 2, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void rms_norm_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 3, row, panel, buffer(2));
      const C rstd = load_stat<C>(a, 2, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V grad = part.load(grad_row + c);
          const V x = part.load(x_row + c);
          t1_block[chain] = part.sum(t1_block[chain], grad, x * V(rstd));
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, m_fma(x * V(rstd), V(t2), V(rstd) * grad));
      });
      close_row<C>(a, 3, row, panel, grad_x_row);
    }
    store_panel<C>(a, 3, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void rms_norm_backward_weight_to_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  zero_partial<C>(a, chunk, 1, 0, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        C* grad_weight_sum = partial_row<C>(a, chunk, 1, 0) + c0;
        const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        const C rstd = load_stat<C>(a, 2, row);
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V grad = part.load(grad_row + c);
          const V y = x * V(rstd);
          part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), y, grad));
        });
      }
    }
  }
}

template <class C>
AVO_KERNEL void rms_norm_backward_weight_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 2, 0, 0, N, buffer(3));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 4, row, panel, buffer(2));
      const C rstd = load_stat<C>(a, 3, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V weight = part.load(weight_row + c);
          const V grad = part.load(grad_row + c);
          const V y = x * V(rstd);
          t1_block[chain] = part.sum(t1_block[chain], y, weight * grad);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V weight = part.load(weight_row + c);
        const V grad = part.load(grad_row + c);
        const V y = x * V(rstd);
        part.store(grad_x_row + c, m_fma(y, V(t2), V(rstd) * (weight * grad)));
      });
      close_row<C>(a, 4, row, panel, grad_x_row);
    }
    store_panel<C>(a, 4, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void rms_norm_backward_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 2, 0, 0, N, buffer(3));
  zero_partial<C>(a, chunk, 1, 0, 0, N);
  C* grad_weight_sum = partial_row<C>(a, chunk, 1, 0);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 4, row, panel, buffer(2));
      const C rstd = load_stat<C>(a, 3, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V weight = part.load(weight_row + c);
          const V grad = part.load(grad_row + c);
          const V y = x * V(rstd);
          t1_block[chain] = part.sum(t1_block[chain], y, weight * grad);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V weight = part.load(weight_row + c);
        const V grad = part.load(grad_row + c);
        const V y = x * V(rstd);
        part.store(grad_x_row + c, m_fma(y, V(t2), V(rstd) * (weight * grad)));
        part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), y, grad));
      });
      close_row<C>(a, 4, row, panel, grad_x_row);
    }
    store_panel<C>(a, 4, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void rms_norm_backward_weight_one_plus_weight_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 2, 0, 0, N, buffer(3));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 4, row, panel, buffer(2));
      const C rstd = load_stat<C>(a, 3, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V weight = part.load(weight_row + c);
          const V grad = part.load(grad_row + c);
          const V y = x * V(rstd);
          t1_block[chain] = part.sum(t1_block[chain], y, (weight + V(C(1.0))) * grad);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V weight = part.load(weight_row + c);
        const V grad = part.load(grad_row + c);
        const V y = x * V(rstd);
        part.store(grad_x_row + c, m_fma(y, V(t2), V(rstd) * ((weight + V(C(1.0))) * grad)));
      });
      close_row<C>(a, 4, row, panel, grad_x_row);
    }
    store_panel<C>(a, 4, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void rms_norm_backward_weight_one_plus_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 2, 0, 0, N, buffer(3));
  zero_partial<C>(a, chunk, 1, 0, 0, N);
  C* grad_weight_sum = partial_row<C>(a, chunk, 1, 0);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 4, row, panel, buffer(2));
      const C rstd = load_stat<C>(a, 3, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V weight = part.load(weight_row + c);
          const V grad = part.load(grad_row + c);
          const V y = x * V(rstd);
          t1_block[chain] = part.sum(t1_block[chain], y, (weight + V(C(1.0))) * grad);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V weight = part.load(weight_row + c);
        const V grad = part.load(grad_row + c);
        const V y = x * V(rstd);
        part.store(grad_x_row + c, m_fma(y, V(t2), V(rstd) * ((weight + V(C(1.0))) * grad)));
        part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), y, grad));
      });
      close_row<C>(a, 4, row, panel, grad_x_row);
    }
    store_panel<C>(a, 4, panel, buffer(2));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_rms_norm[] = {
    {"rms_norm_forward", rms_norm_forward<float>, rms_norm_forward<double>},
    {"rms_norm_forward_weight", rms_norm_forward_weight<float>, rms_norm_forward_weight<double>},
    {"rms_norm_forward_weight_one_plus_weight", rms_norm_forward_weight_one_plus_weight<float>, rms_norm_forward_weight_one_plus_weight<double>},
    {"rms_norm_backward", rms_norm_backward<float>, rms_norm_backward<double>},
    {"rms_norm_backward_weight_to_weight", rms_norm_backward_weight_to_weight<float>, rms_norm_backward_weight_to_weight<double>},
    {"rms_norm_backward_weight_to_x", rms_norm_backward_weight_to_x<float>, rms_norm_backward_weight_to_x<double>},
    {"rms_norm_backward_weight", rms_norm_backward_weight<float>, rms_norm_backward_weight<double>},
    {"rms_norm_backward_weight_one_plus_weight_to_x", rms_norm_backward_weight_one_plus_weight_to_x<float>, rms_norm_backward_weight_one_plus_weight_to_x<double>},
    {"rms_norm_backward_weight_one_plus_weight", rms_norm_backward_weight_one_plus_weight<float>, rms_norm_backward_weight_one_plus_weight<double>},
};
AVO_HIDDEN extern const int kernels_rms_norm_count = 9;

} // namespace AVO_ISA_NAMESPACE
