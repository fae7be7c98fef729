// swiglu_packed_quantize_rows: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// q = gate * sigmoid(gate) * up / scale, to nearest even, within [-448, 448] or [-128, 127]; scale =
//   max(max(|gate * sigmoid(gate) * up|) / 448, 1 / (512 * 448)) of each row, 127 instead of 448 for int8;
//   gate, up = the halves of the last dim of x
// Source: Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202; Micikevicius et al., FP8 Formats for
//   Deep Learning, arXiv:2209.05433 (e4m3)
template <class C>
AVO_KERNEL void swiglu_packed_quantize_rows_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* up_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* q_row = open_row<C>(a, 2, row, panel, buffer(2));
      C* t1_row = buffer(3);
      V t1_lanes = V(lowest<C>());
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V gate = part.load(gate_row + c);
        const V t2 = up * m_x_sigmoid(gate);
        part.store(t1_row + c, t2);
        t1_lanes = part.amax(t1_lanes, m_abs(t2));
      });
      const C t1 = hamax(t1_lanes);
      const C scale = m_round_f32(m_max(t1 / C(448.0), C(4.359654017857143e-06)));
      const C t2 = m_recip(scale);
      store_stat<C>(a, 3, row, scale);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V t3 = part.load(t1_row + c);
        const V q = m_quotient(t3, V(scale), V(t2));
        part.store(q_row + c, m_min(V(C(448.0)), m_max(V(C(-448.0)), q)));
      });
      close_row<C>(a, 2, row, panel, q_row);
    }
    store_panel<C>(a, 2, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void swiglu_packed_quantize_rows_forward_int8(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* up_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* q_row = open_row<C>(a, 2, row, panel, buffer(2));
      C* t1_row = buffer(3);
      V t1_lanes = V(lowest<C>());
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V gate = part.load(gate_row + c);
        const V t2 = up * m_x_sigmoid(gate);
        part.store(t1_row + c, t2);
        t1_lanes = part.amax(t1_lanes, m_abs(t2));
      });
      const C t1 = hamax(t1_lanes);
      const C scale = m_round_f32(m_max(t1 / C(127.0), C(1.5378937007874016e-05)));
      const C t2 = m_recip(scale);
      store_stat<C>(a, 3, row, scale);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V t3 = part.load(t1_row + c);
        const V q = m_quotient(t3, V(scale), V(t2));
        part.store(q_row + c, m_min(V(C(127.0)), m_max(V(C(-128.0)), m_round(m_where(m_eq(q, q), q, V(C(0.0)))))));
      });
      close_row<C>(a, 2, row, panel, q_row);
    }
    store_panel<C>(a, 2, panel, buffer(2));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_swiglu_packed_quantize_rows[] = {
    {"swiglu_packed_quantize_rows_forward", swiglu_packed_quantize_rows_forward<float>, swiglu_packed_quantize_rows_forward<double>},
    {"swiglu_packed_quantize_rows_forward_int8", swiglu_packed_quantize_rows_forward_int8<float>, swiglu_packed_quantize_rows_forward_int8<double>},
};
AVO_HIDDEN extern const int kernels_swiglu_packed_quantize_rows_count = 2;

} // namespace AVO_ISA_NAMESPACE
