// add_rms_norm: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// residual_out = x + residual; y = rms_norm(residual_out)
// Source: Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467
template <class C>
AVO_KERNEL void add_rms_norm_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* residual_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* y_row = open_row<C>(a, 2, row, panel, buffer(2));
      C* residual_out_row = open_row<C>(a, 3, row, panel, buffer(3));
      C* t1_row = buffer(4);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V residual = part.load(residual_row + c);
          const V residual_out = x + residual;
          const V t2 = m_round_to(residual_out, a->operands[3].dtype);
          part.store(t1_row + c, t2);
          t1_block = part.sum(t1_block, t2 * t2);
        });
        t1_lanes = t1_lanes + t1_block;
      }
      const C t1 = hsum(t1_lanes);
      const C rstd = m_rsqrt(eps + t1 / C(N));
      store_stat<C>(a, 4, row, rstd);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V t2 = part.load(t1_row + c);
        const V x = part.load(x_row + c);
        const V residual = part.load(residual_row + c);
        const V y = t2 * V(rstd);
        const V residual_out = x + residual;
        part.store(y_row + c, y);
        part.store(residual_out_row + c, residual_out);
      });
      close_row<C>(a, 2, row, panel, y_row);
      close_row<C>(a, 3, row, panel, residual_out_row);
    }
    store_panel<C>(a, 2, panel, buffer(2));
    store_panel<C>(a, 3, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void add_rms_norm_forward_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  const C* weight_row = load_row<C>(a, 2, 0, 0, N, buffer(5));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* residual_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* y_row = open_row<C>(a, 3, row, panel, buffer(2));
      C* residual_out_row = open_row<C>(a, 4, row, panel, buffer(3));
      C* t1_row = buffer(4);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V residual = part.load(residual_row + c);
          const V residual_out = x + residual;
          const V t2 = m_round_to(residual_out, a->operands[4].dtype);
          part.store(t1_row + c, t2);
          t1_block = part.sum(t1_block, t2 * t2);
        });
        t1_lanes = t1_lanes + t1_block;
      }
      const C t1 = hsum(t1_lanes);
      const C rstd = m_rsqrt(eps + t1 / C(N));
      store_stat<C>(a, 5, row, rstd);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V weight = part.load(weight_row + c);
        const V t2 = part.load(t1_row + c);
        const V x = part.load(x_row + c);
        const V residual = part.load(residual_row + c);
        const V y = t2 * V(rstd);
        const V y_ = weight * y;
        const V residual_out = x + residual;
        part.store(y_row + c, y_);
        part.store(residual_out_row + c, residual_out);
      });
      close_row<C>(a, 3, row, panel, y_row);
      close_row<C>(a, 4, row, panel, residual_out_row);
    }
    store_panel<C>(a, 3, panel, buffer(2));
    store_panel<C>(a, 4, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void add_rms_norm_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* residual_out_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_y_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* grad_residual_out_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 4, row, panel, buffer(3));
      const C rstd = load_stat<C>(a, 3, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          t1_block[chain] = part.sum(t1_block[chain], grad_y, V(rstd) * residual_out);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V residual_out = part.load(residual_out_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V grad_residual_out = part.load(grad_residual_out_row + c);
        part.store(grad_x_row + c, m_fma(V(rstd) * residual_out, V(t2), m_fma(grad_y, V(rstd), grad_residual_out)));
      });
      close_row<C>(a, 4, row, panel, grad_x_row);
    }
    store_panel<C>(a, 4, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void add_rms_norm_backward_from_y(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* residual_out_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_y_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 3, row, panel, buffer(2));
      const C rstd = load_stat<C>(a, 2, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          t1_block[chain] = part.sum(t1_block[chain], grad_y, V(rstd) * residual_out);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V residual_out = part.load(residual_out_row + c);
        const V grad_y = part.load(grad_y_row + c);
        part.store(grad_x_row + c, m_fma(V(rstd) * residual_out, V(t2), grad_y * V(rstd)));
      });
      close_row<C>(a, 3, row, panel, grad_x_row);
    }
    store_panel<C>(a, 3, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void add_rms_norm_backward_from_residual_out(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* grad_residual_out_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* grad_x_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V grad_residual_out = part.load(grad_residual_out_row + c);
        part.store(grad_x_row + c, grad_residual_out);
      });
      close_row<C>(a, 1, row, c0, n, grad_x_row);
    }
  }
}

template <class C>
AVO_KERNEL void add_rms_norm_backward_weight_to_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  zero_partial<C>(a, chunk, 1, 0, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        C* grad_weight_sum = partial_row<C>(a, chunk, 1, 0) + c0;
        const C* grad_y_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* residual_out_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        const C rstd = load_stat<C>(a, 2, row);
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V y = V(rstd) * residual_out;
          part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), grad_y, y));
        });
      }
    }
  }
}

