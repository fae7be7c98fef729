// activations: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// max(x, 0)
// Source: Nair and Hinton, Rectified Linear Units Improve Restricted Boltzmann Machines, ICML 2010
template <class C>
AVO_KERNEL void relu_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, m_max(x, V(C(0.0))));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void relu_backward(AVO_PARAMETERS) {
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

// x if x > 0 else negative_slope * x
// Source: Maas, Hannun and Ng, Rectifier Nonlinearities Improve Neural Network Acoustic Models, ICML 2013
template <class C>
AVO_KERNEL void leaky_relu_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C negative_slope = C(a->scalars[0]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, m_where(m_gt(x, V(C(0.0))), x, x * V(negative_slope)));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void leaky_relu_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C negative_slope = C(a->scalars[0]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, m_where(m_gt(x, V(C(0.0))), grad, V(negative_slope) * grad));
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

// max(x, 0)^2
// Source: So et al., Primer: Searching for Efficient Transformers for Language Modeling, arXiv:2109.08668
template <class C>
AVO_KERNEL void squared_relu_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V r = m_max(x, V(C(0.0)));
        part.store(y_row + c, r * r);
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void squared_relu_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        const V r = m_max(x, V(C(0.0)));
        part.store(grad_x_row + c, r * V(C(2.0)) * grad);
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

// min(max(x, min_val), max_val)
// Source: Collobert, Large Scale Machine Learning, thesis, Université Paris 6, 2004
template <class C>
AVO_KERNEL void hardtanh_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C max_val = C(a->scalars[0]);
  const C min_val = C(a->scalars[1]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, m_where(m_ge(x, V(max_val)), V(max_val), m_where(m_le(x, V(min_val)), V(min_val), x)));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void hardtanh_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C min_val = C(a->scalars[0]);
  const C max_val = C(a->scalars[1]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, m_where(m_le(x, V(min_val)), V(C(0.0)), m_where(m_ge(x, V(max_val)), V(C(0.0)), grad)));
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

// min(max(x + 3, 0), 6) / 6
// Source: Howard et al., Searching for MobileNetV3, arXiv:1905.02244
template <class C>
AVO_KERNEL void hardsigmoid_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, m_where(m_ge(x, V(C(3.0))), V(C(1.0)), m_where(m_le(x, V(C(-3.0))), V(C(0.0)), (x + V(C(3.0))) * V(C(0.16666666666666666)))));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void hardsigmoid_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, V(C(0.16666666666666666)) * m_where(m_le(x, V(C(-3.0))), V(C(0.0)), m_where(m_ge(x, V(C(3.0))), V(C(0.0)), grad)));
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

// x * min(max(x + 3, 0), 6) / 6
// Source: Howard et al., Searching for MobileNetV3, arXiv:1905.02244
template <class C>
AVO_KERNEL void hardswish_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, m_where(m_ge(x, V(C(3.0))), x, m_where(m_le(x, V(C(-3.0))), V(C(-0.0)), x * (x + V(C(3.0))) * V(C(0.16666666666666666)))));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void hardswish_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        const V inside = grad * m_fma(x, V(C(0.3333333333333333)), V(C(0.5)));
        part.store(grad_x_row + c, m_where(m_ge(x, V(C(3.0))), grad, m_where(m_le(x, V(C(-3.0))), V(C(0.0)), inside)));
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

// x if x > 0 else alpha * (exp(x) - 1)
// Source: Clevert, Unterthiner and Hochreiter, Exponential Linear Units, arXiv:1511.07289
template <class C>
AVO_KERNEL void elu_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C alpha = C(a->scalars[0]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, m_where(m_gt(x, V(C(0.0))), x, V(alpha) * m_expm1(m_min(x, V(C(0.0))))));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void elu_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C alpha = C(a->scalars[0]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, m_where(m_gt(x, V(C(0.0))), grad, V(alpha) * m_exp(m_min(x, V(C(0.0)))) * grad));
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

// 1.0507 x if x > 0 else 1.0507 * 1.6733 * (exp(x) - 1)
// Source: Klambauer et al., Self-Normalizing Neural Networks, arXiv:1706.02515
template <class C>
AVO_KERNEL void selu_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, m_where(m_gt(x, V(C(0.0))), x * V(C(1.0507009873554805)), m_expm1(m_min(x, V(C(0.0)))) * V(C(1.7580993408473766))));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void selu_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        const V below = V(C(1.7580993408473766)) * m_exp(m_min(x, V(C(0.0))));
        part.store(grad_x_row + c, m_where(m_gt(x, V(C(0.0))), V(C(1.0507009873554805)), below) * grad);
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

