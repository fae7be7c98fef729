// softcap_softmax: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// softmax(cap * tanh(x / cap))
// Source: Gemma Team, Gemma 2: Improving Open Language Models at a Practical Size, arXiv:2408.00118
template <class C>
AVO_KERNEL void softcap_softmax_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C cap = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      C* y_row = open_row<C>(a, 1, row, panel, buffer(1));
      C* t1_row = buffer(2);
      C* shifted_row = buffer(3);
      const C t1 = m_recip(cap);
      V t2_lanes = V(lowest<C>());
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V t3 = V(cap) * m_tanh(m_quotient(x, V(cap), V(t1)));
        part.store(t1_row + c, t3);
        t2_lanes = part.amax(t2_lanes, t3);
      });
      const C t2 = hamax(t2_lanes);
      V sum_shifted_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_shifted_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V t3 = part.load(t1_row + c);
          const V shifted = m_exp(t3 - V(t2));
          part.store(shifted_row + c, shifted);
          sum_shifted_block = part.sum(sum_shifted_block, shifted);
        });
        sum_shifted_lanes = sum_shifted_lanes + sum_shifted_block;
      }
      const C sum_shifted = hsum(sum_shifted_lanes);
      const C t3 = m_recip(sum_shifted);
      store_stat<C>(a, 2, row, t2);
      store_stat<C>(a, 3, row, t3);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V shifted = part.load(shifted_row + c);
        part.store(y_row + c, m_quotient(shifted, V(sum_shifted), V(t3)));
      });
      close_row<C>(a, 1, row, panel, y_row);
    }
    store_panel<C>(a, 1, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void softcap_softmax_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C cap = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* y_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 5, row, panel, buffer(3));
      const C statistic0 = load_stat<C>(a, 3, row);
      const C statistic1 = load_stat<C>(a, 4, row);
      const C t1 = m_recip(cap);
      const C t2 = -statistic0;
      V t3_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t3_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V y = part.load(y_row + c);
          const V grad = part.load(grad_row + c);
          t3_block[chain] = part.sum(t3_block[chain], V(statistic1) * y, -grad);
        });
        t3_lanes = t3_lanes + (t3_block[0] + t3_block[1]);
      }
      const C t3 = hsum(t3_lanes);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        const V t4 = m_tanh(m_quotient(x, V(cap), V(t1)));
        const V shifted = m_exp(m_fma(V(cap), t4, V(t2)));
        part.store(grad_x_row + c, m_quotient(m_fma(-t4, t4, V(C(1.0))) * (V(cap) * (shifted * m_fma(V(statistic1), grad, V(t3)))), V(cap), V(t1)));
      });
      close_row<C>(a, 5, row, panel, grad_x_row);
    }
    store_panel<C>(a, 5, panel, buffer(3));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_softcap_softmax[] = {
    {"softcap_softmax_forward", softcap_softmax_forward<float>, softcap_softmax_forward<double>},
    {"softcap_softmax_backward", softcap_softmax_backward<float>, softcap_softmax_backward<double>},
};
AVO_HIDDEN extern const int kernels_softcap_softmax_count = 2;

} // namespace AVO_ISA_NAMESPACE
