// group_norm_silu: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/runs.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// y * sigmoid(y), y = group_norm(x)
// Source: Ho, Jain and Abbeel, Denoising Diffusion Probabilistic Models, arXiv:2006.11239, appendix B, and
//   its published code
template <class C>
AVO_KERNEL void group_norm_silu_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      RowIn<C> x_in(a, 0, row, panel, buffer(0));
      RowOut<C> y_out(a, 1, row, panel, buffer(1));
      V sum_scaled_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        const C* x_row = x_in.block(c0, block_end(c0, N));
        V sum_scaled_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          sum_scaled_block[chain] = part.sum(sum_scaled_block[chain], x, V(C(2.3283064365386963e-10)));
        });
        sum_scaled_lanes = sum_scaled_lanes + (sum_scaled_block[0] + sum_scaled_block[1]);
      }
      const C sum_scaled = hsum(sum_scaled_lanes);
      const C mean = sum_scaled / C(N) * C(4294967296.0);
      V sum_centred_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        const C* x_row = x_in.block(c0, block_end(c0, N));
        V sum_centred_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V centred = x - V(mean);
          sum_centred_block[chain] = part.sum(sum_centred_block[chain], centred);
          t1_block[chain] = part.sum(t1_block[chain], centred, centred);
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
      store_stat<C>(a, 2, row, rstd);
      store_stat<C>(a, 3, row, mean);
      store_stat<C>(a, 4, row, residue);
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        const C* x_row = x_in.block(c0, block_end(c0, N));
        C* y_row = y_out.block();
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V centred = x - V(mean);
          const V y = m_fma(centred, V(rstd), V(t3));
          part.store(y_row + c, m_x_sigmoid(y));
        });
        y_out.close_block(block_end(c0, N));
      }
      y_out.close(panel);
    }
    store_panel<C>(a, 1, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void group_norm_silu_forward_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      RowIn<C> x_in(a, 0, row, panel, buffer(0));
      RowOut<C> y_out(a, 2, row, panel, buffer(1));
      const C* bias_row = load_row<C>(a, 1, row, 0, a->runs, buffer(2));
      V sum_scaled_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        const C* x_row = x_in.block(c0, block_end(c0, N));
        V sum_scaled_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          sum_scaled_block[chain] = part.sum(sum_scaled_block[chain], x, V(C(2.3283064365386963e-10)));
        });
        sum_scaled_lanes = sum_scaled_lanes + (sum_scaled_block[0] + sum_scaled_block[1]);
      }
      const C sum_scaled = hsum(sum_scaled_lanes);
      const C mean = sum_scaled / C(N) * C(4294967296.0);
      V sum_centred_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        const C* x_row = x_in.block(c0, block_end(c0, N));
        V sum_centred_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V centred = x - V(mean);
          sum_centred_block[chain] = part.sum(sum_centred_block[chain], centred);
          t1_block[chain] = part.sum(t1_block[chain], centred, centred);
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
      store_stat<C>(a, 3, row, rstd);
      store_stat<C>(a, 4, row, mean);
      store_stat<C>(a, 5, row, residue);
      for (RunBlocks block(a); block.begin < N; block.advance()) {
        const V bias(bias_row[block.run]);
        const C* x_row = x_in.block(block.begin, block.end);
        C* y_row = y_out.block();
        sweep<C>(block.begin, block.end, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V centred = x - V(mean);
          const V y = m_fma(centred, V(rstd), V(t3));
          const V y_ = bias + y;
          part.store(y_row + c, m_x_sigmoid(y_));
        });
        y_out.close_block(block.end);
      }
      y_out.close(panel);
    }
    store_panel<C>(a, 2, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void group_norm_silu_forward_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      RowIn<C> x_in(a, 0, row, panel, buffer(0));
      RowOut<C> y_out(a, 2, row, panel, buffer(1));
      const C* weight_row = load_row<C>(a, 1, row, 0, a->runs, buffer(2));
      V sum_scaled_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        const C* x_row = x_in.block(c0, block_end(c0, N));
        V sum_scaled_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          sum_scaled_block[chain] = part.sum(sum_scaled_block[chain], x, V(C(2.3283064365386963e-10)));
        });
        sum_scaled_lanes = sum_scaled_lanes + (sum_scaled_block[0] + sum_scaled_block[1]);
      }
      const C sum_scaled = hsum(sum_scaled_lanes);
      const C mean = sum_scaled / C(N) * C(4294967296.0);
      V sum_centred_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        const C* x_row = x_in.block(c0, block_end(c0, N));
        V sum_centred_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V centred = x - V(mean);
          sum_centred_block[chain] = part.sum(sum_centred_block[chain], centred);
          t1_block[chain] = part.sum(t1_block[chain], centred, centred);
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
      store_stat<C>(a, 3, row, rstd);
      store_stat<C>(a, 4, row, mean);
      store_stat<C>(a, 5, row, residue);
      for (RunBlocks block(a); block.begin < N; block.advance()) {
        const V weight(weight_row[block.run]);
        const C* x_row = x_in.block(block.begin, block.end);
        C* y_row = y_out.block();
        sweep<C>(block.begin, block.end, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V centred = x - V(mean);
          const V y = m_fma(centred, V(rstd), V(t3));
          const V y_ = weight * y;
          part.store(y_row + c, m_x_sigmoid(y_));
        });
        y_out.close_block(block.end);
      }
      y_out.close(panel);
    }
    store_panel<C>(a, 2, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void group_norm_silu_forward_weight_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      RowIn<C> x_in(a, 0, row, panel, buffer(0));
      RowOut<C> y_out(a, 3, row, panel, buffer(1));
      const C* weight_row = load_row<C>(a, 1, row, 0, a->runs, buffer(2));
      const C* bias_row = load_row<C>(a, 2, row, 0, a->runs, buffer(3));
      V sum_scaled_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        const C* x_row = x_in.block(c0, block_end(c0, N));
        V sum_scaled_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          sum_scaled_block[chain] = part.sum(sum_scaled_block[chain], x, V(C(2.3283064365386963e-10)));
        });
        sum_scaled_lanes = sum_scaled_lanes + (sum_scaled_block[0] + sum_scaled_block[1]);
      }
      const C sum_scaled = hsum(sum_scaled_lanes);
      const C mean = sum_scaled / C(N) * C(4294967296.0);
      V sum_centred_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        const C* x_row = x_in.block(c0, block_end(c0, N));
        V sum_centred_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V centred = x - V(mean);
          sum_centred_block[chain] = part.sum(sum_centred_block[chain], centred);
          t1_block[chain] = part.sum(t1_block[chain], centred, centred);
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
      for (RunBlocks block(a); block.begin < N; block.advance()) {
        const V weight(weight_row[block.run]);
        const V bias(bias_row[block.run]);
        const C* x_row = x_in.block(block.begin, block.end);
        C* y_row = y_out.block();
        sweep<C>(block.begin, block.end, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V centred = x - V(mean);
          const V y = m_fma(centred, V(rstd), V(t3));
          const V y_ = m_fma(weight, y, bias);
          part.store(y_row + c, m_x_sigmoid(y_));
        });
        y_out.close_block(block.end);
      }
      y_out.close(panel);
    }
    store_panel<C>(a, 3, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void group_norm_silu_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      RowIn<C> x_in(a, 0, row, panel, buffer(0));
      RowIn<C> grad_in(a, 1, row, panel, buffer(1));
      RowOut<C> grad_x_out(a, 5, row, panel, buffer(2));
      C* t1_row = buffer(3);
      const C rstd = load_stat<C>(a, 2, row);
      const C mean = load_stat<C>(a, 3, row);
      const C residue = load_stat<C>(a, 4, row);
      const C t1 = -rstd;
      V t2_lanes(C(0));
      V t3_lanes(C(0));
      V t4_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        const C* x_row = x_in.block(c0, block_end(c0, N));
        const C* grad_row = grad_in.block(c0, block_end(c0, N));
        V t2_block = V(C(0));
        V t3_block = V(C(0));
        V t4_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V grad = part.load(grad_row + c);
          const V centred = x - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          const V t5 = m_sigmoid(y);
          const V t6 = t5 * grad;
          const V t7 = t5 * m_sigmoid_rest(y, t5) * (y * grad);
          const V t8 = t6 + t7;
          part.store(t1_row + c, t8);
          t2_block = part.sum(t2_block, t6);
          t3_block = part.sum(t3_block, t7);
          t4_block = part.sum(t4_block, y * t8);
        });
        t2_lanes = t2_lanes + t2_block;
        t3_lanes = t3_lanes + t3_block;
        t4_lanes = t4_lanes + t4_block;
      }
      const C t2 = hsum(t2_lanes);
      const C t3 = hsum(t3_lanes);
      const C t4 = hsum(t4_lanes);
      const C t5 = m_fma(t1, t2, -(rstd * t3)) / C(N);
      const C t6 = rstd * (-t4 / C(N));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        const C* x_row = x_in.block(c0, block_end(c0, N));
        C* grad_x_row = grad_x_out.block();
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V t7 = part.load(t1_row + c);
          const V centred = x - V(mean);
          part.store(grad_x_row + c, V(t5) + m_fma(V(t6), V(rstd) * centred, V(rstd) * t7));
        });
        grad_x_out.close_block(block_end(c0, N));
      }
      grad_x_out.close(panel);
    }
    store_panel<C>(a, 5, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void group_norm_silu_backward_bias_to_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  zero_partial<C>(a, chunk, 1, 0, 0, a->sum_columns);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      RowIn<C> x_in(a, 0, row, panel, buffer(0));
      RowIn<C> grad_in(a, 1, row, panel, buffer(1));
      const C rstd = load_stat<C>(a, 3, row);
      const C mean = load_stat<C>(a, 4, row);
      const C residue = load_stat<C>(a, 5, row);
      const C* bias_row = load_row<C>(a, 2, row, 0, a->runs, buffer(2));
      C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0) + row % a->groups * a->runs;
      for (RunBlocks block(a); block.begin < N; block.advance()) {
        const V bias(bias_row[block.run]);
        const C* x_row = x_in.block(block.begin, block.end);
        const C* grad_row = grad_in.block(block.begin, block.end);
        V grad_bias_lanes(C(0));
        sweep<C>(block.begin, block.end, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V grad = part.load(grad_row + c);
          const V centred = x - V(mean);
          const V y = m_fma(V(rstd), centred - V(residue), bias);
          const V t1 = m_sigmoid(y);
          grad_bias_lanes = part.sum(grad_bias_lanes, m_fma(t1 * m_sigmoid_rest(y, t1), grad * y, grad * t1));
        });
        grad_bias_sum[block.run] += hsum(grad_bias_lanes);
      }
    }
  }
}