template <class C>
AVO_KERNEL void add_rms_norm_backward_weight_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 3, 0, 0, N, buffer(4));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* residual_out_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_y_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* grad_residual_out_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 5, row, panel, buffer(3));
      const C rstd = load_stat<C>(a, 4, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V weight = part.load(weight_row + c);
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V y = V(rstd) * residual_out;
          t1_block[chain] = part.sum(t1_block[chain], weight * grad_y, y);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V residual_out = part.load(residual_out_row + c);
        const V weight = part.load(weight_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V grad_residual_out = part.load(grad_residual_out_row + c);
        const V y = V(rstd) * residual_out;
        part.store(grad_x_row + c, m_fma(y, V(t2), m_fma(weight * grad_y, V(rstd), grad_residual_out)));
      });
      close_row<C>(a, 5, row, panel, grad_x_row);
    }
    store_panel<C>(a, 5, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void add_rms_norm_backward_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 3, 0, 0, N, buffer(4));
  zero_partial<C>(a, chunk, 1, 0, 0, N);
  C* grad_weight_sum = partial_row<C>(a, chunk, 1, 0);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* residual_out_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_y_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* grad_residual_out_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 5, row, panel, buffer(3));
      const C rstd = load_stat<C>(a, 4, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V weight = part.load(weight_row + c);
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V y = V(rstd) * residual_out;
          t1_block[chain] = part.sum(t1_block[chain], weight * grad_y, y);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V residual_out = part.load(residual_out_row + c);
        const V weight = part.load(weight_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V grad_residual_out = part.load(grad_residual_out_row + c);
        const V y = V(rstd) * residual_out;
        part.store(grad_x_row + c, m_fma(y, V(t2), m_fma(weight * grad_y, V(rstd), grad_residual_out)));
        part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), grad_y, y));
      });
      close_row<C>(a, 5, row, panel, grad_x_row);
    }
    store_panel<C>(a, 5, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void add_rms_norm_backward_weight_from_y_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 2, 0, 0, N, buffer(3));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* residual_out_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_y_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 4, row, panel, buffer(2));
      const C rstd = load_stat<C>(a, 3, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V weight = part.load(weight_row + c);
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V y = V(rstd) * residual_out;
          t1_block[chain] = part.sum(t1_block[chain], weight * grad_y, y);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V residual_out = part.load(residual_out_row + c);
        const V weight = part.load(weight_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V y = V(rstd) * residual_out;
        part.store(grad_x_row + c, m_fma(y, V(t2), weight * grad_y * V(rstd)));
      });
      close_row<C>(a, 4, row, panel, grad_x_row);
    }
    store_panel<C>(a, 4, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void add_rms_norm_backward_weight_from_y(AVO_PARAMETERS) {
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
      const C* residual_out_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_y_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 4, row, panel, buffer(2));
      const C rstd = load_stat<C>(a, 3, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V weight = part.load(weight_row + c);
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V y = V(rstd) * residual_out;
          t1_block[chain] = part.sum(t1_block[chain], weight * grad_y, y);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V residual_out = part.load(residual_out_row + c);
        const V weight = part.load(weight_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V y = V(rstd) * residual_out;
        part.store(grad_x_row + c, m_fma(y, V(t2), weight * grad_y * V(rstd)));
        part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), grad_y, y));
      });
      close_row<C>(a, 4, row, panel, grad_x_row);
    }
    store_panel<C>(a, 4, panel, buffer(2));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_add_rms_norm[] = {
    {"add_rms_norm_forward", add_rms_norm_forward<float>, add_rms_norm_forward<double>},
    {"add_rms_norm_forward_weight", add_rms_norm_forward_weight<float>, add_rms_norm_forward_weight<double>},
    {"add_rms_norm_backward", add_rms_norm_backward<float>, add_rms_norm_backward<double>},
    {"add_rms_norm_backward_from_y", add_rms_norm_backward_from_y<float>, add_rms_norm_backward_from_y<double>},
    {"add_rms_norm_backward_from_residual_out", add_rms_norm_backward_from_residual_out<float>, add_rms_norm_backward_from_residual_out<double>},
    {"add_rms_norm_backward_weight_to_weight", add_rms_norm_backward_weight_to_weight<float>, add_rms_norm_backward_weight_to_weight<double>},
    {"add_rms_norm_backward_weight_to_x", add_rms_norm_backward_weight_to_x<float>, add_rms_norm_backward_weight_to_x<double>},
    {"add_rms_norm_backward_weight", add_rms_norm_backward_weight<float>, add_rms_norm_backward_weight<double>},
    {"add_rms_norm_backward_weight_from_y_to_x", add_rms_norm_backward_weight_from_y_to_x<float>, add_rms_norm_backward_weight_from_y_to_x<double>},
    {"add_rms_norm_backward_weight_from_y", add_rms_norm_backward_weight_from_y<float>, add_rms_norm_backward_weight_from_y<double>},
};
AVO_HIDDEN extern const int kernels_add_rms_norm_count = 10;

} // namespace AVO_ISA_NAMESPACE
