// mean_of_losses: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/integers.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// the mean of x over the elements of the last dim whose target is not ignore_index
// Source: torch.nn.functional.cross_entropy with reduction='mean', of the losses without a reduction
template <class C>
AVO_KERNEL void mean_of_losses_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C ignore_index = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 1, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 1, row, panel, buffer(0));
      const IntegersOfRow<int64_t> target_in(a, 0, row, panel);
      V t1_lanes(C(0));
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        V t2_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const auto target_numbers = target_in.numbers<C>(c, part);
          const V x = part.load(x_row + c);
          const auto counts = m_ne(V(ignore_index), target_numbers);
          t1_block[chain] = part.sum(t1_block[chain], m_where(counts, x, V(C(0.0))));
          t2_block[chain] = part.sum(t2_block[chain], m_where(counts, V(C(1.0)), V(C(0.0))));
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
        t2_lanes = t2_lanes + (t2_block[0] + t2_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = t1 / t2;
      store_stat<C>(a, 2, row, t3);
      store_stat<C>(a, 3, row, t2);
    }
  }
}

template <class C>
AVO_KERNEL void mean_of_losses_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C ignore_index = C(a->scalars[0]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      C* grad_x_row = open_row<C>(a, 3, row, c0, n, buffer(0));
      const IntegersOfRow<int64_t> target_in(a, 0, row, c0);
      const C grad = load_stat<C>(a, 1, row);
      const C count_ = load_stat<C>(a, 2, row);
      const C t1 = grad / count_;
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const auto target_numbers = target_in.numbers<C>(c, part);
        const auto counts = m_ne(V(ignore_index), target_numbers);
        part.store(grad_x_row + c, m_where(counts, V(t1), V(C(0.0))));
      });
      close_row<C>(a, 3, row, c0, n, grad_x_row);
    }
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_mean_of_losses[] = {
    {"mean_of_losses_forward", mean_of_losses_forward<float>, mean_of_losses_forward<double>},
    {"mean_of_losses_backward", mean_of_losses_backward<float>, mean_of_losses_backward<double>},
};
AVO_HIDDEN extern const int kernels_mean_of_losses_count = 2;

} // namespace AVO_ISA_NAMESPACE
