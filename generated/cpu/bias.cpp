// bias: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// relu(x + bias)
// Source: Nair and Hinton, Rectified Linear Units Improve Restricted Boltzmann Machines, ICML 2010
template <class C>
AVO_KERNEL void bias_relu_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* bias_columns = load_row<C>(a, 1, 0, c_begin, c_end - c_begin, buffer(2));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* bias_row = bias_columns + (c0 - c_begin);
        const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        C* y_row = open_row<C>(a, 2, row, c0, n, buffer(1));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V bias = part.load(bias_row + c);
          part.store(y_row + c, m_max(x + bias, V(C(0.0))));
        });
        close_row<C>(a, 2, row, c0, n, y_row);
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_relu_backward_to_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  zero_partial<C>(a, chunk, 1, 0, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0) + c0;
        const C* y_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V y = part.load(y_row + c);
          const V grad = part.load(grad_row + c);
          part.store(grad_bias_sum + c, part.sum(part.load(grad_bias_sum + c), m_where(m_le(y, V(C(0.0))), V(C(0.0)), grad)));
        });
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_relu_backward_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* y_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V y = part.load(y_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, m_where(m_le(y, V(C(0.0))), V(C(0.0)), grad));
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

template <class C>
AVO_KERNEL void bias_relu_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  zero_partial<C>(a, chunk, 1, 0, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0) + c0;
        const C* y_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V y = part.load(y_row + c);
          const V grad = part.load(grad_row + c);
          const V t1 = m_where(m_le(y, V(C(0.0))), V(C(0.0)), grad);
          part.store(grad_x_row + c, t1);
          part.store(grad_bias_sum + c, part.sum(part.load(grad_bias_sum + c), t1));
        });
        close_row<C>(a, 2, row, c0, n, grad_x_row);
      }
    }
  }
}

