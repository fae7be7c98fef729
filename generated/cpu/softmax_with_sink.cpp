// softmax_with_sink: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// exp(x - m) / (sum(exp(x - m)) + exp(sink - m)), m = max(x, sink); one sink for each row
// Source: OpenAI, gpt-oss-120b and gpt-oss-20b Model Card, arXiv:2508.10925; Xiao et al., arXiv:2309.17453
template <class C>
AVO_KERNEL void softmax_with_sink_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      C* y_row = open_row<C>(a, 2, row, panel, buffer(1));
      C* shifted_row = buffer(2);
      const C sink = load_stat<C>(a, 1, row);
      V max_x_lanes[2] = {V(lowest<C>()), V(lowest<C>())};
      sweep_pairs<C>(0, N, [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        max_x_lanes[chain] = part.amax(max_x_lanes[chain], x);
      });
      const C max_x = hamax(Whole::amax(max_x_lanes[0], max_x_lanes[1]));
      const C largest = m_max(sink, max_x);
      const C t1 = m_exp(sink - largest);
      V sum_shifted_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_shifted_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V shifted = m_exp(x - V(largest));
          part.store(shifted_row + c, shifted);
          sum_shifted_block = part.sum(sum_shifted_block, shifted);
        });
        sum_shifted_lanes = sum_shifted_lanes + sum_shifted_block;
      }
      const C sum_shifted = hsum(sum_shifted_lanes);
      const C t2 = sum_shifted + t1;
      const C t3 = m_recip(t2);
      store_stat<C>(a, 3, row, t1);
      store_stat<C>(a, 4, row, t2);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V shifted = part.load(shifted_row + c);
        part.store(y_row + c, m_quotient(shifted, V(t2), V(t3)));
      });
      close_row<C>(a, 2, row, panel, y_row);
    }
    store_panel<C>(a, 2, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void softmax_with_sink_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* y_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 4, row, panel, buffer(2));
      const C own_ = load_stat<C>(a, 2, row);
      const C statistic1 = load_stat<C>(a, 3, row);
      const C share = own_ / statistic1;
      const C t1 = -share;
      V along_y_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V along_y_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V y = part.load(y_row + c);
          const V grad = part.load(grad_row + c);
          along_y_block[chain] = part.sum(along_y_block[chain], y, grad);
        });
        along_y_lanes = along_y_lanes + (along_y_block[0] + along_y_block[1]);
      }
      const C along_y = hsum(along_y_lanes);
      const C t2 = t1 * along_y;
      store_stat<C>(a, 5, row, t2);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V y = part.load(y_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, y * (grad - V(along_y)));
      });
      close_row<C>(a, 4, row, panel, grad_x_row);
    }
    store_panel<C>(a, 4, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void softmax_with_sink_backward_to_x(AVO_PARAMETERS) {
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
      V along_y_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V along_y_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V y = part.load(y_row + c);
          const V grad = part.load(grad_row + c);
          along_y_block[chain] = part.sum(along_y_block[chain], y, grad);
        });
        along_y_lanes = along_y_lanes + (along_y_block[0] + along_y_block[1]);
      }
      const C along_y = hsum(along_y_lanes);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V y = part.load(y_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, y * (grad - V(along_y)));
      });
      close_row<C>(a, 2, row, panel, grad_x_row);
    }
    store_panel<C>(a, 2, panel, buffer(2));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_softmax_with_sink[] = {
    {"softmax_with_sink_forward", softmax_with_sink_forward<float>, softmax_with_sink_forward<double>},
    {"softmax_with_sink_backward", softmax_with_sink_backward<float>, softmax_with_sink_backward<double>},
    {"softmax_with_sink_backward_to_x", softmax_with_sink_backward_to_x<float>, softmax_with_sink_backward_to_x<double>},
};
AVO_HIDDEN extern const int kernels_softmax_with_sink_count = 3;

} // namespace AVO_ISA_NAMESPACE
