// gelu: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// x * Phi(x) = x/2 * erfc(-x/sqrt(2)); 'tanh': x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
// Source: Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415
template <class C>
AVO_KERNEL void gelu_forward(const AvoCpuArgs* a, int64_t row_begin, int64_t row_end, int64_t col_begin, int64_t col_end,
    int64_t, void* scratch) {
  using V = Vec<C>;
  for (int64_t c0 = col_begin; c0 < col_end; c0 += 2048) {
    const int64_t n = col_end - c0 < 2048 ? col_end - c0 : 2048;
    for (int64_t row = row_begin; row < row_end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, c0, n, scratch_buffer<C>(scratch, 0, 2048));
      C* y_row = open_row<C>(a, 1, row, c0, n, scratch_buffer<C>(scratch, 1, 2048));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, m_x_ndtr(x, m_exp_neg_half_sq(x)));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

// x * Phi(x) = x/2 * erfc(-x/sqrt(2)); 'tanh': x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
// Source: Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415
template <class C>
AVO_KERNEL void gelu_forward_tanh(const AvoCpuArgs* a, int64_t row_begin, int64_t row_end, int64_t col_begin, int64_t col_end,
    int64_t, void* scratch) {
  using V = Vec<C>;
  for (int64_t c0 = col_begin; c0 < col_end; c0 += 2048) {
    const int64_t n = col_end - c0 < 2048 ? col_end - c0 : 2048;
    for (int64_t row = row_begin; row < row_end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, c0, n, scratch_buffer<C>(scratch, 0, 2048));
      C* y_row = open_row<C>(a, 1, row, c0, n, scratch_buffer<C>(scratch, 1, 2048));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V t = m_min(m_max(x, V(C(-30.0))), V(C(30.0)));
        const V u = t * V(C(1.5957691216057308)) * m_fma(t, t * V(C(0.044715)), V(C(1.0)));
        part.store(y_row + c, x * m_sigmoid(u));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

// x * Phi(x) = x/2 * erfc(-x/sqrt(2)); 'tanh': x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
// Source: Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415
template <class C>
AVO_KERNEL void gelu_backward(const AvoCpuArgs* a, int64_t row_begin, int64_t row_end, int64_t col_begin, int64_t col_end,
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
        const V t1 = m_exp_neg_half_sq(x);
        part.store(grad_x_row + c, m_fma(m_ndtr(x, t1), grad, t1 * V(C(0.7978845608028654)) * (x * V(C(0.5)) * grad)));
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

// x * Phi(x) = x/2 * erfc(-x/sqrt(2)); 'tanh': x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
// Source: Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415
template <class C>
AVO_KERNEL void gelu_backward_tanh(const AvoCpuArgs* a, int64_t row_begin, int64_t row_end, int64_t col_begin, int64_t col_end,
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
        const V t = m_min(m_max(x, V(C(-30.0))), V(C(30.0)));
        const V t1 = t * V(C(1.5957691216057308));
        const V t2 = t * V(C(0.044715));
        const V t3 = m_fma(t, t2, V(C(1.0)));
        const V u = t1 * t3;
        const V t4 = m_sigmoid(u);
        const V t5 = x * grad * (t4 * m_sigmoid_rest(u, t4));
        const V t6 = t1 * t5;
        part.store(grad_x_row + c, m_fma(t4, grad, m_where(m_and(m_ge(x, V(C(-30.0))), m_le(x, V(C(30.0)))), m_fma(V(C(1.5957691216057308)), t3 * t5, m_fma(V(C(0.044715)), t * t6, t2 * t6)), V(C(0.0)))));
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_gelu[] = {
    {"gelu_forward", gelu_forward<float>, gelu_forward<double>},
    {"gelu_forward_tanh", gelu_forward_tanh<float>, gelu_forward_tanh<double>},
    {"gelu_backward", gelu_backward<float>, gelu_backward<double>},
    {"gelu_backward_tanh", gelu_backward_tanh<float>, gelu_backward_tanh<double>},
};
AVO_HIDDEN extern const int kernels_gelu_count = 4;

} // namespace AVO_ISA_NAMESPACE
