// gated_rms_norm: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// rms_norm(x) * silu(gate), or rms_norm(x * silu(gate)) where the order is 'gate_first'
// Source: Dao and Gu, Transformers are SSMs, arXiv:2405.21060, and its published code (RMSNormGated)
template <class C>
AVO_KERNEL void gated_rms_norm_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  const C* weight_row = load_row<C>(a, 2, 0, 0, N, buffer(3));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* y_row = open_row<C>(a, 3, row, panel, buffer(2));
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
      store_stat<C>(a, 4, row, rstd);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V weight = part.load(weight_row + c);
        const V x = part.load(x_row + c);
        const V gate = part.load(gate_row + c);
        const V y = x * V(rstd);
        const V y_ = weight * y;
        part.store(y_row + c, y_ * m_x_sigmoid(gate));
      });
      close_row<C>(a, 3, row, panel, y_row);
    }
    store_panel<C>(a, 3, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void gated_rms_norm_forward_gate_first(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  const C* weight_row = load_row<C>(a, 2, 0, 0, N, buffer(4));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* y_row = open_row<C>(a, 3, row, panel, buffer(2));
      C* t1_row = buffer(3);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V gate = part.load(gate_row + c);
          const V t2 = x * m_x_sigmoid(gate);
          part.store(t1_row + c, t2);
          t1_block = part.sum(t1_block, t2 * t2);
        });
        t1_lanes = t1_lanes + t1_block;
      }
      const C t1 = hsum(t1_lanes);
      const C rstd = m_rsqrt(eps + t1 / C(N));
      store_stat<C>(a, 4, row, rstd);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V weight = part.load(weight_row + c);
        const V t2 = part.load(t1_row + c);
        const V y = t2 * V(rstd);
        const V y_ = weight * y;
        part.store(y_row + c, y_);
      });
      close_row<C>(a, 3, row, panel, y_row);
    }
    store_panel<C>(a, 3, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void gated_rms_norm_backward_to_weight(AVO_PARAMETERS) {
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
        const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        const C* grad_row = load_row<C>(a, 2, row, c0, n, buffer(2));
        const C rstd = load_stat<C>(a, 3, row);
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V gate = part.load(gate_row + c);
          const V grad = part.load(grad_row + c);
          const V y = x * V(rstd);
          part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), y * (m_x_sigmoid(gate) * grad)));
        });
      }
    }
  }
}

template <class C>
AVO_KERNEL void gated_rms_norm_backward_to_x_gate(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 3, 0, 0, N, buffer(6));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* grad_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 5, row, panel, buffer(3));
      C* grad_gate_row = open_row<C>(a, 6, row, panel, buffer(4));
      C* t1_row = buffer(5);
      const C rstd = load_stat<C>(a, 4, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V weight = part.load(weight_row + c);
          const V gate = part.load(gate_row + c);
          const V grad = part.load(grad_row + c);
          const V y = x * V(rstd);
          const V t2 = weight * (m_x_sigmoid(gate) * grad);
          part.store(t1_row + c, t2);
          t1_block = part.sum(t1_block, y * t2);
        });
        t1_lanes = t1_lanes + t1_block;
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V t3 = part.load(t1_row + c);
        const V gate = part.load(gate_row + c);
        const V weight = part.load(weight_row + c);
        const V grad = part.load(grad_row + c);
        const V y = x * V(rstd);
        const V t4 = m_sigmoid(gate);
        const V y_ = weight * y;
        const V t5 = y_ * grad;
        part.store(grad_x_row + c, m_fma(y, V(t2), V(rstd) * t3));
        part.store(grad_gate_row + c, m_fma(t4 * m_sigmoid_rest(gate, t4), gate * t5, t4 * t5));
      });
      close_row<C>(a, 5, row, panel, grad_x_row);
      close_row<C>(a, 6, row, panel, grad_gate_row);
    }
    store_panel<C>(a, 5, panel, buffer(3));
    store_panel<C>(a, 6, panel, buffer(4));
  }
}

