// silu: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// x * sigmoid(x)
// Source: Elfwing, Uchibe and Doya, Sigmoid-Weighted Linear Units, arXiv:1702.03118
template <class C>
AVO_KERNEL void silu_forward(const AvoCpuArgs* a, int64_t row_begin, int64_t row_end, int64_t col_begin, int64_t col_end,
    int64_t, void* scratch) {
  using V = Vec<C>;
  for (int64_t c0 = col_begin; c0 < col_end; c0 += 2048) {
    const int64_t n = col_end - c0 < 2048 ? col_end - c0 : 2048;
    for (int64_t row = row_begin; row < row_end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, c0, n, scratch_buffer<C>(scratch, 0, 2048));
      C* y_row = open_row<C>(a, 1, row, c0, n, scratch_buffer<C>(scratch, 1, 2048));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, m_x_sigmoid(x));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

// x * sigmoid(x)
// Source: Elfwing, Uchibe and Doya, Sigmoid-Weighted Linear Units, arXiv:1702.03118
template <class C>
AVO_KERNEL void silu_backward(const AvoCpuArgs* a, int64_t row_begin, int64_t row_end, int64_t col_begin, int64_t col_end,
    int64_t, void* scratch) {
  using V = Vec<C>;
  for (int64_t c0 = col_begin; c0 < col_end; c0 += 2048) {
    const int64_t n = col_end - c0 < 2048 ? col_end - c0 : 2048;
    for (int64_t row = row_begin; row < row_end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, c0, n, scratch_buffer<C>(scratch, 0, 2048));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, scratch_buffer<C>(scratch, 1, 2048));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, scratch_buffer<C>(scratch, 2, 2048));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        const V t1 = m_sigmoid(x);
        part.store(grad_x_row + c, m_fma(t1 * m_sigmoid_rest(x, t1), x * grad, t1 * grad));
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_silu[] = {
    {"silu_forward", silu_forward<float>, silu_forward<double>},
    {"silu_backward", silu_backward<float>, silu_backward<double>},
};
AVO_HIDDEN extern const int kernels_silu_count = 2;

} // namespace AVO_ISA_NAMESPACE
