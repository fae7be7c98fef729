// add_rms_norm_quantize: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// residual_out = x + residual; q = rms_norm(residual_out) / scale, to nearest even, within [-448, 448] or
//   [-128, 127]
// Source: Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467; Micikevicius et al.,
//   FP8 Formats for Deep Learning, arXiv:2209.05433 (e4m3)
template <class C>
AVO_KERNEL void add_rms_norm_quantize_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  const C scale = load_stat<C>(a, 2, 0);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* residual_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* q_row = open_row<C>(a, 3, row, panel, buffer(2));
      C* residual_out_row = open_row<C>(a, 4, row, panel, buffer(3));
      C* t1_row = buffer(4);
      const C t1 = m_recip(scale);
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t2_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V residual = part.load(residual_row + c);
          const V residual_out = x + residual;
          const V t3 = m_round_to(residual_out, a->operands[4].dtype);
          part.store(t1_row + c, t3);
          t2_block = part.sum(t2_block, t3 * t3);
        });
        t2_lanes = t2_lanes + t2_block;
      }
      const C t2 = hsum(t2_lanes);
      const C rstd = m_rsqrt(eps + t2 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V t3 = part.load(t1_row + c);
        const V x = part.load(x_row + c);
        const V residual = part.load(residual_row + c);
        const V y = t3 * V(rstd);
        const V q = m_quotient(y, V(scale), V(t1));
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
AVO_KERNEL void add_rms_norm_quantize_forward_int8(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  const C scale = load_stat<C>(a, 2, 0);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* residual_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* q_row = open_row<C>(a, 3, row, panel, buffer(2));
      C* residual_out_row = open_row<C>(a, 4, row, panel, buffer(3));
      C* t1_row = buffer(4);
      const C t1 = m_recip(scale);
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t2_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V residual = part.load(residual_row + c);
          const V residual_out = x + residual;
          const V t3 = m_round_to(residual_out, a->operands[4].dtype);
          part.store(t1_row + c, t3);
          t2_block = part.sum(t2_block, t3 * t3);
        });
        t2_lanes = t2_lanes + t2_block;
      }
      const C t2 = hsum(t2_lanes);
      const C rstd = m_rsqrt(eps + t2 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V t3 = part.load(t1_row + c);
        const V x = part.load(x_row + c);
        const V residual = part.load(residual_row + c);
        const V y = t3 * V(rstd);
        const V q = m_quotient(y, V(scale), V(t1));
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

template <class C>
AVO_KERNEL void add_rms_norm_quantize_forward_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  const C scale = load_stat<C>(a, 3, 0);
  const C* weight_row = load_row<C>(a, 2, 0, 0, N, buffer(5));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* residual_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* q_row = open_row<C>(a, 4, row, panel, buffer(2));
      C* residual_out_row = open_row<C>(a, 5, row, panel, buffer(3));
      C* t1_row = buffer(4);
      const C t1 = m_recip(scale);
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t2_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V residual = part.load(residual_row + c);
          const V residual_out = x + residual;
          const V t3 = m_round_to(residual_out, a->operands[5].dtype);
          part.store(t1_row + c, t3);
          t2_block = part.sum(t2_block, t3 * t3);
        });
        t2_lanes = t2_lanes + t2_block;
      }
      const C t2 = hsum(t2_lanes);
      const C rstd = m_rsqrt(eps + t2 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V weight = part.load(weight_row + c);
        const V t3 = part.load(t1_row + c);
        const V x = part.load(x_row + c);
        const V residual = part.load(residual_row + c);
        const V y = t3 * V(rstd);
        const V y_ = weight * y;
        const V q = m_quotient(y_, V(scale), V(t1));
        const V residual_out = x + residual;
        part.store(q_row + c, m_min(V(C(448.0)), m_max(V(C(-448.0)), q)));
        part.store(residual_out_row + c, residual_out);
      });
      close_row<C>(a, 4, row, panel, q_row);
      close_row<C>(a, 5, row, panel, residual_out_row);
    }
    store_panel<C>(a, 4, panel, buffer(2));
    store_panel<C>(a, 5, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void add_rms_norm_quantize_forward_weight_int8(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  const C scale = load_stat<C>(a, 3, 0);
  const C* weight_row = load_row<C>(a, 2, 0, 0, N, buffer(5));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* residual_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* q_row = open_row<C>(a, 4, row, panel, buffer(2));
      C* residual_out_row = open_row<C>(a, 5, row, panel, buffer(3));
      C* t1_row = buffer(4);
      const C t1 = m_recip(scale);
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t2_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V residual = part.load(residual_row + c);
          const V residual_out = x + residual;
          const V t3 = m_round_to(residual_out, a->operands[5].dtype);
          part.store(t1_row + c, t3);
          t2_block = part.sum(t2_block, t3 * t3);
        });
        t2_lanes = t2_lanes + t2_block;
      }
      const C t2 = hsum(t2_lanes);
      const C rstd = m_rsqrt(eps + t2 / C(N));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V weight = part.load(weight_row + c);
        const V t3 = part.load(t1_row + c);
        const V x = part.load(x_row + c);
        const V residual = part.load(residual_row + c);
        const V y = t3 * V(rstd);
        const V y_ = weight * y;
        const V q = m_quotient(y_, V(scale), V(t1));
        const V residual_out = x + residual;
        part.store(q_row + c, m_min(V(C(127.0)), m_max(V(C(-128.0)), m_round(m_where(m_eq(q, q), q, V(C(0.0)))))));
        part.store(residual_out_row + c, residual_out);
      });
      close_row<C>(a, 4, row, panel, q_row);
      close_row<C>(a, 5, row, panel, residual_out_row);
    }
    store_panel<C>(a, 4, panel, buffer(2));
    store_panel<C>(a, 5, panel, buffer(3));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_add_rms_norm_quantize[] = {
    {"add_rms_norm_quantize_forward", add_rms_norm_quantize_forward<float>, add_rms_norm_quantize_forward<double>},
    {"add_rms_norm_quantize_forward_int8", add_rms_norm_quantize_forward_int8<float>, add_rms_norm_quantize_forward_int8<double>},
    {"add_rms_norm_quantize_forward_weight", add_rms_norm_quantize_forward_weight<float>, add_rms_norm_quantize_forward_weight<double>},
    {"add_rms_norm_quantize_forward_weight_int8", add_rms_norm_quantize_forward_weight_int8<float>, add_rms_norm_quantize_forward_weight_int8<double>},
};
AVO_HIDDEN extern const int kernels_add_rms_norm_quantize_count = 4;

} // namespace AVO_ISA_NAMESPACE
