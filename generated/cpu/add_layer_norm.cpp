// add_layer_norm: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// residual_out = x + residual; y = layer_norm(residual_out)
// Source: Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450
template <class C>
AVO_KERNEL void add_layer_norm_forward(AVO_PARAMETERS) {
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
      V sum_scaled_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_scaled_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V residual = part.load(residual_row + c);
          const V residual_out = x + residual;
          const V t1 = m_round_to(residual_out, a->operands[3].dtype);
          const V scaled = t1 * V(C(2.3283064365386963e-10));
          part.store(t1_row + c, t1);
          sum_scaled_block = part.sum(sum_scaled_block, scaled);
        });
        sum_scaled_lanes = sum_scaled_lanes + sum_scaled_block;
      }
      const C sum_scaled = hsum(sum_scaled_lanes);
      const C mean = sum_scaled / C(N) * C(4294967296.0);
      V sum_centred_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_centred_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V t2 = part.load(t1_row + c);
          const V centred = t2 - V(mean);
          sum_centred_block[chain] = part.sum(sum_centred_block[chain], centred);
          t1_block[chain] = part.sum(t1_block[chain], centred * centred);
        });
        sum_centred_lanes = sum_centred_lanes + (sum_centred_block[0] + sum_centred_block[1]);
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C sum_centred = hsum(sum_centred_lanes);
      const C t1 = hsum(t1_lanes);
      const C t2 = sum_centred / C(N);
      const C residue = m_where(m_lt(m_abs(t2), highest<C>()), t2, C(0.0));
      const C variance = m_fma(-residue, residue, t1 / C(N));
      const C rstd = m_rsqrt(eps + variance);
      const C t3 = -(residue * rstd);
      store_stat<C>(a, 4, row, rstd);
      store_stat<C>(a, 5, row, mean);
      store_stat<C>(a, 6, row, residue);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V t4 = part.load(t1_row + c);
        const V x = part.load(x_row + c);
        const V residual = part.load(residual_row + c);
        const V centred = t4 - V(mean);
        const V y = m_fma(centred, V(rstd), V(t3));
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
AVO_KERNEL void add_layer_norm_forward_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  const C* bias_row = load_row<C>(a, 2, 0, 0, N, buffer(5));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* residual_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* y_row = open_row<C>(a, 3, row, panel, buffer(2));
      C* residual_out_row = open_row<C>(a, 4, row, panel, buffer(3));
      C* t1_row = buffer(4);
      V sum_scaled_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_scaled_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V residual = part.load(residual_row + c);
          const V residual_out = x + residual;
          const V t1 = m_round_to(residual_out, a->operands[4].dtype);
          const V scaled = t1 * V(C(2.3283064365386963e-10));
          part.store(t1_row + c, t1);
          sum_scaled_block = part.sum(sum_scaled_block, scaled);
        });
        sum_scaled_lanes = sum_scaled_lanes + sum_scaled_block;
      }
      const C sum_scaled = hsum(sum_scaled_lanes);
      const C mean = sum_scaled / C(N) * C(4294967296.0);
      V sum_centred_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_centred_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V t2 = part.load(t1_row + c);
          const V centred = t2 - V(mean);
          sum_centred_block[chain] = part.sum(sum_centred_block[chain], centred);
          t1_block[chain] = part.sum(t1_block[chain], centred * centred);
        });
        sum_centred_lanes = sum_centred_lanes + (sum_centred_block[0] + sum_centred_block[1]);
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C sum_centred = hsum(sum_centred_lanes);
      const C t1 = hsum(t1_lanes);
      const C t2 = sum_centred / C(N);
      const C residue = m_where(m_lt(m_abs(t2), highest<C>()), t2, C(0.0));
      const C variance = m_fma(-residue, residue, t1 / C(N));
      const C rstd = m_rsqrt(eps + variance);
      const C t3 = -(residue * rstd);
      store_stat<C>(a, 5, row, rstd);
      store_stat<C>(a, 6, row, mean);
      store_stat<C>(a, 7, row, residue);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V bias = part.load(bias_row + c);
        const V t4 = part.load(t1_row + c);
        const V x = part.load(x_row + c);
        const V residual = part.load(residual_row + c);
        const V centred = t4 - V(mean);
        const V y = m_fma(centred, V(rstd), V(t3));
        const V y_ = bias + y;
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
AVO_KERNEL void add_layer_norm_forward_weight(AVO_PARAMETERS) {
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
      V sum_scaled_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_scaled_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V residual = part.load(residual_row + c);
          const V residual_out = x + residual;
          const V t1 = m_round_to(residual_out, a->operands[4].dtype);
          const V scaled = t1 * V(C(2.3283064365386963e-10));
          part.store(t1_row + c, t1);
          sum_scaled_block = part.sum(sum_scaled_block, scaled);
        });
        sum_scaled_lanes = sum_scaled_lanes + sum_scaled_block;
      }
      const C sum_scaled = hsum(sum_scaled_lanes);
      const C mean = sum_scaled / C(N) * C(4294967296.0);
      V sum_centred_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_centred_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V t2 = part.load(t1_row + c);
          const V centred = t2 - V(mean);
          sum_centred_block[chain] = part.sum(sum_centred_block[chain], centred);
          t1_block[chain] = part.sum(t1_block[chain], centred * centred);
        });
        sum_centred_lanes = sum_centred_lanes + (sum_centred_block[0] + sum_centred_block[1]);
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C sum_centred = hsum(sum_centred_lanes);
      const C t1 = hsum(t1_lanes);
      const C t2 = sum_centred / C(N);
      const C residue = m_where(m_lt(m_abs(t2), highest<C>()), t2, C(0.0));
      const C variance = m_fma(-residue, residue, t1 / C(N));
      const C rstd = m_rsqrt(eps + variance);
      const C t3 = -(residue * rstd);
      store_stat<C>(a, 5, row, rstd);
      store_stat<C>(a, 6, row, mean);
      store_stat<C>(a, 7, row, residue);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V weight = part.load(weight_row + c);
        const V t4 = part.load(t1_row + c);
        const V x = part.load(x_row + c);
        const V residual = part.load(residual_row + c);
        const V centred = t4 - V(mean);
        const V y = m_fma(centred, V(rstd), V(t3));
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
AVO_KERNEL void add_layer_norm_forward_weight_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  const C* weight_row = load_row<C>(a, 2, 0, 0, N, buffer(5));
  const C* bias_row = load_row<C>(a, 3, 0, 0, N, buffer(6));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* residual_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* y_row = open_row<C>(a, 4, row, panel, buffer(2));
      C* residual_out_row = open_row<C>(a, 5, row, panel, buffer(3));
      C* t1_row = buffer(4);
      V sum_scaled_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_scaled_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V residual = part.load(residual_row + c);
          const V residual_out = x + residual;
          const V t1 = m_round_to(residual_out, a->operands[5].dtype);
          const V scaled = t1 * V(C(2.3283064365386963e-10));
          part.store(t1_row + c, t1);
          sum_scaled_block = part.sum(sum_scaled_block, scaled);
        });
        sum_scaled_lanes = sum_scaled_lanes + sum_scaled_block;
      }
      const C sum_scaled = hsum(sum_scaled_lanes);
      const C mean = sum_scaled / C(N) * C(4294967296.0);
      V sum_centred_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_centred_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V t2 = part.load(t1_row + c);
          const V centred = t2 - V(mean);
          sum_centred_block[chain] = part.sum(sum_centred_block[chain], centred);
          t1_block[chain] = part.sum(t1_block[chain], centred * centred);
        });
        sum_centred_lanes = sum_centred_lanes + (sum_centred_block[0] + sum_centred_block[1]);
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C sum_centred = hsum(sum_centred_lanes);
      const C t1 = hsum(t1_lanes);
      const C t2 = sum_centred / C(N);
      const C residue = m_where(m_lt(m_abs(t2), highest<C>()), t2, C(0.0));
      const C variance = m_fma(-residue, residue, t1 / C(N));
      const C rstd = m_rsqrt(eps + variance);
      const C t3 = -(residue * rstd);
      store_stat<C>(a, 6, row, rstd);
      store_stat<C>(a, 7, row, mean);
      store_stat<C>(a, 8, row, residue);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V weight = part.load(weight_row + c);
        const V t4 = part.load(t1_row + c);
        const V bias = part.load(bias_row + c);
        const V x = part.load(x_row + c);
        const V residual = part.load(residual_row + c);
        const V centred = t4 - V(mean);
        const V y = m_fma(centred, V(rstd), V(t3));
        const V y_ = m_fma(weight, y, bias);
        const V residual_out = x + residual;
        part.store(y_row + c, y_);
        part.store(residual_out_row + c, residual_out);
      });
      close_row<C>(a, 4, row, panel, y_row);
      close_row<C>(a, 5, row, panel, residual_out_row);
    }
    store_panel<C>(a, 4, panel, buffer(2));
    store_panel<C>(a, 5, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void add_layer_norm_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* grad_y_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_residual_out_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* residual_out_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 6, row, panel, buffer(3));
      const C rstd = load_stat<C>(a, 3, row);
      const C mean = load_stat<C>(a, 4, row);
      const C residue = load_stat<C>(a, 5, row);
      V sum_grad_y_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_grad_y_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V centred = residual_out - V(mean);
          sum_grad_y_block[chain] = part.sum(sum_grad_y_block[chain], grad_y);
          t1_block[chain] = part.sum(t1_block[chain], grad_y, V(rstd) * (centred - V(residue)));
        });
        sum_grad_y_lanes = sum_grad_y_lanes + (sum_grad_y_block[0] + sum_grad_y_block[1]);
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C sum_grad_y = hsum(sum_grad_y_lanes);
      const C t1 = hsum(t1_lanes);
      const C t2 = -(sum_grad_y * rstd) / C(N);
      const C t3 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V grad_residual_out = part.load(grad_residual_out_row + c);
        const V residual_out = part.load(residual_out_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V centred = residual_out - V(mean);
        part.store(grad_x_row + c, V(t2) + (grad_residual_out + m_fma(V(t3), V(rstd) * centred, grad_y * V(rstd))));
      });
      close_row<C>(a, 6, row, panel, grad_x_row);
    }
    store_panel<C>(a, 6, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void add_layer_norm_backward_from_y(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* grad_y_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* residual_out_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 5, row, panel, buffer(2));
      const C rstd = load_stat<C>(a, 2, row);
      const C mean = load_stat<C>(a, 3, row);
      const C residue = load_stat<C>(a, 4, row);
      V sum_grad_y_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_grad_y_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V centred = residual_out - V(mean);
          sum_grad_y_block[chain] = part.sum(sum_grad_y_block[chain], grad_y);
          t1_block[chain] = part.sum(t1_block[chain], grad_y, V(rstd) * (centred - V(residue)));
        });
        sum_grad_y_lanes = sum_grad_y_lanes + (sum_grad_y_block[0] + sum_grad_y_block[1]);
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C sum_grad_y = hsum(sum_grad_y_lanes);
      const C t1 = hsum(t1_lanes);
      const C t2 = -(sum_grad_y * rstd) / C(N);
      const C t3 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V residual_out = part.load(residual_out_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V centred = residual_out - V(mean);
        part.store(grad_x_row + c, V(t2) + m_fma(V(t3), V(rstd) * centred, grad_y * V(rstd)));
      });
      close_row<C>(a, 5, row, panel, grad_x_row);
    }
    store_panel<C>(a, 5, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void add_layer_norm_backward_from_residual_out(AVO_PARAMETERS) {
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
AVO_KERNEL void add_layer_norm_backward_bias_to_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  zero_partial<C>(a, chunk, 1, 0, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0) + c0;
        const C* grad_y_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V grad_y = part.load(grad_y_row + c);
          part.store(grad_bias_sum + c, part.sum(part.load(grad_bias_sum + c), grad_y));
        });
      }
    }
  }
}

