// log_softmax: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// x - max(x) - log(sum(exp(x - max(x))))
// Source: Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (the shifted
//   form)
template <class C>
AVO_KERNEL void log_softmax_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      C* y_row = open_row<C>(a, 1, row, panel, buffer(1));
      V max_x_lanes[2] = {V(lowest<C>()), V(lowest<C>())};
      sweep_pairs<C>(0, N, [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        max_x_lanes[chain] = part.amax(max_x_lanes[chain], x);
      });
      const C max_x = hamax(Whole::amax(max_x_lanes[0], max_x_lanes[1]));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V shifted = x - V(max_x);
          t1_block = part.sum(t1_block, m_exp(shifted));
        });
        t1_lanes = t1_lanes + t1_block;
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = m_log(t1);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V shifted = x - V(max_x);
        part.store(y_row + c, shifted - V(t2));
      });
      close_row<C>(a, 1, row, panel, y_row);
    }
    store_panel<C>(a, 1, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void log_softmax_backward(AVO_PARAMETERS) {
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
      V sum_grad_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_grad_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V grad = part.load(grad_row + c);
          sum_grad_block[chain] = part.sum(sum_grad_block[chain], grad);
        });
        sum_grad_lanes = sum_grad_lanes + (sum_grad_block[0] + sum_grad_block[1]);
      }
      const C sum_grad = hsum(sum_grad_lanes);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V y = part.load(y_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, m_fma(-m_exp(y), V(sum_grad), grad));
      });
      close_row<C>(a, 2, row, panel, grad_x_row);
    }
    store_panel<C>(a, 2, panel, buffer(2));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_log_softmax[] = {
    {"log_softmax_forward", log_softmax_forward<float>, log_softmax_forward<double>},
    {"log_softmax_backward", log_softmax_backward<float>, log_softmax_backward<double>},
};
AVO_HIDDEN extern const int kernels_log_softmax_count = 2;

} // namespace AVO_ISA_NAMESPACE
