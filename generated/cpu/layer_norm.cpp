// layer_norm: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// (x - mean(x)) / sqrt(var(x) + eps) * weight + bias, var with divisor N
// Source: Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450
template <class C>
AVO_KERNEL void layer_norm_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      C* y_row = open_row<C>(a, 1, row, panel, buffer(1));
      V sum_x_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_x_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          sum_x_block[chain] = part.sum(sum_x_block[chain], x);
        });
        sum_x_lanes = sum_x_lanes + (sum_x_block[0] + sum_x_block[1]);
      }
      const C sum_x = hsum(sum_x_lanes);
      const C mean = sum_x / C(N);
      V sum_centred_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_centred_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V centred = x - V(mean);
          sum_centred_block[chain] = part.sum(sum_centred_block[chain], centred);
          t1_block[chain] = part.sum(t1_block[chain], centred * centred);
        });
        sum_centred_lanes = sum_centred_lanes + (sum_centred_block[0] + sum_centred_block[1]);
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C sum_centred = hsum(sum_centred_lanes);
      const C t1 = hsum(t1_lanes);
      const C residue = sum_centred / C(N);
      const C variance = m_fma(-residue, residue, t1 / C(N));
      const C rstd = m_rsqrt(eps + variance);
      const C t2 = -(residue * rstd);
      store_stat<C>(a, 2, row, rstd);
      store_stat<C>(a, 3, row, mean);
      store_stat<C>(a, 4, row, residue);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V centred = x - V(mean);
        const V y = m_fma(centred, V(rstd), V(t2));
        part.store(y_row + c, y);
      });
      close_row<C>(a, 1, row, panel, y_row);
    }
    store_panel<C>(a, 1, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void layer_norm_forward_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  const C* bias_row = load_row<C>(a, 1, 0, 0, N, buffer(2));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      C* y_row = open_row<C>(a, 2, row, panel, buffer(1));
      V sum_x_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_x_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          sum_x_block[chain] = part.sum(sum_x_block[chain], x);
        });
        sum_x_lanes = sum_x_lanes + (sum_x_block[0] + sum_x_block[1]);
      }
      const C sum_x = hsum(sum_x_lanes);
      const C mean = sum_x / C(N);
      V sum_centred_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_centred_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V centred = x - V(mean);
          sum_centred_block[chain] = part.sum(sum_centred_block[chain], centred);
          t1_block[chain] = part.sum(t1_block[chain], centred * centred);
        });
        sum_centred_lanes = sum_centred_lanes + (sum_centred_block[0] + sum_centred_block[1]);
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C sum_centred = hsum(sum_centred_lanes);
      const C t1 = hsum(t1_lanes);
      const C residue = sum_centred / C(N);
      const C variance = m_fma(-residue, residue, t1 / C(N));
      const C rstd = m_rsqrt(eps + variance);
      const C t2 = -(residue * rstd);
      store_stat<C>(a, 3, row, rstd);
      store_stat<C>(a, 4, row, mean);
      store_stat<C>(a, 5, row, residue);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V bias = part.load(bias_row + c);
        const V x = part.load(x_row + c);
        const V centred = x - V(mean);
        const V y = m_fma(centred, V(rstd), V(t2));
        const V y_ = bias + y;
        part.store(y_row + c, y_);
      });
      close_row<C>(a, 2, row, panel, y_row);
    }
    store_panel<C>(a, 2, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void layer_norm_forward_weight(AVO_PARAMETERS) {
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
      V sum_x_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_x_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          sum_x_block[chain] = part.sum(sum_x_block[chain], x);
        });
        sum_x_lanes = sum_x_lanes + (sum_x_block[0] + sum_x_block[1]);
      }
      const C sum_x = hsum(sum_x_lanes);
      const C mean = sum_x / C(N);
      V sum_centred_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_centred_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V centred = x - V(mean);
          sum_centred_block[chain] = part.sum(sum_centred_block[chain], centred);
          t1_block[chain] = part.sum(t1_block[chain], centred * centred);
        });
        sum_centred_lanes = sum_centred_lanes + (sum_centred_block[0] + sum_centred_block[1]);
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C sum_centred = hsum(sum_centred_lanes);
      const C t1 = hsum(t1_lanes);
      const C residue = sum_centred / C(N);
      const C variance = m_fma(-residue, residue, t1 / C(N));
      const C rstd = m_rsqrt(eps + variance);
      const C t2 = -(residue * rstd);
      store_stat<C>(a, 3, row, rstd);
      store_stat<C>(a, 4, row, mean);
      store_stat<C>(a, 5, row, residue);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V weight = part.load(weight_row + c);
        const V x = part.load(x_row + c);
        const V centred = x - V(mean);
        const V y = m_fma(centred, V(rstd), V(t2));
        const V y_ = weight * y;
        part.store(y_row + c, y_);
      });
      close_row<C>(a, 2, row, panel, y_row);
    }
    store_panel<C>(a, 2, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void layer_norm_forward_weight_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  const C* weight_row = load_row<C>(a, 1, 0, 0, N, buffer(2));
  const C* bias_row = load_row<C>(a, 2, 0, 0, N, buffer(3));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      C* y_row = open_row<C>(a, 3, row, panel, buffer(1));
      V sum_x_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_x_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          sum_x_block[chain] = part.sum(sum_x_block[chain], x);
        });
        sum_x_lanes = sum_x_lanes + (sum_x_block[0] + sum_x_block[1]);
      }
      const C sum_x = hsum(sum_x_lanes);
      const C mean = sum_x / C(N);
      V sum_centred_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_centred_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V centred = x - V(mean);
          sum_centred_block[chain] = part.sum(sum_centred_block[chain], centred);
          t1_block[chain] = part.sum(t1_block[chain], centred * centred);
        });
        sum_centred_lanes = sum_centred_lanes + (sum_centred_block[0] + sum_centred_block[1]);
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C sum_centred = hsum(sum_centred_lanes);
      const C t1 = hsum(t1_lanes);
      const C residue = sum_centred / C(N);
      const C variance = m_fma(-residue, residue, t1 / C(N));
      const C rstd = m_rsqrt(eps + variance);
      const C t2 = -(residue * rstd);
      store_stat<C>(a, 4, row, rstd);
      store_stat<C>(a, 5, row, mean);
      store_stat<C>(a, 6, row, residue);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V weight = part.load(weight_row + c);
        const V x = part.load(x_row + c);
        const V bias = part.load(bias_row + c);
        const V centred = x - V(mean);
        const V y = m_fma(centred, V(rstd), V(t2));
        const V y_ = m_fma(weight, y, bias);
        part.store(y_row + c, y_);
      });
      close_row<C>(a, 3, row, panel, y_row);
    }
    store_panel<C>(a, 3, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void layer_norm_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* grad_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 5, row, panel, buffer(2));
      const C rstd = load_stat<C>(a, 2, row);
      const C mean = load_stat<C>(a, 3, row);
      const C residue = load_stat<C>(a, 4, row);
      V sum_grad_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_grad_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V grad = part.load(grad_row + c);
          const V x = part.load(x_row + c);
          const V centred = x - V(mean);
          sum_grad_block[chain] = part.sum(sum_grad_block[chain], grad);
          t1_block[chain] = part.sum(t1_block[chain], (centred - V(residue)) * grad);
        });
        sum_grad_lanes = sum_grad_lanes + (sum_grad_block[0] + sum_grad_block[1]);
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C sum_grad = hsum(sum_grad_lanes);
      const C t1 = hsum(t1_lanes);
      const C t2 = -(rstd * sum_grad) / C(N);
      const C t3 = rstd * (rstd * (-t1 / C(N)));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        const V centred = x - V(mean);
        part.store(grad_x_row + c, V(t2) + m_fma(V(t3), V(rstd) * centred, V(rstd) * grad));
      });
      close_row<C>(a, 5, row, panel, grad_x_row);
    }
    store_panel<C>(a, 5, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void layer_norm_backward_bias_to_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  zero_partial<C>(a, chunk, 1, 0, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0) + c0;
        const C* grad_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V grad = part.load(grad_row + c);
          part.store(grad_bias_sum + c, part.load(grad_bias_sum + c) + grad);
        });
      }
    }
  }
}