template <class C>
AVO_KERNEL void add_layer_norm_backward_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  zero_partial<C>(a, chunk, 1, 0, 0, N);
  C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* grad_y_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_residual_out_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* residual_out_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 6, row, panel, buffer(3));
      const C rstd = load_stat<C>(a, 3, row);
      const C mean = load_stat<C>(a, 4, row);
      const C residue = load_stat<C>(a, 5, row);
      V sum_grad_y_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_grad_y_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V centred = residual_out - V(mean);
          sum_grad_y_block[chain] = part.sum(sum_grad_y_block[chain], grad_y);
          t1_block[chain] = part.sum(t1_block[chain], grad_y, V(rstd) * (centred - V(residue)));
        });
        sum_grad_y_lanes = sum_grad_y_lanes + (sum_grad_y_block[0] + sum_grad_y_block[1]);
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C sum_grad_y = hsum(sum_grad_y_lanes);
      const C t1 = hsum(t1_lanes);
      const C t2 = -(sum_grad_y * rstd) / C(N);
      const C t3 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V grad_residual_out = part.load(grad_residual_out_row + c);
        const V residual_out = part.load(residual_out_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V centred = residual_out - V(mean);
        part.store(grad_x_row + c, V(t2) + (grad_residual_out + m_fma(V(t3), V(rstd) * centred, grad_y * V(rstd))));
        part.store(grad_bias_sum + c, part.sum(part.load(grad_bias_sum + c), grad_y));
      });
      close_row<C>(a, 6, row, panel, grad_x_row);
    }
    store_panel<C>(a, 6, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void add_layer_norm_backward_bias_from_y(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  zero_partial<C>(a, chunk, 1, 0, 0, N);
  C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* grad_y_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* residual_out_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 5, row, panel, buffer(2));
      const C rstd = load_stat<C>(a, 2, row);
      const C mean = load_stat<C>(a, 3, row);
      const C residue = load_stat<C>(a, 4, row);
      V sum_grad_y_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_grad_y_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V centred = residual_out - V(mean);
          sum_grad_y_block[chain] = part.sum(sum_grad_y_block[chain], grad_y);
          t1_block[chain] = part.sum(t1_block[chain], grad_y, V(rstd) * (centred - V(residue)));
        });
        sum_grad_y_lanes = sum_grad_y_lanes + (sum_grad_y_block[0] + sum_grad_y_block[1]);
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C sum_grad_y = hsum(sum_grad_y_lanes);
      const C t1 = hsum(t1_lanes);
      const C t2 = -(sum_grad_y * rstd) / C(N);
      const C t3 = rstd * (-t1 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V residual_out = part.load(residual_out_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V centred = residual_out - V(mean);
        part.store(grad_x_row + c, V(t2) + m_fma(V(t3), V(rstd) * centred, grad_y * V(rstd)));
        part.store(grad_bias_sum + c, part.sum(part.load(grad_bias_sum + c), grad_y));
      });
      close_row<C>(a, 5, row, panel, grad_x_row);
    }
    store_panel<C>(a, 5, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void add_layer_norm_backward_weight_to_weight(AVO_PARAMETERS) {
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
        const C mean = load_stat<C>(a, 3, row);
        const C residue = load_stat<C>(a, 4, row);
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V centred = residual_out - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), grad_y, y));
        });
      }
    }
  }
}