// gelu(x + bias): h * Phi(h) = h/2 * erfc(-h/sqrt(2)); 'tanh': h/2 * (1 + tanh(sqrt(2/pi) * (h + 0.044715
//   h^3))); h = x + bias
// Source: Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415
template <class C>
AVO_KERNEL void bias_gelu_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* bias_columns = load_row<C>(a, 1, 0, c_begin, c_end - c_begin, buffer(2));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* bias_row = bias_columns + (c0 - c_begin);
        const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        C* y_row = open_row<C>(a, 2, row, c0, n, buffer(1));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V bias = part.load(bias_row + c);
          const V t1 = x + bias;
          part.store(y_row + c, m_x_ndtr(t1, m_exp_neg_half_sq(t1)));
        });
        close_row<C>(a, 2, row, c0, n, y_row);
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_gelu_forward_tanh(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* bias_columns = load_row<C>(a, 1, 0, c_begin, c_end - c_begin, buffer(2));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* bias_row = bias_columns + (c0 - c_begin);
        const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        C* y_row = open_row<C>(a, 2, row, c0, n, buffer(1));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V bias = part.load(bias_row + c);
          const V t1 = x + bias;
          const V t2 = m_min(m_max(t1, V(C(-30.0))), V(C(30.0)));
          part.store(y_row + c, t1 * m_sigmoid(t2 * V(C(1.5957691216057308)) * m_fma(t2, t2 * V(C(0.044715)), V(C(1.0)))));
        });
        close_row<C>(a, 2, row, c0, n, y_row);
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_gelu_backward_to_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  zero_partial<C>(a, chunk, 1, 0, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* bias_columns = load_row<C>(a, 2, 0, c_begin, c_end - c_begin, buffer(2));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* bias_row = bias_columns + (c0 - c_begin);
        C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0) + c0;
        const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V bias = part.load(bias_row + c);
          const V grad = part.load(grad_row + c);
          const V t1 = x + bias;
          const V t2 = m_exp_neg_half_sq(t1);
          part.store(grad_bias_sum + c, part.sum(part.load(grad_bias_sum + c), m_fma(m_ndtr(t1, t2), grad, t2 * V(C(0.7978845608028654)) * (t1 * V(C(0.5)) * grad))));
        });
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_gelu_backward_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* bias_columns = load_row<C>(a, 2, 0, c_begin, c_end - c_begin, buffer(3));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* bias_row = bias_columns + (c0 - c_begin);
        const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        C* grad_x_row = open_row<C>(a, 3, row, c0, n, buffer(2));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V bias = part.load(bias_row + c);
          const V grad = part.load(grad_row + c);
          const V t1 = x + bias;
          const V t2 = m_exp_neg_half_sq(t1);
          part.store(grad_x_row + c, m_fma(m_ndtr(t1, t2), grad, t2 * V(C(0.7978845608028654)) * (t1 * V(C(0.5)) * grad)));
        });
        close_row<C>(a, 3, row, c0, n, grad_x_row);
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_gelu_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  zero_partial<C>(a, chunk, 1, 0, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* bias_columns = load_row<C>(a, 2, 0, c_begin, c_end - c_begin, buffer(3));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* bias_row = bias_columns + (c0 - c_begin);
        C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0) + c0;
        const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        C* grad_x_row = open_row<C>(a, 3, row, c0, n, buffer(2));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V bias = part.load(bias_row + c);
          const V grad = part.load(grad_row + c);
          const V t1 = x + bias;
          const V t2 = m_exp_neg_half_sq(t1);
          const V t3 = m_fma(m_ndtr(t1, t2), grad, t2 * V(C(0.7978845608028654)) * (t1 * V(C(0.5)) * grad));
          part.store(grad_x_row + c, t3);
          part.store(grad_bias_sum + c, part.sum(part.load(grad_bias_sum + c), t3));
        });
        close_row<C>(a, 3, row, c0, n, grad_x_row);
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_gelu_backward_tanh_to_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  zero_partial<C>(a, chunk, 1, 0, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* bias_columns = load_row<C>(a, 2, 0, c_begin, c_end - c_begin, buffer(2));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* bias_row = bias_columns + (c0 - c_begin);
        C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0) + c0;
        const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V bias = part.load(bias_row + c);
          const V grad = part.load(grad_row + c);
          const V t1 = x + bias;
          const V t2 = m_min(m_max(t1, V(C(-30.0))), V(C(30.0)));
          const V t3 = t2 * V(C(1.5957691216057308));
          const V t4 = t2 * V(C(0.044715));
          const V t5 = m_fma(t2, t4, V(C(1.0)));
          const V t6 = t3 * t5;
          const V t7 = m_sigmoid(t6);
          const V t8 = t1 * grad * (t7 * m_sigmoid_rest(t6, t7));
          const V t9 = t3 * t8;
          part.store(grad_bias_sum + c, part.sum(part.load(grad_bias_sum + c), m_fma(t7, grad, m_where(m_and(m_ge(t1, V(C(-30.0))), m_le(t1, V(C(30.0)))), m_fma(V(C(1.5957691216057308)), t5 * t8, m_fma(V(C(0.044715)), t2 * t9, t4 * t9)), V(C(0.0))))));
        });
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_gelu_backward_tanh_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* bias_columns = load_row<C>(a, 2, 0, c_begin, c_end - c_begin, buffer(3));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* bias_row = bias_columns + (c0 - c_begin);
        const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        C* grad_x_row = open_row<C>(a, 3, row, c0, n, buffer(2));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V bias = part.load(bias_row + c);
          const V grad = part.load(grad_row + c);
          const V t1 = x + bias;
          const V t2 = m_min(m_max(t1, V(C(-30.0))), V(C(30.0)));
          const V t3 = t2 * V(C(1.5957691216057308));
          const V t4 = t2 * V(C(0.044715));
          const V t5 = m_fma(t2, t4, V(C(1.0)));
          const V t6 = t3 * t5;
          const V t7 = m_sigmoid(t6);
          const V t8 = t1 * grad * (t7 * m_sigmoid_rest(t6, t7));
          const V t9 = t3 * t8;
          part.store(grad_x_row + c, m_fma(t7, grad, m_where(m_and(m_ge(t1, V(C(-30.0))), m_le(t1, V(C(30.0)))), m_fma(V(C(1.5957691216057308)), t5 * t8, m_fma(V(C(0.044715)), t2 * t9, t4 * t9)), V(C(0.0)))));
        });
        close_row<C>(a, 3, row, c0, n, grad_x_row);
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_gelu_backward_tanh(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  zero_partial<C>(a, chunk, 1, 0, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* bias_columns = load_row<C>(a, 2, 0, c_begin, c_end - c_begin, buffer(3));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* bias_row = bias_columns + (c0 - c_begin);
        C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0) + c0;
        const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        C* grad_x_row = open_row<C>(a, 3, row, c0, n, buffer(2));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V bias = part.load(bias_row + c);
          const V grad = part.load(grad_row + c);
          const V t1 = x + bias;
          const V t2 = m_min(m_max(t1, V(C(-30.0))), V(C(30.0)));
          const V t3 = t2 * V(C(1.5957691216057308));
          const V t4 = t2 * V(C(0.044715));
          const V t5 = m_fma(t2, t4, V(C(1.0)));
          const V t6 = t3 * t5;
          const V t7 = m_sigmoid(t6);
          const V t8 = t1 * grad * (t7 * m_sigmoid_rest(t6, t7));
          const V t9 = t3 * t8;
          const V t10 = m_fma(t7, grad, m_where(m_and(m_ge(t1, V(C(-30.0))), m_le(t1, V(C(30.0)))), m_fma(V(C(1.5957691216057308)), t5 * t8, m_fma(V(C(0.044715)), t2 * t9, t4 * t9)), V(C(0.0))));
          part.store(grad_x_row + c, t10);
          part.store(grad_bias_sum + c, part.sum(part.load(grad_bias_sum + c), t10));
        });
        close_row<C>(a, 3, row, c0, n, grad_x_row);
      }
    }
  }
}