template <class C>
AVO_KERNEL void layer_norm_backward_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  zero_partial<C>(a, chunk, 1, 0, 0, N);
  C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* grad_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 5, row, panel, buffer(2));
      const C rstd = load_stat<C>(a, 2, row);
      const C mean = load_stat<C>(a, 3, row);
      const C residue = load_stat<C>(a, 4, row);
      V sum_grad_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_grad_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V grad = part.load(grad_row + c);
          const V x = part.load(x_row + c);
          const V centred = x - V(mean);
          sum_grad_block[chain] = part.sum(sum_grad_block[chain], grad);
          t1_block[chain] = part.sum(t1_block[chain], (centred - V(residue)) * grad);
        });
        sum_grad_lanes = sum_grad_lanes + (sum_grad_block[0] + sum_grad_block[1]);
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C sum_grad = hsum(sum_grad_lanes);
      const C t1 = hsum(t1_lanes);
      const C t2 = -(rstd * sum_grad) / C(N);
      const C t3 = rstd * (rstd * (-t1 / C(N)));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        const V centred = x - V(mean);
        part.store(grad_x_row + c, V(t2) + m_fma(V(t3), V(rstd) * centred, V(rstd) * grad));
        part.store(grad_bias_sum + c, part.load(grad_bias_sum + c) + grad);
      });
      close_row<C>(a, 5, row, panel, grad_x_row);
    }
    store_panel<C>(a, 5, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void layer_norm_backward_weight_to_weight(AVO_PARAMETERS) {
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
        const C mean = load_stat<C>(a, 3, row);
        const C residue = load_stat<C>(a, 4, row);
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V grad = part.load(grad_row + c);
          const V centred = x - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          part.store(grad_weight_sum + c, part.load(grad_weight_sum + c) + y * grad);
        });
      }
    }
  }
}