template <class C>
AVO_KERNEL void group_norm_silu_backward_bias_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      RowIn<C> x_in(a, 0, row, panel, buffer(0));
      RowIn<C> grad_in(a, 1, row, panel, buffer(1));
      RowOut<C> grad_x_out(a, 6, row, panel, buffer(2));
      C* t1_row = buffer(3);
      const C rstd = load_stat<C>(a, 3, row);
      const C mean = load_stat<C>(a, 4, row);
      const C residue = load_stat<C>(a, 5, row);
      const C* bias_row = load_row<C>(a, 2, row, 0, a->runs, buffer(4));
      const C t1 = -rstd;
      V t2_lanes(C(0));
      V t3_lanes(C(0));
      V t4_lanes(C(0));
      for (RunBlocks block(a); block.begin < N; block.advance()) {
        const V bias(bias_row[block.run]);
        const C* x_row = x_in.block(block.begin, block.end);
        const C* grad_row = grad_in.block(block.begin, block.end);
        V t2_block = V(C(0));
        V t3_block = V(C(0));
        V t4_block = V(C(0));
        sweep<C>(block.begin, block.end, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V grad = part.load(grad_row + c);
          const V centred = x - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          const V y_ = bias + y;
          const V t5 = m_sigmoid(y_);
          const V t6 = t5 * grad;
          const V t7 = t5 * m_sigmoid_rest(y_, t5) * (y_ * grad);
          const V t8 = t6 + t7;
          part.store(t1_row + c, t8);
          t2_block = part.sum(t2_block, t6);
          t3_block = part.sum(t3_block, t7);
          t4_block = part.sum(t4_block, y * t8);
        });
        t2_lanes = t2_lanes + t2_block;
        t3_lanes = t3_lanes + t3_block;
        t4_lanes = t4_lanes + t4_block;
      }
      const C t2 = hsum(t2_lanes);
      const C t3 = hsum(t3_lanes);
      const C t4 = hsum(t4_lanes);
      const C t5 = m_fma(t1, t2, -(rstd * t3)) / C(N);
      const C t6 = rstd * (-t4 / C(N));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        const C* x_row = x_in.block(c0, block_end(c0, N));
        C* grad_x_row = grad_x_out.block();
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V t7 = part.load(t1_row + c);
          const V centred = x - V(mean);
          part.store(grad_x_row + c, V(t5) + m_fma(V(t6), V(rstd) * centred, V(rstd) * t7));
        });
        grad_x_out.close_block(block_end(c0, N));
      }
      grad_x_out.close(panel);
    }
    store_panel<C>(a, 6, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void group_norm_silu_backward_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  zero_partial<C>(a, chunk, 1, 0, 0, a->sum_columns);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      RowIn<C> x_in(a, 0, row, panel, buffer(0));
      RowIn<C> grad_in(a, 1, row, panel, buffer(1));
      RowOut<C> grad_x_out(a, 6, row, panel, buffer(2));
      C* t1_row = buffer(3);
      const C rstd = load_stat<C>(a, 3, row);
      const C mean = load_stat<C>(a, 4, row);
      const C residue = load_stat<C>(a, 5, row);
      const C* bias_row = load_row<C>(a, 2, row, 0, a->runs, buffer(4));
      C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0) + row % a->groups * a->runs;
      const C t1 = -rstd;
      V t2_lanes(C(0));
      V t3_lanes(C(0));
      V t4_lanes(C(0));
      for (RunBlocks block(a); block.begin < N; block.advance()) {
        const V bias(bias_row[block.run]);
        const C* x_row = x_in.block(block.begin, block.end);
        const C* grad_row = grad_in.block(block.begin, block.end);
        V t2_block = V(C(0));
        V t3_block = V(C(0));
        V t4_block = V(C(0));
        sweep<C>(block.begin, block.end, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V grad = part.load(grad_row + c);
          const V centred = x - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          const V y_ = bias + y;
          const V t5 = m_sigmoid(y_);
          const V t6 = t5 * grad;
          const V t7 = t5 * m_sigmoid_rest(y_, t5) * (y_ * grad);
          const V t8 = t6 + t7;
          part.store(t1_row + c, t8);
          t2_block = part.sum(t2_block, t6);
          t3_block = part.sum(t3_block, t7);
          t4_block = part.sum(t4_block, y * t8);
        });
        t2_lanes = t2_lanes + t2_block;
        t3_lanes = t3_lanes + t3_block;
        t4_lanes = t4_lanes + t4_block;
      }
      const C t2 = hsum(t2_lanes);
      const C t3 = hsum(t3_lanes);
      const C t4 = hsum(t4_lanes);
      const C t5 = m_fma(t1, t2, -(rstd * t3)) / C(N);
      const C t6 = rstd * (-t4 / C(N));
      for (RunBlocks block(a); block.begin < N; block.advance()) {
        const C* x_row = x_in.block(block.begin, block.end);
        C* grad_x_row = grad_x_out.block();
        V grad_bias_lanes(C(0));
        sweep<C>(block.begin, block.end, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V t7 = part.load(t1_row + c);
          const V centred = x - V(mean);
          part.store(grad_x_row + c, V(t5) + m_fma(V(t6), V(rstd) * centred, V(rstd) * t7));
          grad_bias_lanes = part.sum(grad_bias_lanes, t7);
        });
        grad_bias_sum[block.run] += hsum(grad_bias_lanes);
        grad_x_out.close_block(block.end);
      }
      grad_x_out.close(panel);
    }
    store_panel<C>(a, 6, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void group_norm_silu_backward_weight_to_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  zero_partial<C>(a, chunk, 1, 0, 0, a->sum_columns);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      RowIn<C> x_in(a, 0, row, panel, buffer(0));
      RowIn<C> grad_in(a, 1, row, panel, buffer(1));
      const C rstd = load_stat<C>(a, 3, row);
      const C mean = load_stat<C>(a, 4, row);
      const C residue = load_stat<C>(a, 5, row);
      const C* weight_row = load_row<C>(a, 2, row, 0, a->runs, buffer(2));
      C* grad_weight_sum = partial_row<C>(a, chunk, 1, 0) + row % a->groups * a->runs;
      for (RunBlocks block(a); block.begin < N; block.advance()) {
        const V weight(weight_row[block.run]);
        const C* x_row = x_in.block(block.begin, block.end);
        const C* grad_row = grad_in.block(block.begin, block.end);
        V grad_weight_lanes(C(0));
        sweep<C>(block.begin, block.end, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V grad = part.load(grad_row + c);
          const V centred = x - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          const V y_ = weight * y;
          const V t1 = m_sigmoid(y_);
          grad_weight_lanes = part.sum(grad_weight_lanes, y * m_fma(t1 * m_sigmoid_rest(y_, t1), y_ * grad, t1 * grad));
        });
        grad_weight_sum[block.run] += hsum(grad_weight_lanes);
      }
    }
  }
}