template <class C>
AVO_KERNEL void add_layer_norm_backward_weight_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 3, 0, 0, N, buffer(4));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* grad_y_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_residual_out_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* residual_out_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 7, row, panel, buffer(3));
      const C rstd = load_stat<C>(a, 4, row);
      const C mean = load_stat<C>(a, 5, row);
      const C residue = load_stat<C>(a, 6, row);
      V t1_lanes(C(0));
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        V t2_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V weight = part.load(weight_row + c);
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V centred = residual_out - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          t1_block[chain] = part.sum(t1_block[chain], weight, grad_y);
          t2_block[chain] = part.sum(t2_block[chain], weight * grad_y, y);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
        t2_lanes = t2_lanes + (t2_block[0] + t2_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = -(t1 * rstd) / C(N);
      const C t4 = rstd * (-t2 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V grad_residual_out = part.load(grad_residual_out_row + c);
        const V residual_out = part.load(residual_out_row + c);
        const V weight = part.load(weight_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V centred = residual_out - V(mean);
        part.store(grad_x_row + c, V(t3) + (grad_residual_out + m_fma(V(t4), V(rstd) * centred, weight * grad_y * V(rstd))));
      });
      close_row<C>(a, 7, row, panel, grad_x_row);
    }
    store_panel<C>(a, 7, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void add_layer_norm_backward_weight(AVO_PARAMETERS) {
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
      const C* grad_y_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_residual_out_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* residual_out_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 7, row, panel, buffer(3));
      const C rstd = load_stat<C>(a, 4, row);
      const C mean = load_stat<C>(a, 5, row);
      const C residue = load_stat<C>(a, 6, row);
      V t1_lanes(C(0));
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        V t2_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V weight = part.load(weight_row + c);
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V centred = residual_out - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          t1_block[chain] = part.sum(t1_block[chain], weight, grad_y);
          t2_block[chain] = part.sum(t2_block[chain], weight * grad_y, y);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
        t2_lanes = t2_lanes + (t2_block[0] + t2_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = -(t1 * rstd) / C(N);
      const C t4 = rstd * (-t2 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V grad_residual_out = part.load(grad_residual_out_row + c);
        const V residual_out = part.load(residual_out_row + c);
        const V weight = part.load(weight_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V centred = residual_out - V(mean);
        const V y = V(rstd) * (centred - V(residue));
        part.store(grad_x_row + c, V(t3) + (grad_residual_out + m_fma(V(t4), V(rstd) * centred, weight * grad_y * V(rstd))));
        part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), grad_y, y));
      });
      close_row<C>(a, 7, row, panel, grad_x_row);
    }
    store_panel<C>(a, 7, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void add_layer_norm_backward_weight_from_y_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 2, 0, 0, N, buffer(3));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* grad_y_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* residual_out_row = load_row<C>(a, 1, row, panel, buffer(1));
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
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V centred = residual_out - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          t1_block[chain] = part.sum(t1_block[chain], weight, grad_y);
          t2_block[chain] = part.sum(t2_block[chain], weight * grad_y, y);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
        t2_lanes = t2_lanes + (t2_block[0] + t2_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = -(t1 * rstd) / C(N);
      const C t4 = rstd * (-t2 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V residual_out = part.load(residual_out_row + c);
        const V weight = part.load(weight_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V centred = residual_out - V(mean);
        part.store(grad_x_row + c, V(t3) + m_fma(V(t4), V(rstd) * centred, weight * grad_y * V(rstd)));
      });
      close_row<C>(a, 6, row, panel, grad_x_row);
    }
    store_panel<C>(a, 6, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void add_layer_norm_backward_weight_from_y(AVO_PARAMETERS) {
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
      const C* grad_y_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* residual_out_row = load_row<C>(a, 1, row, panel, buffer(1));
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
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V centred = residual_out - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          t1_block[chain] = part.sum(t1_block[chain], weight, grad_y);
          t2_block[chain] = part.sum(t2_block[chain], weight * grad_y, y);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
        t2_lanes = t2_lanes + (t2_block[0] + t2_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = -(t1 * rstd) / C(N);
      const C t4 = rstd * (-t2 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V residual_out = part.load(residual_out_row + c);
        const V weight = part.load(weight_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V centred = residual_out - V(mean);
        const V y = V(rstd) * (centred - V(residue));
        part.store(grad_x_row + c, V(t3) + m_fma(V(t4), V(rstd) * centred, weight * grad_y * V(rstd)));
        part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), grad_y, y));
      });
      close_row<C>(a, 6, row, panel, grad_x_row);
    }
    store_panel<C>(a, 6, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void add_layer_norm_backward_weight_bias_to_weight_bias(AVO_PARAMETERS) {
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
        const C* grad_y_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* residual_out_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        const C rstd = load_stat<C>(a, 2, row);
        const C mean = load_stat<C>(a, 3, row);
        const C residue = load_stat<C>(a, 4, row);
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V centred = residual_out - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), grad_y, y));
          part.store(grad_bias_sum + c, part.sum(part.load(grad_bias_sum + c), grad_y));
        });
      }
    }
  }
}

