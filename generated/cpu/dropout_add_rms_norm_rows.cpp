// dropout_add_rms_norm_rows: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// residual_out = residual + dropout(x); y = rms_norm(residual_out); dropout(x) = x / (1 - p) where
//   Philox(seed of the row, column) >= p, else 0
// Source: Srivastava et al., Dropout, JMLR 15 (2014), 1929-1958; Salmon et al., Parallel random numbers: as
//   easy as 1, 2, 3, SC 2011 (Philox4x32-10); Zhang and Sennrich, Root Mean Square Layer Normalization,
//   arXiv:1910.07467
template <class C>
AVO_KERNEL void dropout_add_rms_norm_rows_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C p_ = C(a->scalars[0]);
  const C eps = C(a->scalars[1]);
  const C* weight_row = load_row<C>(a, 2, 0, 0, N, buffer(6));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* residual_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* y_row = open_row<C>(a, 4, row, panel, buffer(2));
      C* residual_out_row = open_row<C>(a, 5, row, panel, buffer(3));
      C* residual_out_row_ = buffer(4);
      C* t1_row = buffer(5);
      const int64_t seed = load_whole_number(a, 3, row);
      const C t1 = C(1.0) / (C(1.0) - p_);
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t2_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V residual = part.load(residual_row + c);
          const V residual_out = m_fma(x, m_where(m_ge(m_uniform<C>(seed, c), V(p_)), V(t1), V(C(0.0))), residual);
          const V t3 = m_round_to(residual_out, a->operands[5].dtype);
          part.store(residual_out_row_ + c, residual_out);
          part.store(t1_row + c, t3);
          t2_block = part.sum(t2_block, t3 * t3);
        });
        t2_lanes = t2_lanes + t2_block;
      }
      const C t2 = hsum(t2_lanes);
      const C rstd = m_rsqrt(eps + t2 / C(N));
      store_stat<C>(a, 6, row, rstd);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V weight = part.load(weight_row + c);
        const V t3 = part.load(t1_row + c);
        const V residual_out = part.load(residual_out_row_ + c);
        const V y = t3 * V(rstd);
        const V y_ = weight * y;
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
AVO_KERNEL void dropout_add_rms_norm_rows_backward_to_weight(AVO_PARAMETERS) {
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
AVO_KERNEL void dropout_add_rms_norm_rows_backward_to_x_residual(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C p_ = C(a->scalars[0]);
  const C* weight_row = load_row<C>(a, 3, 0, 0, N, buffer(5));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* residual_out_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_y_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* grad_residual_out_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 6, row, panel, buffer(3));
      C* grad_residual_row = open_row<C>(a, 7, row, panel, buffer(4));
      const int64_t seed = load_whole_number(a, 4, row);
      const C rstd = load_stat<C>(a, 5, row);
      const C t1 = C(1.0) / (C(1.0) - p_);
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t2_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V weight = part.load(weight_row + c);
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V y = V(rstd) * residual_out;
          t2_block[chain] = part.sum(t2_block[chain], weight * grad_y, y);
        });
        t2_lanes = t2_lanes + (t2_block[0] + t2_block[1]);
      }
      const C t2 = hsum(t2_lanes);
      const C t3 = rstd * (-t2 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V residual_out = part.load(residual_out_row + c);
        const V weight = part.load(weight_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V grad_residual_out = part.load(grad_residual_out_row + c);
        const V y = V(rstd) * residual_out;
        const V t4 = m_fma(y, V(t3), m_fma(weight * grad_y, V(rstd), grad_residual_out));
        part.store(grad_x_row + c, m_where(m_ge(m_uniform<C>(seed, c), V(p_)), V(t1), V(C(0.0))) * t4);
        part.store(grad_residual_row + c, t4);
      });
      close_row<C>(a, 6, row, panel, grad_x_row);
      close_row<C>(a, 7, row, panel, grad_residual_row);
    }
    store_panel<C>(a, 6, panel, buffer(3));
    store_panel<C>(a, 7, panel, buffer(4));
  }
}

template <class C>
AVO_KERNEL void dropout_add_rms_norm_rows_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C p_ = C(a->scalars[0]);
  const C* weight_row = load_row<C>(a, 3, 0, 0, N, buffer(5));
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
      C* grad_x_row = open_row<C>(a, 6, row, panel, buffer(3));
      C* grad_residual_row = open_row<C>(a, 7, row, panel, buffer(4));
      const int64_t seed = load_whole_number(a, 4, row);
      const C rstd = load_stat<C>(a, 5, row);
      const C t1 = C(1.0) / (C(1.0) - p_);
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t2_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V weight = part.load(weight_row + c);
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V y = V(rstd) * residual_out;
          t2_block[chain] = part.sum(t2_block[chain], weight * grad_y, y);
        });
        t2_lanes = t2_lanes + (t2_block[0] + t2_block[1]);
      }
      const C t2 = hsum(t2_lanes);
      const C t3 = rstd * (-t2 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V residual_out = part.load(residual_out_row + c);
        const V weight = part.load(weight_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V grad_residual_out = part.load(grad_residual_out_row + c);
        const V y = V(rstd) * residual_out;
        const V t4 = m_fma(y, V(t3), m_fma(weight * grad_y, V(rstd), grad_residual_out));
        part.store(grad_x_row + c, m_where(m_ge(m_uniform<C>(seed, c), V(p_)), V(t1), V(C(0.0))) * t4);
        part.store(grad_residual_row + c, t4);
        part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), grad_y, y));
      });
      close_row<C>(a, 6, row, panel, grad_x_row);
      close_row<C>(a, 7, row, panel, grad_residual_row);
    }
    store_panel<C>(a, 6, panel, buffer(3));
    store_panel<C>(a, 7, panel, buffer(4));
  }
}

