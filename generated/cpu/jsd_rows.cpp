// jsd_rows: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// sum(beta p (log(p) - log(m)) + (1 - beta) q (log(q) - log(m))) over the last dim; p = exp(target), q =
//   exp(x), m = beta p + (1 - beta) q
// Source: Lin, Divergence Measures Based on the Shannon Entropy, IEEE Trans. Inf. Theory 37 (1991), 145-151;
//   Agarwal et al., On-Policy Distillation of Language Models, arXiv:2306.13649 (beta)
template <class C>
AVO_KERNEL void jsd_rows_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C beta = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* target_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C t1 = C(1.0) - beta;
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t2_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V target = part.load(target_row + c);
          const V x = part.load(x_row + c);
          const V difference = m_max(target, V(C(-1000.0))) - m_max(x, V(C(-1000.0)));
          const auto larger = m_ge(difference, V(C(0.0)));
          const V below = m_where(larger, -difference, difference);
          const V ratio = m_where(m_gt(below, V(C(-1.0))), m_expm1(m_max(below, V(C(-1.0)))), m_exp(below) - V(C(1.0)));
          const V t3 = m_log1p(m_where(larger, ratio * V(t1), V(beta) * ratio));
          const V of_larger = -t3;
          t2_block = part.sum(t2_block, m_fma(V(t1), m_where(larger, of_larger - difference, of_larger) * m_exp(x), V(beta) * (m_where(larger, of_larger, difference - t3) * m_exp(target))));
        });
        t2_lanes = t2_lanes + t2_block;
      }
      const C t2 = hsum(t2_lanes);
      store_stat<C>(a, 2, row, t2);
    }
  }
}

template <class C>
AVO_KERNEL void jsd_rows_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C beta = C(a->scalars[0]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* target_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 3, row, c0, n, buffer(2));
      C* grad_target_row = open_row<C>(a, 4, row, c0, n, buffer(3));
      const C grad = load_stat<C>(a, 2, row);
      const C t1 = C(1.0) - beta;
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V target = part.load(target_row + c);
        const V x = part.load(x_row + c);
        const V difference = m_max(target, V(C(-1000.0))) - m_max(x, V(C(-1000.0)));
        const auto larger = m_ge(difference, V(C(0.0)));
        const V below = m_where(larger, -difference, difference);
        const V ratio = m_where(m_gt(below, V(C(-1.0))), m_expm1(m_max(below, V(C(-1.0)))), m_exp(below) - V(C(1.0)));
        const V t2 = m_log1p(m_where(larger, ratio * V(t1), V(beta) * ratio));
        const V of_larger = -t2;
        part.store(grad_x_row + c, V(t1) * (m_where(larger, of_larger - difference, of_larger) * m_exp(x)) * V(grad));
        part.store(grad_target_row + c, V(beta) * (m_where(larger, of_larger, difference - t2) * m_exp(target)) * V(grad));
      });
      close_row<C>(a, 3, row, c0, n, grad_x_row);
      close_row<C>(a, 4, row, c0, n, grad_target_row);
    }
  }
}

template <class C>
AVO_KERNEL void jsd_rows_backward_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C beta = C(a->scalars[0]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* target_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 3, row, c0, n, buffer(2));
      const C grad = load_stat<C>(a, 2, row);
      const C t1 = C(1.0) - beta;
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V target = part.load(target_row + c);
        const V x = part.load(x_row + c);
        const V difference = m_max(target, V(C(-1000.0))) - m_max(x, V(C(-1000.0)));
        const auto larger = m_ge(difference, V(C(0.0)));
        const V below = m_where(larger, -difference, difference);
        const V ratio = m_where(m_gt(below, V(C(-1.0))), m_expm1(m_max(below, V(C(-1.0)))), m_exp(below) - V(C(1.0)));
        const V of_larger = -m_log1p(m_where(larger, ratio * V(t1), V(beta) * ratio));
        part.store(grad_x_row + c, V(t1) * (m_where(larger, of_larger - difference, of_larger) * m_exp(x)) * V(grad));
      });
      close_row<C>(a, 3, row, c0, n, grad_x_row);
    }
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_jsd_rows[] = {
    {"jsd_rows_forward", jsd_rows_forward<float>, jsd_rows_forward<double>},
    {"jsd_rows_backward", jsd_rows_backward<float>, jsd_rows_backward<double>},
    {"jsd_rows_backward_to_x", jsd_rows_backward_to_x<float>, jsd_rows_backward_to_x<double>},
};
AVO_HIDDEN extern const int kernels_jsd_rows_count = 3;

} // namespace AVO_ISA_NAMESPACE