// h * sigmoid(h), h = x + bias
// Source: Elfwing, Uchibe and Doya, Sigmoid-Weighted Linear Units, arXiv:1702.03118
template <class C>
AVO_KERNEL void bias_silu_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* bias_columns = load_row<C>(a, 1, 0, c_begin, c_end - c_begin, buffer(2));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* bias_row = bias_columns + (c0 - c_begin);
        const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        C* y_row = open_row<C>(a, 2, row, c0, n, buffer(1));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V bias = part.load(bias_row + c);
          part.store(y_row + c, m_x_sigmoid(x + bias));
        });
        close_row<C>(a, 2, row, c0, n, y_row);
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_silu_backward_to_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  zero_partial<C>(a, chunk, 1, 0, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* bias_columns = load_row<C>(a, 2, 0, c_begin, c_end - c_begin, buffer(2));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* bias_row = bias_columns + (c0 - c_begin);
        C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0) + c0;
        const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V bias = part.load(bias_row + c);
          const V grad = part.load(grad_row + c);
          const V t1 = x + bias;
          const V t2 = m_sigmoid(t1);
          part.store(grad_bias_sum + c, part.sum(part.load(grad_bias_sum + c), m_fma(t2 * m_sigmoid_rest(t1, t2), t1 * grad, t2 * grad)));
        });
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_silu_backward_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* bias_columns = load_row<C>(a, 2, 0, c_begin, c_end - c_begin, buffer(3));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* bias_row = bias_columns + (c0 - c_begin);
        const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        C* grad_x_row = open_row<C>(a, 3, row, c0, n, buffer(2));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V bias = part.load(bias_row + c);
          const V grad = part.load(grad_row + c);
          const V t1 = x + bias;
          const V t2 = m_sigmoid(t1);
          part.store(grad_x_row + c, m_fma(t2 * m_sigmoid_rest(t1, t2), t1 * grad, t2 * grad));
        });
        close_row<C>(a, 3, row, c0, n, grad_x_row);
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_silu_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  zero_partial<C>(a, chunk, 1, 0, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* bias_columns = load_row<C>(a, 2, 0, c_begin, c_end - c_begin, buffer(3));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* bias_row = bias_columns + (c0 - c_begin);
        C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0) + c0;
        const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        C* grad_x_row = open_row<C>(a, 3, row, c0, n, buffer(2));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V bias = part.load(bias_row + c);
          const V grad = part.load(grad_row + c);
          const V t1 = x + bias;
          const V t2 = m_sigmoid(t1);
          const V t3 = m_fma(t2 * m_sigmoid_rest(t1, t2), t1 * grad, t2 * grad);
          part.store(grad_x_row + c, t3);
          part.store(grad_bias_sum + c, part.sum(part.load(grad_bias_sum + c), t3));
        });
        close_row<C>(a, 3, row, c0, n, grad_x_row);
      }
    }
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_bias[] = {
    {"bias_relu_forward", bias_relu_forward<float>, bias_relu_forward<double>},
    {"bias_relu_backward_to_bias", bias_relu_backward_to_bias<float>, bias_relu_backward_to_bias<double>},
    {"bias_relu_backward_to_x", bias_relu_backward_to_x<float>, bias_relu_backward_to_x<double>},
    {"bias_relu_backward", bias_relu_backward<float>, bias_relu_backward<double>},
    {"bias_gelu_forward", bias_gelu_forward<float>, bias_gelu_forward<double>},
    {"bias_gelu_forward_tanh", bias_gelu_forward_tanh<float>, bias_gelu_forward_tanh<double>},
    {"bias_gelu_backward_to_bias", bias_gelu_backward_to_bias<float>, bias_gelu_backward_to_bias<double>},
    {"bias_gelu_backward_to_x", bias_gelu_backward_to_x<float>, bias_gelu_backward_to_x<double>},
    {"bias_gelu_backward", bias_gelu_backward<float>, bias_gelu_backward<double>},
    {"bias_gelu_backward_tanh_to_bias", bias_gelu_backward_tanh_to_bias<float>, bias_gelu_backward_tanh_to_bias<double>},
    {"bias_gelu_backward_tanh_to_x", bias_gelu_backward_tanh_to_x<float>, bias_gelu_backward_tanh_to_x<double>},
    {"bias_gelu_backward_tanh", bias_gelu_backward_tanh<float>, bias_gelu_backward_tanh<double>},
    {"bias_silu_forward", bias_silu_forward<float>, bias_silu_forward<double>},
    {"bias_silu_backward_to_bias", bias_silu_backward_to_bias<float>, bias_silu_backward_to_bias<double>},
    {"bias_silu_backward_to_x", bias_silu_backward_to_x<float>, bias_silu_backward_to_x<double>},
    {"bias_silu_backward", bias_silu_backward<float>, bias_silu_backward<double>},
};
AVO_HIDDEN extern const int kernels_bias_count = 16;

} // namespace AVO_ISA_NAMESPACE
