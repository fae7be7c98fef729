// add_rms_norm_quantize_rows: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// residual_out = x + residual; q = rms_norm(residual_out) / scale, to nearest even, within [-448, 448] or
//   [-128, 127]; scale = max(max(|rms_norm(residual_out)|) / 448, 1 / (512 * 448)) of each row, 127 instead
//   of 448 for int8
// Source: Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467; Micikevicius et al.,
//   FP8 Formats for Deep Learning, arXiv:2209.05433 (e4m3)
template <class C>
AVO_KERNEL void add_rms_norm_quantize_rows_forward(AVO_PARAMETERS) {
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
      C* q_row = open_row<C>(a, 2, row, panel, buffer(2));
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
      V t2_lanes[2] = {V(lowest<C>()), V(lowest<C>())};
      sweep_pairs<C>(0, N, [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
        const V t3 = part.load(t1_row + c);
        const V y = t3 * V(rstd);
        t2_lanes[chain] = part.amax(t2_lanes[chain], m_abs(y));
      });
      const C t2 = hamax(Whole::amax(t2_lanes[0], t2_lanes[1]));
      const C scale = m_round_f32(m_max(C(4.359654017857143e-06), t2 / C(448.0)));
      const C t3 = m_recip(scale);
      store_stat<C>(a, 4, row, scale);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V t4 = part.load(t1_row + c);
        const V x = part.load(x_row + c);
        const V residual = part.load(residual_row + c);
        const V y = t4 * V(rstd);
        const V q = m_quotient(y, V(scale), V(t3));
        const V residual_out = x + residual;
        part.store(q_row + c, m_min(V(C(448.0)), m_max(V(C(-448.0)), q)));
        part.store(residual_out_row + c, residual_out);
      });
      close_row<C>(a, 2, row, panel, q_row);
      close_row<C>(a, 3, row, panel, residual_out_row);
    }
    store_panel<C>(a, 2, panel, buffer(2));
    store_panel<C>(a, 3, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void add_rms_norm_quantize_rows_forward_int8(AVO_PARAMETERS) {
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
      C* q_row = open_row<C>(a, 2, row, panel, buffer(2));
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
      V t2_lanes[2] = {V(lowest<C>()), V(lowest<C>())};
      sweep_pairs<C>(0, N, [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
        const V t3 = part.load(t1_row + c);
        const V y = t3 * V(rstd);
        t2_lanes[chain] = part.amax(t2_lanes[chain], m_abs(y));
      });
      const C t2 = hamax(Whole::amax(t2_lanes[0], t2_lanes[1]));
      const C scale = m_round_f32(m_max(C(1.5378937007874016e-05), t2 / C(127.0)));
      const C t3 = m_recip(scale);
      store_stat<C>(a, 4, row, scale);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V t4 = part.load(t1_row + c);
        const V x = part.load(x_row + c);
        const V residual = part.load(residual_row + c);
        const V y = t4 * V(rstd);
        const V q = m_quotient(y, V(scale), V(t3));
        const V residual_out = x + residual;
        part.store(q_row + c, m_min(V(C(127.0)), m_max(V(C(-128.0)), m_round(m_where(m_eq(q, q), q, V(C(0.0)))))));
        part.store(residual_out_row + c, residual_out);
      });
      close_row<C>(a, 2, row, panel, q_row);
      close_row<C>(a, 3, row, panel, residual_out_row);
    }
    store_panel<C>(a, 2, panel, buffer(2));
    store_panel<C>(a, 3, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void add_rms_norm_quantize_rows_forward_weight(AVO_PARAMETERS) {
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
      C* q_row = open_row<C>(a, 3, row, panel, buffer(2));
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
      V t2_lanes[2] = {V(lowest<C>()), V(lowest<C>())};
      sweep_pairs<C>(0, N, [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
        const V weight = part.load(weight_row + c);
        const V t3 = part.load(t1_row + c);
        const V y = t3 * V(rstd);
        const V y_ = weight * y;
        t2_lanes[chain] = part.amax(t2_lanes[chain], m_abs(y_));
      });
      const C t2 = hamax(Whole::amax(t2_lanes[0], t2_lanes[1]));
      const C scale = m_round_f32(m_max(C(4.359654017857143e-06), t2 / C(448.0)));
      const C t3 = m_recip(scale);
      store_stat<C>(a, 5, row, scale);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V weight = part.load(weight_row + c);
        const V t4 = part.load(t1_row + c);
        const V x = part.load(x_row + c);
        const V residual = part.load(residual_row + c);
        const V y = t4 * V(rstd);
        const V y_ = weight * y;
        const V q = m_quotient(y_, V(scale), V(t3));
        const V residual_out = x + residual;
        part.store(q_row + c, m_min(V(C(448.0)), m_max(V(C(-448.0)), q)));
        part.store(residual_out_row + c, residual_out);
      });
      close_row<C>(a, 3, row, panel, q_row);
      close_row<C>(a, 4, row, panel, residual_out_row);
    }
    store_panel<C>(a, 3, panel, buffer(2));
    store_panel<C>(a, 4, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void add_rms_norm_quantize_rows_forward_weight_int8(AVO_PARAMETERS) {
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
      C* q_row = open_row<C>(a, 3, row, panel, buffer(2));
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
      V t2_lanes[2] = {V(lowest<C>()), V(lowest<C>())};
      sweep_pairs<C>(0, N, [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
        const V weight = part.load(weight_row + c);
        const V t3 = part.load(t1_row + c);
        const V y = t3 * V(rstd);
        const V y_ = weight * y;
        t2_lanes[chain] = part.amax(t2_lanes[chain], m_abs(y_));
      });
      const C t2 = hamax(Whole::amax(t2_lanes[0], t2_lanes[1]));
      const C scale = m_round_f32(m_max(C(1.5378937007874016e-05), t2 / C(127.0)));
      const C t3 = m_recip(scale);
      store_stat<C>(a, 5, row, scale);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V weight = part.load(weight_row + c);
        const V t4 = part.load(t1_row + c);
        const V x = part.load(x_row + c);
        const V residual = part.load(residual_row + c);
        const V y = t4 * V(rstd);
        const V y_ = weight * y;
        const V q = m_quotient(y_, V(scale), V(t3));
        const V residual_out = x + residual;
        part.store(q_row + c, m_min(V(C(127.0)), m_max(V(C(-128.0)), m_round(m_where(m_eq(q, q), q, V(C(0.0)))))));
        part.store(residual_out_row + c, residual_out);
      });
      close_row<C>(a, 3, row, panel, q_row);
      close_row<C>(a, 4, row, panel, residual_out_row);
    }
    store_panel<C>(a, 3, panel, buffer(2));
    store_panel<C>(a, 4, panel, buffer(3));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_add_rms_norm_quantize_rows[] = {
    {"add_rms_norm_quantize_rows_forward", add_rms_norm_quantize_rows_forward<float>, add_rms_norm_quantize_rows_forward<double>},
    {"add_rms_norm_quantize_rows_forward_int8", add_rms_norm_quantize_rows_forward_int8<float>, add_rms_norm_quantize_rows_forward_int8<double>},
    {"add_rms_norm_quantize_rows_forward_weight", add_rms_norm_quantize_rows_forward_weight<float>, add_rms_norm_quantize_rows_forward_weight<double>},
    {"add_rms_norm_quantize_rows_forward_weight_int8", add_rms_norm_quantize_rows_forward_weight_int8<float>, add_rms_norm_quantize_rows_forward_weight_int8<double>},
};
AVO_HIDDEN extern const int kernels_add_rms_norm_quantize_rows_count = 4;

} // namespace AVO_ISA_NAMESPACE
