// softmax: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// exp(x - max(x)) / sum(exp(x - max(x)))
// Source: Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (the shifted
//   form)
template <class C>
AVO_KERNEL void softmax_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      C* y_row = open_row<C>(a, 1, row, panel, buffer(1));
      C* shifted_row = buffer(2);
      V max_x_lanes[2] = {V(lowest<C>()), V(lowest<C>())};
      sweep_pairs<C>(0, N, [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        max_x_lanes[chain] = part.amax(max_x_lanes[chain], x);
      });
      const C max_x = hamax(Whole::amax(max_x_lanes[0], max_x_lanes[1]));
      V sum_shifted_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_shifted_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V shifted = m_exp(x - V(max_x));
          part.store(shifted_row + c, shifted);
          sum_shifted_block = part.sum(sum_shifted_block, shifted);
        });
        sum_shifted_lanes = sum_shifted_lanes + sum_shifted_block;
      }
      const C sum_shifted = hsum(sum_shifted_lanes);
      const C t1 = m_recip(sum_shifted);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V shifted = part.load(shifted_row + c);
        part.store(y_row + c, m_quotient(shifted, V(sum_shifted), V(t1)));
      });
      close_row<C>(a, 1, row, panel, y_row);
    }
    store_panel<C>(a, 1, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void softmax_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* y_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, panel, buffer(2));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V y = part.load(y_row + c);
          const V grad = part.load(grad_row + c);
          t1_block[chain] = part.sum(t1_block[chain], y, grad);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V y = part.load(y_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, y * (grad - V(t1)));
      });
      close_row<C>(a, 2, row, panel, grad_x_row);
    }
    store_panel<C>(a, 2, panel, buffer(2));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_softmax[] = {
    {"softmax_forward", softmax_forward<float>, softmax_forward<double>},
    {"softmax_backward", softmax_backward<float>, softmax_backward<double>},
};
AVO_HIDDEN extern const int kernels_softmax_count = 2;

} // namespace AVO_ISA_NAMESPACE