template <class C>
AVO_KERNEL void layer_norm_backward_weight_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 2, 0, 0, N, buffer(3));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* grad_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 6, row, panel, buffer(2));
      const C rstd = load_stat<C>(a, 3, row);
      const C mean = load_stat<C>(a, 4, row);
      const C residue = load_stat<C>(a, 5, row);
      V t1_lanes(C(0));
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        V t2_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V weight = part.load(weight_row + c);
          const V grad = part.load(grad_row + c);
          const V x = part.load(x_row + c);
          const V t3 = weight * grad;
          const V centred = x - V(mean);
          t1_block[chain] = part.sum(t1_block[chain], t3);
          t2_block[chain] = part.sum(t2_block[chain], (centred - V(residue)) * t3);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
        t2_lanes = t2_lanes + (t2_block[0] + t2_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = -(rstd * t1) / C(N);
      const C t4 = rstd * (rstd * (-t2 / C(N)));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V weight = part.load(weight_row + c);
        const V grad = part.load(grad_row + c);
        const V centred = x - V(mean);
        part.store(grad_x_row + c, V(t3) + m_fma(V(t4), V(rstd) * centred, V(rstd) * (weight * grad)));
      });
      close_row<C>(a, 6, row, panel, grad_x_row);
    }
    store_panel<C>(a, 6, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void layer_norm_backward_weight(AVO_PARAMETERS) {
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
      const C* grad_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 6, row, panel, buffer(2));
      const C rstd = load_stat<C>(a, 3, row);
      const C mean = load_stat<C>(a, 4, row);
      const C residue = load_stat<C>(a, 5, row);
      V t1_lanes(C(0));
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        V t2_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V weight = part.load(weight_row + c);
          const V grad = part.load(grad_row + c);
          const V x = part.load(x_row + c);
          const V t3 = weight * grad;
          const V centred = x - V(mean);
          t1_block[chain] = part.sum(t1_block[chain], t3);
          t2_block[chain] = part.sum(t2_block[chain], (centred - V(residue)) * t3);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
        t2_lanes = t2_lanes + (t2_block[0] + t2_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = -(rstd * t1) / C(N);
      const C t4 = rstd * (rstd * (-t2 / C(N)));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V weight = part.load(weight_row + c);
        const V grad = part.load(grad_row + c);
        const V centred = x - V(mean);
        const V y = V(rstd) * (centred - V(residue));
        part.store(grad_x_row + c, V(t3) + m_fma(V(t4), V(rstd) * centred, V(rstd) * (weight * grad)));
        part.store(grad_weight_sum + c, part.load(grad_weight_sum + c) + y * grad);
      });
      close_row<C>(a, 6, row, panel, grad_x_row);
    }
    store_panel<C>(a, 6, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void layer_norm_backward_weight_bias_to_weight_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  zero_partial<C>(a, chunk, 2, 0, col_begin, col_end);
  zero_partial<C>(a, chunk, 2, 1, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        C* grad_weight_sum = partial_row<C>(a, chunk, 2, 0) + c0;
        C* grad_bias_sum = partial_row<C>(a, chunk, 2, 1) + c0;
        const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        const C rstd = load_stat<C>(a, 2, row);
        const C mean = load_stat<C>(a, 3, row);
        const C residue = load_stat<C>(a, 4, row);
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V grad = part.load(grad_row + c);
          const V centred = x - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          part.store(grad_weight_sum + c, part.load(grad_weight_sum + c) + y * grad);
          part.store(grad_bias_sum + c, part.load(grad_bias_sum + c) + grad);
        });
      }
    }
  }
}