template <class C>
AVO_KERNEL void group_norm_silu_backward_weight_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      RowIn<C> x_in(a, 0, row, panel, buffer(0));
      RowIn<C> grad_in(a, 1, row, panel, buffer(1));
      RowOut<C> grad_x_out(a, 6, row, panel, buffer(2));
      C* t1_row = buffer(3);
      const C rstd = load_stat<C>(a, 3, row);
      const C mean = load_stat<C>(a, 4, row);
      const C residue = load_stat<C>(a, 5, row);
      const C* weight_row = load_row<C>(a, 2, row, 0, a->runs, buffer(4));
      V t1_lanes(C(0));
      V t2_lanes(C(0));
      for (RunBlocks block(a); block.begin < N; block.advance()) {
        const V weight(weight_row[block.run]);
        const C* x_row = x_in.block(block.begin, block.end);
        const C* grad_row = grad_in.block(block.begin, block.end);
        V t1_block = V(C(0));
        V t2_block = V(C(0));
        sweep<C>(block.begin, block.end, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V grad = part.load(grad_row + c);
          const V centred = x - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          const V y_ = weight * y;
          const V t3 = m_sigmoid(y_);
          const V t4 = weight * m_fma(t3 * m_sigmoid_rest(y_, t3), y_ * grad, t3 * grad);
          part.store(t1_row + c, t4);
          t1_block = part.sum(t1_block, t4);
          t2_block = part.sum(t2_block, y * t4);
        });
        t1_lanes = t1_lanes + t1_block;
        t2_lanes = t2_lanes + t2_block;
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = -(rstd * t1) / C(N);
      const C t4 = rstd * (-t2 / C(N));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        const C* x_row = x_in.block(c0, block_end(c0, N));
        C* grad_x_row = grad_x_out.block();
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V t5 = part.load(t1_row + c);
          const V centred = x - V(mean);
          part.store(grad_x_row + c, V(t3) + m_fma(V(rstd) * centred, V(t4), V(rstd) * t5));
        });
        grad_x_out.close_block(block_end(c0, N));
      }
      grad_x_out.close(panel);
    }
    store_panel<C>(a, 6, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void group_norm_silu_backward_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  zero_partial<C>(a, chunk, 1, 0, 0, a->sum_columns);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      RowIn<C> x_in(a, 0, row, panel, buffer(0));
      RowIn<C> grad_in(a, 1, row, panel, buffer(1));
      RowOut<C> grad_x_out(a, 6, row, panel, buffer(2));
      C* t1_row = buffer(3);
      const C rstd = load_stat<C>(a, 3, row);
      const C mean = load_stat<C>(a, 4, row);
      const C residue = load_stat<C>(a, 5, row);
      const C* weight_row = load_row<C>(a, 2, row, 0, a->runs, buffer(4));
      C* grad_weight_sum = partial_row<C>(a, chunk, 1, 0) + row % a->groups * a->runs;
      V t1_lanes(C(0));
      V t2_lanes(C(0));
      for (RunBlocks block(a); block.begin < N; block.advance()) {
        const V weight(weight_row[block.run]);
        const C* x_row = x_in.block(block.begin, block.end);
        const C* grad_row = grad_in.block(block.begin, block.end);
        V t1_block = V(C(0));
        V t2_block = V(C(0));
        sweep<C>(block.begin, block.end, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V grad = part.load(grad_row + c);
          const V centred = x - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          const V y_ = weight * y;
          const V t3 = m_sigmoid(y_);
          const V t4 = m_fma(t3 * m_sigmoid_rest(y_, t3), y_ * grad, t3 * grad);
          const V t5 = weight * t4;
          part.store(t1_row + c, t4);
          t1_block = part.sum(t1_block, t5);
          t2_block = part.sum(t2_block, y * t5);
        });
        t1_lanes = t1_lanes + t1_block;
        t2_lanes = t2_lanes + t2_block;
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = -(rstd * t1) / C(N);
      const C t4 = rstd * (-t2 / C(N));
      for (RunBlocks block(a); block.begin < N; block.advance()) {
        const V weight(weight_row[block.run]);
        const C* x_row = x_in.block(block.begin, block.end);
        C* grad_x_row = grad_x_out.block();
        V grad_weight_lanes(C(0));
        sweep<C>(block.begin, block.end, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V t5 = part.load(t1_row + c);
          const V centred = x - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          part.store(grad_x_row + c, V(t3) + m_fma(V(rstd) * centred, V(t4), V(rstd) * (weight * t5)));
          grad_weight_lanes = part.sum(grad_weight_lanes, y * t5);
        });
        grad_weight_sum[block.run] += hsum(grad_weight_lanes);
        grad_x_out.close_block(block.end);
      }
      grad_x_out.close(panel);
    }
    store_panel<C>(a, 6, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void group_norm_silu_backward_weight_bias_to_weight_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  zero_partial<C>(a, chunk, 2, 0, 0, a->sum_columns);
  zero_partial<C>(a, chunk, 2, 1, 0, a->sum_columns);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      RowIn<C> x_in(a, 0, row, panel, buffer(0));
      RowIn<C> grad_in(a, 1, row, panel, buffer(1));
      const C rstd = load_stat<C>(a, 4, row);
      const C mean = load_stat<C>(a, 5, row);
      const C residue = load_stat<C>(a, 6, row);
      const C* weight_row = load_row<C>(a, 2, row, 0, a->runs, buffer(2));
      const C* bias_row = load_row<C>(a, 3, row, 0, a->runs, buffer(3));
      C* grad_weight_sum = partial_row<C>(a, chunk, 2, 0) + row % a->groups * a->runs;
      C* grad_bias_sum = partial_row<C>(a, chunk, 2, 1) + row % a->groups * a->runs;
      for (RunBlocks block(a); block.begin < N; block.advance()) {
        const V weight(weight_row[block.run]);
        const V bias(bias_row[block.run]);
        const C* x_row = x_in.block(block.begin, block.end);
        const C* grad_row = grad_in.block(block.begin, block.end);
        V grad_weight_lanes(C(0));
        V grad_bias_lanes(C(0));
        sweep<C>(block.begin, block.end, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V grad = part.load(grad_row + c);
          const V centred = x - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          const V y_ = m_fma(weight, y, bias);
          const V t1 = m_sigmoid(y_);
          const V t2 = m_fma(t1 * m_sigmoid_rest(y_, t1), grad * y_, grad * t1);
          grad_weight_lanes = part.sum(grad_weight_lanes, y * t2);
          grad_bias_lanes = part.sum(grad_bias_lanes, t2);
        });
        grad_weight_sum[block.run] += hsum(grad_weight_lanes);
        grad_bias_sum[block.run] += hsum(grad_bias_lanes);
      }
    }
  }
}

