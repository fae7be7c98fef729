// quantize_rows: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// q = x / scale, to nearest even, within [-448, 448] or [-128, 127]; scale = max(max(|x|) / 448, 1 / (512 *
//   448)) of each row, 127 instead of 448 for int8
// Source: Micikevicius et al., FP8 Formats for Deep Learning, arXiv:2209.05433 (e4m3)
template <class C>
AVO_KERNEL void quantize_rows_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      C* q_row = open_row<C>(a, 1, row, panel, buffer(1));
      V t1_lanes[2] = {V(lowest<C>()), V(lowest<C>())};
      sweep_pairs<C>(0, N, [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        t1_lanes[chain] = part.amax(t1_lanes[chain], m_abs(x));
      });
      const C t1 = hamax(Whole::amax(t1_lanes[0], t1_lanes[1]));
      const C scale = m_round_f32(m_max(t1 / C(448.0), C(4.359654017857143e-06)));
      const C t2 = m_recip(scale);
      store_stat<C>(a, 2, row, scale);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V q = m_quotient(x, V(scale), V(t2));
        part.store(q_row + c, m_min(V(C(448.0)), m_max(V(C(-448.0)), q)));
      });
      close_row<C>(a, 1, row, panel, q_row);
    }
    store_panel<C>(a, 1, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void quantize_rows_forward_int8(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      C* q_row = open_row<C>(a, 1, row, panel, buffer(1));
      V t1_lanes[2] = {V(lowest<C>()), V(lowest<C>())};
      sweep_pairs<C>(0, N, [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        t1_lanes[chain] = part.amax(t1_lanes[chain], m_abs(x));
      });
      const C t1 = hamax(Whole::amax(t1_lanes[0], t1_lanes[1]));
      const C scale = m_round_f32(m_max(t1 / C(127.0), C(1.5378937007874016e-05)));
      const C t2 = m_recip(scale);
      store_stat<C>(a, 2, row, scale);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V q = m_quotient(x, V(scale), V(t2));
        part.store(q_row + c, m_min(V(C(127.0)), m_max(V(C(-128.0)), m_round(m_where(m_eq(q, q), q, V(C(0.0)))))));
      });
      close_row<C>(a, 1, row, panel, q_row);
    }
    store_panel<C>(a, 1, panel, buffer(1));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_quantize_rows[] = {
    {"quantize_rows_forward", quantize_rows_forward<float>, quantize_rows_forward<double>},
    {"quantize_rows_forward_int8", quantize_rows_forward_int8<float>, quantize_rows_forward_int8<double>},
};
AVO_HIDDEN extern const int kernels_quantize_rows_count = 2;

} // namespace AVO_ISA_NAMESPACE