// x if x > 0 else alpha * (exp(x / alpha) - 1)
// Source: Barron, Continuously Differentiable Exponential Linear Units, arXiv:1704.07483
template <class C>
AVO_KERNEL void celu_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C alpha = C(a->scalars[0]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      const C t1 = m_recip(alpha);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, m_where(m_gt(x, V(C(0.0))), x, V(alpha) * m_expm1(m_quotient(m_min(x, V(C(0.0))), V(alpha), V(t1)))));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void celu_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C alpha = C(a->scalars[0]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      const C t1 = m_recip(alpha);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, m_where(m_gt(x, V(C(0.0))), grad, grad * m_exp(m_quotient(m_min(x, V(C(0.0))), V(alpha), V(t1)))));
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

// 1 / (1 + exp(-x))
// Source: Han and Moraga, The influence of the sigmoid function parameters on backpropagation learning, IWANN
//   1995
template <class C>
AVO_KERNEL void sigmoid_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, m_sigmoid(x));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void sigmoid_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        const V t1 = m_sigmoid(x);
        part.store(grad_x_row + c, t1 * (m_sigmoid_rest(x, t1) * grad));
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

// (exp(x) - exp(-x)) / (exp(x) + exp(-x))
// Source: LeCun, Bottou, Orr and Müller, Efficient BackProp, 1998
template <class C>
AVO_KERNEL void tanh_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, m_tanh(x));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void tanh_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* grad_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* y_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V grad = part.load(grad_row + c);
        const V y = part.load(y_row + c);
        part.store(grad_x_row + c, grad * m_fma(-y, y, V(C(1.0))));
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

// log(sigmoid(x)) = min(x, 0) - log(1 + exp(-|x|))
// Source: Goodfellow, Bengio and Courville, Deep Learning, MIT Press 2016, section 3.10
template <class C>
AVO_KERNEL void logsigmoid_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, m_min(x, V(C(0.0))) - m_log1p(m_exp(-m_abs(x))));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void logsigmoid_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, m_sigmoid(-x) * grad);
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

