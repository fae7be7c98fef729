// l2_normalize: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// x / max(sqrt(sum(x^2)), eps)
// Source: Wang et al., NormFace: L2 Hypersphere Embedding for Face Verification, arXiv:1704.06369
template <class C>
AVO_KERNEL void l2_normalize_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      C* y_row = open_row<C>(a, 1, row, panel, buffer(1));
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
      const C norm = m_sqrt(t1);
      const C t2 = m_max(eps, norm);
      const C scale = m_recip(t2);
      store_stat<C>(a, 2, row, scale);
      store_stat<C>(a, 3, row, norm);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, m_quotient(x, V(t2), V(scale)));
      });
      close_row<C>(a, 1, row, panel, y_row);
    }
    store_panel<C>(a, 1, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void l2_normalize_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* y_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 4, row, panel, buffer(2));
      const C scale = load_stat<C>(a, 2, row);
      const C norm = load_stat<C>(a, 3, row);
      const auto t1 = m_gt(norm, eps);
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t2_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V y = part.load(y_row + c);
          const V grad = part.load(grad_row + c);
          t2_block[chain] = part.sum(t2_block[chain], y, grad);
        });
        t2_lanes = t2_lanes + (t2_block[0] + t2_block[1]);
      }
      const C t2 = hsum(t2_lanes);
      const C along_y = m_where(t1, t2, C(0.0));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V y = part.load(y_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, V(scale) * m_fma(-y, V(along_y), grad));
      });
      close_row<C>(a, 4, row, panel, grad_x_row);
    }
    store_panel<C>(a, 4, panel, buffer(2));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_l2_normalize[] = {
    {"l2_normalize_forward", l2_normalize_forward<float>, l2_normalize_forward<double>},
    {"l2_normalize_backward", l2_normalize_backward<float>, l2_normalize_backward<double>},
};
AVO_HIDDEN extern const int kernels_l2_normalize_count = 2;

} // namespace AVO_ISA_NAMESPACE