template <class C>
AVO_KERNEL void dropout_add_rms_norm_rows_backward_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C p_ = C(a->scalars[0]);
  const C* weight_row = load_row<C>(a, 3, 0, 0, N, buffer(4));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* residual_out_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_y_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* grad_residual_out_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 6, row, panel, buffer(3));
      const int64_t seed = load_whole_number(a, 4, row);
      const C rstd = load_stat<C>(a, 5, row);
      const C t1 = C(1.0) / (C(1.0) - p_);
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t2_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V weight = part.load(weight_row + c);
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V y = V(rstd) * residual_out;
          t2_block[chain] = part.sum(t2_block[chain], weight * grad_y, y);
        });
        t2_lanes = t2_lanes + (t2_block[0] + t2_block[1]);
      }
      const C t2 = hsum(t2_lanes);
      const C t3 = rstd * (-t2 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V residual_out = part.load(residual_out_row + c);
        const V weight = part.load(weight_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V grad_residual_out = part.load(grad_residual_out_row + c);
        const V y = V(rstd) * residual_out;
        part.store(grad_x_row + c, m_where(m_ge(m_uniform<C>(seed, c), V(p_)), V(t1), V(C(0.0))) * m_fma(y, V(t3), m_fma(weight * grad_y, V(rstd), grad_residual_out)));
      });
      close_row<C>(a, 6, row, panel, grad_x_row);
    }
    store_panel<C>(a, 6, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void dropout_add_rms_norm_rows_backward_to_x_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C p_ = C(a->scalars[0]);
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
      C* grad_x_row = open_row<C>(a, 6, row, panel, buffer(3));
      const int64_t seed = load_whole_number(a, 4, row);
      const C rstd = load_stat<C>(a, 5, row);
      const C t1 = C(1.0) / (C(1.0) - p_);
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t2_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V weight = part.load(weight_row + c);
          const V grad_y = part.load(grad_y_row + c);
          const V residual_out = part.load(residual_out_row + c);
          const V y = V(rstd) * residual_out;
          t2_block[chain] = part.sum(t2_block[chain], weight * grad_y, y);
        });
        t2_lanes = t2_lanes + (t2_block[0] + t2_block[1]);
      }
      const C t2 = hsum(t2_lanes);
      const C t3 = rstd * (-t2 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V residual_out = part.load(residual_out_row + c);
        const V weight = part.load(weight_row + c);
        const V grad_y = part.load(grad_y_row + c);
        const V grad_residual_out = part.load(grad_residual_out_row + c);
        const V y = V(rstd) * residual_out;
        part.store(grad_x_row + c, m_where(m_ge(m_uniform<C>(seed, c), V(p_)), V(t1), V(C(0.0))) * m_fma(y, V(t3), m_fma(weight * grad_y, V(rstd), grad_residual_out)));
        part.store(grad_weight_sum + c, part.sum(part.load(grad_weight_sum + c), grad_y, y));
      });
      close_row<C>(a, 6, row, panel, grad_x_row);
    }
    store_panel<C>(a, 6, panel, buffer(3));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_dropout_add_rms_norm_rows[] = {
    {"dropout_add_rms_norm_rows_forward", dropout_add_rms_norm_rows_forward<float>, dropout_add_rms_norm_rows_forward<double>},
    {"dropout_add_rms_norm_rows_backward_to_weight", dropout_add_rms_norm_rows_backward_to_weight<float>, dropout_add_rms_norm_rows_backward_to_weight<double>},
    {"dropout_add_rms_norm_rows_backward_to_x_residual", dropout_add_rms_norm_rows_backward_to_x_residual<float>, dropout_add_rms_norm_rows_backward_to_x_residual<double>},
    {"dropout_add_rms_norm_rows_backward", dropout_add_rms_norm_rows_backward<float>, dropout_add_rms_norm_rows_backward<double>},
    {"dropout_add_rms_norm_rows_backward_to_x", dropout_add_rms_norm_rows_backward_to_x<float>, dropout_add_rms_norm_rows_backward_to_x<double>},
    {"dropout_add_rms_norm_rows_backward_to_x_weight", dropout_add_rms_norm_rows_backward_to_x_weight<float>, dropout_add_rms_norm_rows_backward_to_x_weight<double>},
};
AVO_HIDDEN extern const int kernels_dropout_add_rms_norm_rows_count = 6;

} // namespace AVO_ISA_NAMESPACE