// log(1 + exp(beta x)) / beta, or x where beta x > threshold
// Source: Dugas et al., Incorporating Second-Order Functional Knowledge for Better Option Pricing, NIPS 2000
template <class C>
AVO_KERNEL void softplus_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C beta = C(a->scalars[0]);
  const C threshold = C(a->scalars[1]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      const C t1 = m_recip(beta);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V u = x * V(beta);
        part.store(y_row + c, m_where(m_or(m_gt(u, V(threshold)), m_gt(u, V(C(50.0)))), x, m_quotient(m_log1p(m_exp(m_min(u, V(C(50.0))))), V(beta), V(t1))));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void softplus_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C beta = C(a->scalars[0]);
  const C threshold = C(a->scalars[1]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        const V u = x * V(beta);
        part.store(grad_x_row + c, m_where(m_gt(u, V(threshold)), grad, m_sigmoid(u) * grad));
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

// x * Phi(x) = x/2 * erfc(-x/sqrt(2)); 'tanh': x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
// Source: Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415
template <class C>
AVO_KERNEL void gelu_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, m_x_ndtr(x, m_exp_neg_half_sq(x)));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void gelu_forward_tanh(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V t1 = m_min(m_max(x, V(C(-30.0))), V(C(30.0)));
        part.store(y_row + c, x * m_sigmoid(t1 * V(C(1.5957691216057308)) * m_fma(t1, t1 * V(C(0.044715)), V(C(1.0)))));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void gelu_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
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

template <class C>
AVO_KERNEL void gelu_backward_tanh(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        const V t1 = m_min(m_max(x, V(C(-30.0))), V(C(30.0)));
        const V t2 = t1 * V(C(1.5957691216057308));
        const V t3 = t1 * V(C(0.044715));
        const V t4 = m_fma(t1, t3, V(C(1.0)));
        const V t5 = t2 * t4;
        const V t6 = m_sigmoid(t5);
        const V t7 = x * grad * (t6 * m_sigmoid_rest(t5, t6));
        const V t8 = t2 * t7;
        part.store(grad_x_row + c, m_fma(t6, grad, m_where(m_and(m_ge(x, V(C(-30.0))), m_le(x, V(C(30.0)))), m_fma(V(C(1.5957691216057308)), t4 * t7, m_fma(V(C(0.044715)), t1 * t8, t3 * t8)), V(C(0.0)))));
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

// x * sigmoid(x)
// Source: Elfwing, Uchibe and Doya, Sigmoid-Weighted Linear Units, arXiv:1702.03118
template <class C>
AVO_KERNEL void silu_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, m_x_sigmoid(x));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void silu_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
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

// x * sigmoid(1.702 x)
// Source: Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415 (section 2, as in CLIP)
template <class C>
AVO_KERNEL void quick_gelu_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, x * m_sigmoid(x * V(C(1.702))));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void quick_gelu_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        const V t1 = x * V(C(1.702));
        const V t2 = m_sigmoid(t1);
        part.store(grad_x_row + c, m_fma(V(C(1.702)), t2 * m_sigmoid_rest(t1, t2) * (x * grad), t2 * grad));
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

// x * tanh(log(1 + exp(x)))
// Source: Misra, Mish: A Self Regularized Non-Monotonic Activation Function, arXiv:1908.08681
template <class C>
AVO_KERNEL void mish_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 1, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V t = m_min(x, V(C(20.0)));
        const V e = m_exp(t);
        const V t1 = m_fma(e, e, e * V(C(2.0)));
        part.store(y_row + c, x * (t1 / (V(C(2.0)) + t1)));
      });
      close_row<C>(a, 1, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void mish_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V grad = part.load(grad_row + c);
        const V t = m_min(x, V(C(20.0)));
        const V e = m_exp(t);
        const V t1 = m_fma(e, e, e * V(C(2.0)));
        const V r = m_recip(V(C(2.0)) + t1);
        const V slope = r * m_fma(t, e * (e + V(C(1.0))) * V(C(4.0)) * r, t1);
        part.store(grad_x_row + c, m_where(m_gt(x, V(C(20.0))), grad, grad * slope));
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_activations[] = {
    {"relu_forward", relu_forward<float>, relu_forward<double>},
    {"relu_backward", relu_backward<float>, relu_backward<double>},
    {"leaky_relu_forward", leaky_relu_forward<float>, leaky_relu_forward<double>},
    {"leaky_relu_backward", leaky_relu_backward<float>, leaky_relu_backward<double>},
    {"squared_relu_forward", squared_relu_forward<float>, squared_relu_forward<double>},
    {"squared_relu_backward", squared_relu_backward<float>, squared_relu_backward<double>},
    {"hardtanh_forward", hardtanh_forward<float>, hardtanh_forward<double>},
    {"hardtanh_backward", hardtanh_backward<float>, hardtanh_backward<double>},
    {"hardsigmoid_forward", hardsigmoid_forward<float>, hardsigmoid_forward<double>},
    {"hardsigmoid_backward", hardsigmoid_backward<float>, hardsigmoid_backward<double>},
    {"hardswish_forward", hardswish_forward<float>, hardswish_forward<double>},
    {"hardswish_backward", hardswish_backward<float>, hardswish_backward<double>},
    {"elu_forward", elu_forward<float>, elu_forward<double>},
    {"elu_backward", elu_backward<float>, elu_backward<double>},
    {"selu_forward", selu_forward<float>, selu_forward<double>},
    {"selu_backward", selu_backward<float>, selu_backward<double>},
    {"celu_forward", celu_forward<float>, celu_forward<double>},
    {"celu_backward", celu_backward<float>, celu_backward<double>},
    {"sigmoid_forward", sigmoid_forward<float>, sigmoid_forward<double>},
    {"sigmoid_backward", sigmoid_backward<float>, sigmoid_backward<double>},
    {"tanh_forward", tanh_forward<float>, tanh_forward<double>},
    {"tanh_backward", tanh_backward<float>, tanh_backward<double>},
    {"logsigmoid_forward", logsigmoid_forward<float>, logsigmoid_forward<double>},
    {"logsigmoid_backward", logsigmoid_backward<float>, logsigmoid_backward<double>},
    {"softplus_forward", softplus_forward<float>, softplus_forward<double>},
    {"softplus_backward", softplus_backward<float>, softplus_backward<double>},
    {"gelu_forward", gelu_forward<float>, gelu_forward<double>},
    {"gelu_forward_tanh", gelu_forward_tanh<float>, gelu_forward_tanh<double>},
    {"gelu_backward", gelu_backward<float>, gelu_backward<double>},
    {"gelu_backward_tanh", gelu_backward_tanh<float>, gelu_backward_tanh<double>},
    {"silu_forward", silu_forward<float>, silu_forward<double>},
    {"silu_backward", silu_backward<float>, silu_backward<double>},
    {"quick_gelu_forward", quick_gelu_forward<float>, quick_gelu_forward<double>},
    {"quick_gelu_backward", quick_gelu_backward<float>, quick_gelu_backward<double>},
    {"mish_forward", mish_forward<float>, mish_forward<double>},
    {"mish_backward", mish_backward<float>, mish_backward<double>},
};
AVO_HIDDEN extern const int kernels_activations_count = 36;

} // namespace AVO_ISA_NAMESPACE
