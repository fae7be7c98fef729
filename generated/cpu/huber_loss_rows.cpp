// huber_loss_rows: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// sum of d^2 / 2 where d = |x - target| <= delta, delta (d - delta / 2) beyond, over the last dim
// Source: Huber, Robust Estimation of a Location Parameter, Ann. Math. Statist. 35 (1964), 73-101
template <class C>
AVO_KERNEL void huber_loss_rows_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C delta = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* target_row = load_row<C>(a, 1, row, panel, buffer(1));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V target = part.load(target_row + c);
          const V distance = m_abs(x - target);
          const V inner = m_min(V(delta), distance);
          t1_block[chain] = part.sum(t1_block[chain], inner, m_fma(-inner, V(C(0.5)), distance));
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      store_stat<C>(a, 2, row, t1);
    }
  }
}

template <class C>
AVO_KERNEL void huber_loss_rows_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C delta = C(a->scalars[0]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* target_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 3, row, c0, n, buffer(2));
      C* grad_target_row = open_row<C>(a, 4, row, c0, n, buffer(3));
      const C grad = load_stat<C>(a, 2, row);
      const C t1 = -delta;
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V target = part.load(target_row + c);
        const V slope = m_min(V(delta), m_max(x - target, V(t1))) * V(grad);
        part.store(grad_x_row + c, slope);
        part.store(grad_target_row + c, -slope);
      });
      close_row<C>(a, 3, row, c0, n, grad_x_row);
      close_row<C>(a, 4, row, c0, n, grad_target_row);
    }
  }
}

template <class C>
AVO_KERNEL void huber_loss_rows_backward_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C delta = C(a->scalars[0]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* target_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 3, row, c0, n, buffer(2));
      const C grad = load_stat<C>(a, 2, row);
      const C t1 = -delta;
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V target = part.load(target_row + c);
        const V slope = m_min(V(delta), m_max(x - target, V(t1))) * V(grad);
        part.store(grad_x_row + c, slope);
      });
      close_row<C>(a, 3, row, c0, n, grad_x_row);
    }
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_huber_loss_rows[] = {
    {"huber_loss_rows_forward", huber_loss_rows_forward<float>, huber_loss_rows_forward<double>},
    {"huber_loss_rows_backward", huber_loss_rows_backward<float>, huber_loss_rows_backward<double>},
    {"huber_loss_rows_backward_to_x", huber_loss_rows_backward_to_x<float>, huber_loss_rows_backward_to_x<double>},
};
AVO_HIDDEN extern const int kernels_huber_loss_rows_count = 3;

} // namespace AVO_ISA_NAMESPACE