template <class C>
AVO_KERNEL void gated_rms_norm_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 3, 0, 0, N, buffer(6));
  zero_partial<C>(a, chunk, 1, 0, 0, N);
  C* grad_weight_sum = partial_row<C>(a, chunk, 1, 0);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* grad_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 5, row, panel, buffer(3));
      C* grad_gate_row = open_row<C>(a, 6, row, panel, buffer(4));
      C* t1_row = buffer(5);
      const C rstd = load_stat<C>(a, 4, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V weight = part.load(weight_row + c);
          const V gate = part.load(gate_row + c);
          const V grad = part.load(grad_row + c);
          const V y = x * V(rstd);
          const V t2 = m_x_sigmoid(gate) * grad;
          part.store(t1_row + c, t2);
          t1_block = part.sum(t1_block, y * (weight * t2));
        });
        t1_lanes = t1_lanes + t1_block;
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V weight = part.load(weight_row + c);
        const V t3 = part.load(t1_row + c);
        const V gate = part.load(gate_row + c);
        const V grad = part.load(grad_row + c);
        const V y = x * V(rstd);
        const V t4 = m_sigmoid(gate);
        const V y_ = weight * y;
        const V t5 = y_ * grad;
        part.store(grad_x_row + c, m_fma(y, V(t2), V(rstd) * (weight * t3)));
        part.store(grad_gate_row + c, m_fma(t4 * m_sigmoid_rest(gate, t4), gate * t5, t4 * t5));
        part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), y * t3));
      });
      close_row<C>(a, 5, row, panel, grad_x_row);
      close_row<C>(a, 6, row, panel, grad_gate_row);
    }
    store_panel<C>(a, 5, panel, buffer(3));
    store_panel<C>(a, 6, panel, buffer(4));
  }
}

template <class C>
AVO_KERNEL void gated_rms_norm_backward_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 3, 0, 0, N, buffer(5));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* grad_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 5, row, panel, buffer(3));
      C* t1_row = buffer(4);
      const C rstd = load_stat<C>(a, 4, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V weight = part.load(weight_row + c);
          const V gate = part.load(gate_row + c);
          const V grad = part.load(grad_row + c);
          const V y = x * V(rstd);
          const V t2 = weight * (m_x_sigmoid(gate) * grad);
          part.store(t1_row + c, t2);
          t1_block = part.sum(t1_block, y * t2);
        });
        t1_lanes = t1_lanes + t1_block;
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V t3 = part.load(t1_row + c);
        const V y = x * V(rstd);
        part.store(grad_x_row + c, m_fma(y, V(t2), V(rstd) * t3));
      });
      close_row<C>(a, 5, row, panel, grad_x_row);
    }
    store_panel<C>(a, 5, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void gated_rms_norm_backward_to_x_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 3, 0, 0, N, buffer(5));
  zero_partial<C>(a, chunk, 1, 0, 0, N);
  C* grad_weight_sum = partial_row<C>(a, chunk, 1, 0);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* grad_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 5, row, panel, buffer(3));
      C* t1_row = buffer(4);
      const C rstd = load_stat<C>(a, 4, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V weight = part.load(weight_row + c);
          const V gate = part.load(gate_row + c);
          const V grad = part.load(grad_row + c);
          const V y = x * V(rstd);
          const V t2 = m_x_sigmoid(gate) * grad;
          part.store(t1_row + c, t2);
          t1_block = part.sum(t1_block, y * (weight * t2));
        });
        t1_lanes = t1_lanes + t1_block;
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V weight = part.load(weight_row + c);
        const V t3 = part.load(t1_row + c);
        const V y = x * V(rstd);
        part.store(grad_x_row + c, m_fma(y, V(t2), V(rstd) * (weight * t3)));
        part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), y * t3));
      });
      close_row<C>(a, 5, row, panel, grad_x_row);
    }
    store_panel<C>(a, 5, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void gated_rms_norm_backward_gate_first_to_weight(AVO_PARAMETERS) {
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
        const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        const C* grad_row = load_row<C>(a, 2, row, c0, n, buffer(2));
        const C rstd = load_stat<C>(a, 3, row);
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V gate = part.load(gate_row + c);
          const V grad = part.load(grad_row + c);
          const V y = x * m_x_sigmoid(gate) * V(rstd);
          part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), y * grad));
        });
      }
    }
  }
}