template <class C>
AVO_KERNEL void group_norm_silu_backward_weight_bias_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      RowIn<C> x_in(a, 0, row, panel, buffer(0));
      RowIn<C> grad_in(a, 1, row, panel, buffer(1));
      RowOut<C> grad_x_out(a, 7, row, panel, buffer(2));
      C* t1_row = buffer(3);
      const C rstd = load_stat<C>(a, 4, row);
      const C mean = load_stat<C>(a, 5, row);
      const C residue = load_stat<C>(a, 6, row);
      const C* weight_row = load_row<C>(a, 2, row, 0, a->runs, buffer(4));
      const C* bias_row = load_row<C>(a, 3, row, 0, a->runs, buffer(5));
      V t1_lanes(C(0));
      V t2_lanes(C(0));
      for (RunBlocks block(a); block.begin < N; block.advance()) {
        const V weight(weight_row[block.run]);
        const V bias(bias_row[block.run]);
        const C* x_row = x_in.block(block.begin, block.end);
        const C* grad_row = grad_in.block(block.begin, block.end);
        V t1_block = V(C(0));
        V t2_block = V(C(0));
        sweep<C>(block.begin, block.end, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V grad = part.load(grad_row + c);
          const V centred = x - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          const V y_ = m_fma(weight, y, bias);
          const V t3 = m_sigmoid(y_);
          const V t4 = weight * m_fma(t3 * m_sigmoid_rest(y_, t3), grad * y_, grad * t3);
          part.store(t1_row + c, t4);
          t1_block = part.sum(t1_block, t4);
          t2_block = part.sum(t2_block, y * t4);
        });
        t1_lanes = t1_lanes + t1_block;
        t2_lanes = t2_lanes + t2_block;
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = -(rstd * t1) / C(N);
      const C t4 = rstd * (-t2 / C(N));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        const C* x_row = x_in.block(c0, block_end(c0, N));
        C* grad_x_row = grad_x_out.block();
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V t5 = part.load(t1_row + c);
          const V centred = x - V(mean);
          part.store(grad_x_row + c, V(t3) + m_fma(V(rstd) * centred, V(t4), V(rstd) * t5));
        });
        grad_x_out.close_block(block_end(c0, N));
      }
      grad_x_out.close(panel);
    }
    store_panel<C>(a, 7, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void group_norm_silu_backward_weight_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  zero_partial<C>(a, chunk, 2, 0, 0, a->sum_columns);
  zero_partial<C>(a, chunk, 2, 1, 0, a->sum_columns);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      RowIn<C> x_in(a, 0, row, panel, buffer(0));
      RowIn<C> grad_in(a, 1, row, panel, buffer(1));
      RowOut<C> grad_x_out(a, 7, row, panel, buffer(2));
      C* t1_row = buffer(3);
      const C rstd = load_stat<C>(a, 4, row);
      const C mean = load_stat<C>(a, 5, row);
      const C residue = load_stat<C>(a, 6, row);
      const C* weight_row = load_row<C>(a, 2, row, 0, a->runs, buffer(4));
      const C* bias_row = load_row<C>(a, 3, row, 0, a->runs, buffer(5));
      C* grad_weight_sum = partial_row<C>(a, chunk, 2, 0) + row % a->groups * a->runs;
      C* grad_bias_sum = partial_row<C>(a, chunk, 2, 1) + row % a->groups * a->runs;
      V t1_lanes(C(0));
      V t2_lanes(C(0));
      for (RunBlocks block(a); block.begin < N; block.advance()) {
        const V weight(weight_row[block.run]);
        const V bias(bias_row[block.run]);
        const C* x_row = x_in.block(block.begin, block.end);
        const C* grad_row = grad_in.block(block.begin, block.end);
        V t1_block = V(C(0));
        V t2_block = V(C(0));
        sweep<C>(block.begin, block.end, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V grad = part.load(grad_row + c);
          const V centred = x - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          const V y_ = m_fma(weight, y, bias);
          const V t3 = m_sigmoid(y_);
          const V t4 = m_fma(t3 * m_sigmoid_rest(y_, t3), grad * y_, grad * t3);
          const V t5 = weight * t4;
          part.store(t1_row + c, t4);
          t1_block = part.sum(t1_block, t5);
          t2_block = part.sum(t2_block, y * t5);
        });
        t1_lanes = t1_lanes + t1_block;
        t2_lanes = t2_lanes + t2_block;
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = -(rstd * t1) / C(N);
      const C t4 = rstd * (-t2 / C(N));
      for (RunBlocks block(a); block.begin < N; block.advance()) {
        const V weight(weight_row[block.run]);
        const C* x_row = x_in.block(block.begin, block.end);
        C* grad_x_row = grad_x_out.block();
        V grad_weight_lanes(C(0));
        V grad_bias_lanes(C(0));
        sweep<C>(block.begin, block.end, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V t5 = part.load(t1_row + c);
          const V centred = x - V(mean);
          const V y = V(rstd) * (centred - V(residue));
          part.store(grad_x_row + c, V(t3) + m_fma(V(rstd) * centred, V(t4), V(rstd) * (weight * t5)));
          grad_weight_lanes = part.sum(grad_weight_lanes, y * t5);
          grad_bias_lanes = part.sum(grad_bias_lanes, t5);
        });
        grad_weight_sum[block.run] += hsum(grad_weight_lanes);
        grad_bias_sum[block.run] += hsum(grad_bias_lanes);
        grad_x_out.close_block(block.end);
      }
      grad_x_out.close(panel);
    }
    store_panel<C>(a, 7, panel, buffer(2));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_group_norm_silu[] = {
    {"group_norm_silu_forward", group_norm_silu_forward<float>, group_norm_silu_forward<double>},
    {"group_norm_silu_forward_bias", group_norm_silu_forward_bias<float>, group_norm_silu_forward_bias<double>},
    {"group_norm_silu_forward_weight", group_norm_silu_forward_weight<float>, group_norm_silu_forward_weight<double>},
    {"group_norm_silu_forward_weight_bias", group_norm_silu_forward_weight_bias<float>, group_norm_silu_forward_weight_bias<double>},
    {"group_norm_silu_backward", group_norm_silu_backward<float>, group_norm_silu_backward<double>},
    {"group_norm_silu_backward_bias_to_bias", group_norm_silu_backward_bias_to_bias<float>, group_norm_silu_backward_bias_to_bias<double>},
    {"group_norm_silu_backward_bias_to_x", group_norm_silu_backward_bias_to_x<float>, group_norm_silu_backward_bias_to_x<double>},
    {"group_norm_silu_backward_bias", group_norm_silu_backward_bias<float>, group_norm_silu_backward_bias<double>},
    {"group_norm_silu_backward_weight_to_weight", group_norm_silu_backward_weight_to_weight<float>, group_norm_silu_backward_weight_to_weight<double>},
    {"group_norm_silu_backward_weight_to_x", group_norm_silu_backward_weight_to_x<float>, group_norm_silu_backward_weight_to_x<double>},
    {"group_norm_silu_backward_weight", group_norm_silu_backward_weight<float>, group_norm_silu_backward_weight<double>},
    {"group_norm_silu_backward_weight_bias_to_weight_bias", group_norm_silu_backward_weight_bias_to_weight_bias<float>, group_norm_silu_backward_weight_bias_to_weight_bias<double>},
    {"group_norm_silu_backward_weight_bias_to_x", group_norm_silu_backward_weight_bias_to_x<float>, group_norm_silu_backward_weight_bias_to_x<double>},
    {"group_norm_silu_backward_weight_bias", group_norm_silu_backward_weight_bias<float>, group_norm_silu_backward_weight_bias<double>},
};
AVO_HIDDEN extern const int kernels_group_norm_silu_count = 14;

} // namespace AVO_ISA_NAMESPACE