template <class C>
AVO_KERNEL void add_layer_norm_backward_weight_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C* weight_row = load_row<C>(a, 3, 0, 0, N, buffer(4));
  zero_partial<C>(a, chunk, 2, 0, 0, N);
  zero_partial<C>(a, chunk, 2, 1, 0, N);
  C* grad_weight_sum = partial_row<C>(a, chunk, 2, 0);
  C* grad_bias_sum = partial_row<C>(a, chunk, 2, 1);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* grad_y_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_residual_out_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* residual_out_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 7, row, panel, buffer(3));
      const C rstd = load_stat<C>(a, 4, row);
      const C mean = load_stat<C>(a, 5, row);
      const C residue = load_stat<C>(a, 6, row);
      V t1_lanes(C(0));
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        V t2_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V weight = part.load(weight_row + c);
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V centred = residual_out - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          t1_block[chain] = part.sum(t1_block[chain], weight, grad_y);
          t2_block[chain] = part.sum(t2_block[chain], weight * grad_y, y);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
        t2_lanes = t2_lanes + (t2_block[0] + t2_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = -(t1 * rstd) / C(N);
      const C t4 = rstd * (-t2 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V grad_residual_out = part.load(grad_residual_out_row + c);
        const V residual_out = part.load(residual_out_row + c);
        const V weight = part.load(weight_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V centred = residual_out - V(mean);
        const V y = V(rstd) * (centred - V(residue));
        part.store(grad_x_row + c, V(t3) + (grad_residual_out + m_fma(V(t4), V(rstd) * centred, weight * grad_y * V(rstd))));
        part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), grad_y, y));
        part.store(grad_bias_sum + c, part.sum(part.load(grad_bias_sum + c), grad_y));
      });
      close_row<C>(a, 7, row, panel, grad_x_row);
    }
    store_panel<C>(a, 7, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void add_layer_norm_backward_weight_bias_from_y(AVO_PARAMETERS) {
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
      const C* grad_y_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* residual_out_row = load_row<C>(a, 1, row, panel, buffer(1));
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
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V centred = residual_out - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          t1_block[chain] = part.sum(t1_block[chain], weight, grad_y);
          t2_block[chain] = part.sum(t2_block[chain], weight * grad_y, y);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
        t2_lanes = t2_lanes + (t2_block[0] + t2_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = -(t1 * rstd) / C(N);
      const C t4 = rstd * (-t2 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V residual_out = part.load(residual_out_row + c);
        const V weight = part.load(weight_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V centred = residual_out - V(mean);
        const V y = V(rstd) * (centred - V(residue));
        part.store(grad_x_row + c, V(t3) + m_fma(V(t4), V(rstd) * centred, weight * grad_y * V(rstd)));
        part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), grad_y, y));
        part.store(grad_bias_sum + c, part.sum(part.load(grad_bias_sum + c), grad_y));
      });
      close_row<C>(a, 6, row, panel, grad_x_row);
    }
    store_panel<C>(a, 6, panel, buffer(2));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_add_layer_norm[] = {
    {"add_layer_norm_forward", add_layer_norm_forward<float>, add_layer_norm_forward<double>},
    {"add_layer_norm_forward_bias", add_layer_norm_forward_bias<float>, add_layer_norm_forward_bias<double>},
    {"add_layer_norm_forward_weight", add_layer_norm_forward_weight<float>, add_layer_norm_forward_weight<double>},
    {"add_layer_norm_forward_weight_bias", add_layer_norm_forward_weight_bias<float>, add_layer_norm_forward_weight_bias<double>},
    {"add_layer_norm_backward", add_layer_norm_backward<float>, add_layer_norm_backward<double>},
    {"add_layer_norm_backward_from_y", add_layer_norm_backward_from_y<float>, add_layer_norm_backward_from_y<double>},
    {"add_layer_norm_backward_from_residual_out", add_layer_norm_backward_from_residual_out<float>, add_layer_norm_backward_from_residual_out<double>},
    {"add_layer_norm_backward_bias_to_bias", add_layer_norm_backward_bias_to_bias<float>, add_layer_norm_backward_bias_to_bias<double>},
    {"add_layer_norm_backward_bias", add_layer_norm_backward_bias<float>, add_layer_norm_backward_bias<double>},
    {"add_layer_norm_backward_bias_from_y", add_layer_norm_backward_bias_from_y<float>, add_layer_norm_backward_bias_from_y<double>},
    {"add_layer_norm_backward_weight_to_weight", add_layer_norm_backward_weight_to_weight<float>, add_layer_norm_backward_weight_to_weight<double>},
    {"add_layer_norm_backward_weight_to_x", add_layer_norm_backward_weight_to_x<float>, add_layer_norm_backward_weight_to_x<double>},
    {"add_layer_norm_backward_weight", add_layer_norm_backward_weight<float>, add_layer_norm_backward_weight<double>},
    {"add_layer_norm_backward_weight_from_y_to_x", add_layer_norm_backward_weight_from_y_to_x<float>, add_layer_norm_backward_weight_from_y_to_x<double>},
    {"add_layer_norm_backward_weight_from_y", add_layer_norm_backward_weight_from_y<float>, add_layer_norm_backward_weight_from_y<double>},
    {"add_layer_norm_backward_weight_bias_to_weight_bias", add_layer_norm_backward_weight_bias_to_weight_bias<float>, add_layer_norm_backward_weight_bias_to_weight_bias<double>},
    {"add_layer_norm_backward_weight_bias", add_layer_norm_backward_weight_bias<float>, add_layer_norm_backward_weight_bias<double>},
    {"add_layer_norm_backward_weight_bias_from_y", add_layer_norm_backward_weight_bias_from_y<float>, add_layer_norm_backward_weight_bias_from_y<double>},
};
AVO_HIDDEN extern const int kernels_add_layer_norm_count = 18;

} // namespace AVO_ISA_NAMESPACE