template <class C>
AVO_KERNEL void gated_rms_norm_backward_gate_first_to_x_gate(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 3, 0, 0, N, buffer(7));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* gate_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* grad_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 5, row, panel, buffer(3));
      C* grad_gate_row = open_row<C>(a, 6, row, panel, buffer(4));
      C* y_row = buffer(5);
      C* t1_row = buffer(6);
      const C rstd = load_stat<C>(a, 4, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V gate = part.load(gate_row + c);
          const V weight = part.load(weight_row + c);
          const V grad = part.load(grad_row + c);
          const V t2 = m_x_sigmoid(gate);
          const V y = x * t2 * V(rstd);
          part.store(t1_row + c, t2);
          part.store(y_row + c, y);
          t1_block = part.sum(t1_block, y * (weight * grad));
        });
        t1_lanes = t1_lanes + t1_block;
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V t3 = part.load(t1_row + c);
        const V y = part.load(y_row + c);
        const V weight = part.load(weight_row + c);
        const V grad = part.load(grad_row + c);
        const V gate = part.load(gate_row + c);
        const V x = part.load(x_row + c);
        const V t4 = m_fma(y, V(t2), V(rstd) * (weight * grad));
        const V t5 = m_sigmoid(gate);
        const V t6 = x * t4;
        part.store(grad_x_row + c, t3 * t4);
        part.store(grad_gate_row + c, m_fma(t5 * m_sigmoid_rest(gate, t5), gate * t6, t5 * t6));
      });
      close_row<C>(a, 5, row, panel, grad_x_row);
      close_row<C>(a, 6, row, panel, grad_gate_row);
    }
    store_panel<C>(a, 5, panel, buffer(3));
    store_panel<C>(a, 6, panel, buffer(4));
  }
}

template <class C>
AVO_KERNEL void gated_rms_norm_backward_gate_first(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 3, 0, 0, N, buffer(7));
  zero_partial<C>(a, chunk, 1, 0, 0, N);
  C* grad_weight_sum = partial_row<C>(a, chunk, 1, 0);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* gate_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* grad_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 5, row, panel, buffer(3));
      C* grad_gate_row = open_row<C>(a, 6, row, panel, buffer(4));
      C* y_row = buffer(5);
      C* t1_row = buffer(6);
      const C rstd = load_stat<C>(a, 4, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V gate = part.load(gate_row + c);
          const V weight = part.load(weight_row + c);
          const V grad = part.load(grad_row + c);
          const V t2 = m_x_sigmoid(gate);
          const V y = x * t2 * V(rstd);
          part.store(t1_row + c, t2);
          part.store(y_row + c, y);
          t1_block = part.sum(t1_block, y * (weight * grad));
        });
        t1_lanes = t1_lanes + t1_block;
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V t3 = part.load(t1_row + c);
        const V y = part.load(y_row + c);
        const V weight = part.load(weight_row + c);
        const V grad = part.load(grad_row + c);
        const V gate = part.load(gate_row + c);
        const V x = part.load(x_row + c);
        const V t4 = m_fma(y, V(t2), V(rstd) * (weight * grad));
        const V t5 = m_sigmoid(gate);
        const V t6 = x * t4;
        part.store(grad_x_row + c, t3 * t4);
        part.store(grad_gate_row + c, m_fma(t5 * m_sigmoid_rest(gate, t5), gate * t6, t5 * t6));
        part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), y * grad));
      });
      close_row<C>(a, 5, row, panel, grad_x_row);
      close_row<C>(a, 6, row, panel, grad_gate_row);
    }
    store_panel<C>(a, 5, panel, buffer(3));
    store_panel<C>(a, 6, panel, buffer(4));
  }
}