template <class C>
AVO_KERNEL void layer_norm_backward_weight_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 2, 0, 0, N, buffer(3));
  zero_partial<C>(a, chunk, 2, 0, 0, N);
  zero_partial<C>(a, chunk, 2, 1, 0, N);
  C* grad_weight_sum = partial_row<C>(a, chunk, 2, 0);
  C* grad_bias_sum = partial_row<C>(a, chunk, 2, 1);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* grad_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 6, row, panel, buffer(2));
      const C rstd = load_stat<C>(a, 3, row);
      const C mean = load_stat<C>(a, 4, row);
      const C residue = load_stat<C>(a, 5, row);
      V t1_lanes(C(0));
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        V t2_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V weight = part.load(weight_row + c);
          const V grad = part.load(grad_row + c);
          const V x = part.load(x_row + c);
          const V t3 = weight * grad;
          const V centred = x - V(mean);
          t1_block[chain] = part.sum(t1_block[chain], t3);
          t2_block[chain] = part.sum(t2_block[chain], (centred - V(residue)) * t3);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
        t2_lanes = t2_lanes + (t2_block[0] + t2_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = -(rstd * t1) / C(N);
      const C t4 = rstd * (rstd * (-t2 / C(N)));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V weight = part.load(weight_row + c);
        const V grad = part.load(grad_row + c);
        const V centred = x - V(mean);
        const V y = V(rstd) * (centred - V(residue));
        part.store(grad_x_row + c, V(t3) + m_fma(V(t4), V(rstd) * centred, V(rstd) * (weight * grad)));
        part.store(grad_weight_sum + c, part.load(grad_weight_sum + c) + y * grad);
        part.store(grad_bias_sum + c, part.load(grad_bias_sum + c) + grad);
      });
      close_row<C>(a, 6, row, panel, grad_x_row);
    }
    store_panel<C>(a, 6, panel, buffer(2));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_layer_norm[] = {
    {"layer_norm_forward", layer_norm_forward<float>, layer_norm_forward<double>},
    {"layer_norm_forward_bias", layer_norm_forward_bias<float>, layer_norm_forward_bias<double>},
    {"layer_norm_forward_weight", layer_norm_forward_weight<float>, layer_norm_forward_weight<double>},
    {"layer_norm_forward_weight_bias", layer_norm_forward_weight_bias<float>, layer_norm_forward_weight_bias<double>},
    {"layer_norm_backward", layer_norm_backward<float>, layer_norm_backward<double>},
    {"layer_norm_backward_bias_to_bias", layer_norm_backward_bias_to_bias<float>, layer_norm_backward_bias_to_bias<double>},
    {"layer_norm_backward_bias", layer_norm_backward_bias<float>, layer_norm_backward_bias<double>},
    {"layer_norm_backward_weight_to_weight", layer_norm_backward_weight_to_weight<float>, layer_norm_backward_weight_to_weight<double>},
    {"layer_norm_backward_weight_to_x", layer_norm_backward_weight_to_x<float>, layer_norm_backward_weight_to_x<double>},
    {"layer_norm_backward_weight", layer_norm_backward_weight<float>, layer_norm_backward_weight<double>},
    {"layer_norm_backward_weight_bias_to_weight_bias", layer_norm_backward_weight_bias_to_weight_bias<float>, layer_norm_backward_weight_bias_to_weight_bias<double>},
    {"layer_norm_backward_weight_bias", layer_norm_backward_weight_bias<float>, layer_norm_backward_weight_bias<double>},
};
AVO_HIDDEN extern const int kernels_layer_norm_count = 12;

} // namespace AVO_ISA_NAMESPACE
