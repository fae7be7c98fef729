// binary_cross_entropy_with_logits_rows: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// sum(log(1 + exp(x)) - x target) over the last dim
// Source: torch.nn.functional.binary_cross_entropy_with_logits
template <class C>
AVO_KERNEL void binary_cross_entropy_with_logits_rows_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* target_row = load_row<C>(a, 1, row, panel, buffer(1));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V target = part.load(target_row + c);
          const auto t2 = m_gt(x, V(C(50.0)));
          t1_block = part.sum(t1_block, m_fma(-x, target, m_where(m_or(t2, t2), x, m_log1p(m_exp(m_min(x, V(C(50.0))))))));
        });
        t1_lanes = t1_lanes + t1_block;
      }
      const C t1 = hsum(t1_lanes);
      store_stat<C>(a, 2, row, t1);
    }
  }
}

template <class C>
AVO_KERNEL void binary_cross_entropy_with_logits_rows_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* target_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 3, row, c0, n, buffer(2));
      C* grad_target_row = open_row<C>(a, 4, row, c0, n, buffer(3));
      const C grad = load_stat<C>(a, 2, row);
      const C t1 = -grad;
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V target = part.load(target_row + c);
        part.store(grad_x_row + c, (m_sigmoid(x) - target) * V(grad));
        part.store(grad_target_row + c, x * V(t1));
      });
      close_row<C>(a, 3, row, c0, n, grad_x_row);
      close_row<C>(a, 4, row, c0, n, grad_target_row);
    }
  }
}

template <class C>
AVO_KERNEL void binary_cross_entropy_with_logits_rows_backward_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* target_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 3, row, c0, n, buffer(2));
      const C grad = load_stat<C>(a, 2, row);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V target = part.load(target_row + c);
        part.store(grad_x_row + c, (m_sigmoid(x) - target) * V(grad));
      });
      close_row<C>(a, 3, row, c0, n, grad_x_row);
    }
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_binary_cross_entropy_with_logits_rows[] = {
    {"binary_cross_entropy_with_logits_rows_forward", binary_cross_entropy_with_logits_rows_forward<float>, binary_cross_entropy_with_logits_rows_forward<double>},
    {"binary_cross_entropy_with_logits_rows_backward", binary_cross_entropy_with_logits_rows_backward<float>, binary_cross_entropy_with_logits_rows_backward<double>},
    {"binary_cross_entropy_with_logits_rows_backward_to_x", binary_cross_entropy_with_logits_rows_backward_to_x<float>, binary_cross_entropy_with_logits_rows_backward_to_x<double>},
};
AVO_HIDDEN extern const int kernels_binary_cross_entropy_with_logits_rows_count = 3;

} // namespace AVO_ISA_NAMESPACE