template <class C>
AVO_KERNEL void gated_rms_norm_backward_gate_first_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 3, 0, 0, N, buffer(5));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* gate_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* grad_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 5, row, panel, buffer(3));
      C* t1_row = buffer(4);
      const C rstd = load_stat<C>(a, 4, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V gate = part.load(gate_row + c);
          const V weight = part.load(weight_row + c);
          const V grad = part.load(grad_row + c);
          const V t2 = m_x_sigmoid(gate);
          const V y = x * t2 * V(rstd);
          part.store(t1_row + c, t2);
          t1_block = part.sum(t1_block, y * (weight * grad));
        });
        t1_lanes = t1_lanes + t1_block;
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V t3 = part.load(t1_row + c);
        const V x = part.load(x_row + c);
        const V weight = part.load(weight_row + c);
        const V grad = part.load(grad_row + c);
        const V y = x * t3 * V(rstd);
        part.store(grad_x_row + c, t3 * m_fma(y, V(t2), V(rstd) * (weight * grad)));
      });
      close_row<C>(a, 5, row, panel, grad_x_row);
    }
    store_panel<C>(a, 5, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void gated_rms_norm_backward_gate_first_to_x_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 3, 0, 0, N, buffer(6));
  zero_partial<C>(a, chunk, 1, 0, 0, N);
  C* grad_weight_sum = partial_row<C>(a, chunk, 1, 0);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* gate_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* grad_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 5, row, panel, buffer(3));
      C* y_row = buffer(4);
      C* t1_row = buffer(5);
      const C rstd = load_stat<C>(a, 4, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V gate = part.load(gate_row + c);
          const V weight = part.load(weight_row + c);
          const V grad = part.load(grad_row + c);
          const V t2 = m_x_sigmoid(gate);
          const V y = x * t2 * V(rstd);
          part.store(t1_row + c, t2);
          part.store(y_row + c, y);
          t1_block = part.sum(t1_block, y * (weight * grad));
        });
        t1_lanes = t1_lanes + t1_block;
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V t3 = part.load(t1_row + c);
        const V y = part.load(y_row + c);
        const V weight = part.load(weight_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, t3 * m_fma(y, V(t2), V(rstd) * (weight * grad)));
        part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), y * grad));
      });
      close_row<C>(a, 5, row, panel, grad_x_row);
    }
    store_panel<C>(a, 5, panel, buffer(3));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_gated_rms_norm[] = {
    {"gated_rms_norm_forward", gated_rms_norm_forward<float>, gated_rms_norm_forward<double>},
    {"gated_rms_norm_forward_gate_first", gated_rms_norm_forward_gate_first<float>, gated_rms_norm_forward_gate_first<double>},
    {"gated_rms_norm_backward_to_weight", gated_rms_norm_backward_to_weight<float>, gated_rms_norm_backward_to_weight<double>},
    {"gated_rms_norm_backward_to_x_gate", gated_rms_norm_backward_to_x_gate<float>, gated_rms_norm_backward_to_x_gate<double>},
    {"gated_rms_norm_backward", gated_rms_norm_backward<float>, gated_rms_norm_backward<double>},
    {"gated_rms_norm_backward_to_x", gated_rms_norm_backward_to_x<float>, gated_rms_norm_backward_to_x<double>},
    {"gated_rms_norm_backward_to_x_weight", gated_rms_norm_backward_to_x_weight<float>, gated_rms_norm_backward_to_x_weight<double>},
    {"gated_rms_norm_backward_gate_first_to_weight", gated_rms_norm_backward_gate_first_to_weight<float>, gated_rms_norm_backward_gate_first_to_weight<double>},
    {"gated_rms_norm_backward_gate_first_to_x_gate", gated_rms_norm_backward_gate_first_to_x_gate<float>, gated_rms_norm_backward_gate_first_to_x_gate<double>},
    {"gated_rms_norm_backward_gate_first", gated_rms_norm_backward_gate_first<float>, gated_rms_norm_backward_gate_first<double>},
    {"gated_rms_norm_backward_gate_first_to_x", gated_rms_norm_backward_gate_first_to_x<float>, gated_rms_norm_backward_gate_first_to_x<double>},
    {"gated_rms_norm_backward_gate_first_to_x_weight", gated_rms_norm_backward_gate_first_to_x_weight<float>, gated_rms_norm_backward_gate_first_to_x_weight<double>},
};
AVO_HIDDEN extern const int kernels_gated_rms_norm_count = 12;

} // namespace AVO_ISA_NAMESPACE
