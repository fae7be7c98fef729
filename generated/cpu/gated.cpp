// gated: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// x * sigmoid(gate)
// Source: Dauphin et al., Language Modeling with Gated Convolutional Networks, arXiv:1612.08083
template <class C>
AVO_KERNEL void sigmoid_gate_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V gate = part.load(gate_row + c);
        part.store(y_row + c, x * m_sigmoid(gate));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void sigmoid_gate_backward_to_gate(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* grad_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V gate = part.load(gate_row + c);
        const V grad = part.load(grad_row + c);
        const V t1 = m_sigmoid(gate);
        part.store(grad_gate_row + c, x * (t1 * m_sigmoid_rest(gate, t1)) * grad);
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
    }
  }
}

template <class C>
AVO_KERNEL void sigmoid_gate_backward_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* gate_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V gate = part.load(gate_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, m_sigmoid(gate) * grad);
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

template <class C>
AVO_KERNEL void sigmoid_gate_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* gate_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* x_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_x_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      C* grad_gate_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V gate = part.load(gate_row + c);
        const V grad = part.load(grad_row + c);
        const V x = part.load(x_row + c);
        const V t1 = m_sigmoid(gate);
        part.store(grad_x_row + c, t1 * grad);
        part.store(grad_gate_row + c, x * (t1 * m_sigmoid_rest(gate, t1)) * grad);
      });
      close_row<C>(a, 3, row, c0, n, grad_x_row);
      close_row<C>(a, 4, row, c0, n, grad_gate_row);
    }
  }
}

// max(gate, 0) * up
// Source: Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202
template <class C>
AVO_KERNEL void reglu_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V gate = part.load(gate_row + c);
        part.store(y_row + c, up * m_max(gate, V(C(0.0))));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void reglu_backward_to_up(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* gate_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_up_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V gate = part.load(gate_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_up_row + c, m_max(gate, V(C(0.0))) * grad);
      });
      close_row<C>(a, 2, row, c0, n, grad_up_row);
    }
  }
}

template <class C>
AVO_KERNEL void reglu_backward_to_gate(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* gate_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* up_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* grad_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V gate = part.load(gate_row + c);
        const V up = part.load(up_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_gate_row + c, m_where(m_le(m_max(gate, V(C(0.0))), V(C(0.0))), V(C(0.0)), up * grad));
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
    }
  }
}

template <class C>
AVO_KERNEL void reglu_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* gate_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* up_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* grad_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      C* grad_up_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V gate = part.load(gate_row + c);
        const V up = part.load(up_row + c);
        const V grad = part.load(grad_row + c);
        const V t1 = m_max(gate, V(C(0.0)));
        part.store(grad_gate_row + c, m_where(m_le(t1, V(C(0.0))), V(C(0.0)), up * grad));
        part.store(grad_up_row + c, t1 * grad);
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
      close_row<C>(a, 4, row, c0, n, grad_up_row);
    }
  }
}

// gelu(gate) * up
// Source: Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202
template <class C>
AVO_KERNEL void geglu_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V gate = part.load(gate_row + c);
        part.store(y_row + c, up * m_x_ndtr(gate, m_exp_neg_half_sq(gate)));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void geglu_forward_tanh(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V gate = part.load(gate_row + c);
        const V t = m_min(m_max(gate, V(C(-30.0))), V(C(30.0)));
        const V s = m_sigmoid(t * V(C(1.5957691216057308)) * m_fma(t, t * V(C(0.044715)), V(C(1.0))));
        part.store(y_row + c, up * (gate * s));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void geglu_backward_to_up(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* gate_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_up_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V gate = part.load(gate_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_up_row + c, m_x_ndtr(gate, m_exp_neg_half_sq(gate)) * grad);
      });
      close_row<C>(a, 2, row, c0, n, grad_up_row);
    }
  }
}

template <class C>
AVO_KERNEL void geglu_backward_to_gate(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* gate_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V grad = part.load(grad_row + c);
        const V gate = part.load(gate_row + c);
        const V t1 = m_exp_neg_half_sq(gate);
        part.store(grad_gate_row + c, up * grad * m_fma(gate, t1 * V(C(0.3989422804014327)), m_ndtr(gate, t1)));
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
    }
  }
}

template <class C>
AVO_KERNEL void geglu_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* gate_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      C* grad_up_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V grad = part.load(grad_row + c);
        const V gate = part.load(gate_row + c);
        const V t1 = m_exp_neg_half_sq(gate);
        part.store(grad_gate_row + c, up * grad * m_fma(gate, t1 * V(C(0.3989422804014327)), m_ndtr(gate, t1)));
        part.store(grad_up_row + c, m_x_ndtr(gate, t1) * grad);
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
      close_row<C>(a, 4, row, c0, n, grad_up_row);
    }
  }
}

template <class C>
AVO_KERNEL void geglu_backward_tanh_to_up(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* gate_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_up_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V gate = part.load(gate_row + c);
        const V grad = part.load(grad_row + c);
        const V t = m_min(m_max(gate, V(C(-30.0))), V(C(30.0)));
        const V s = m_sigmoid(t * V(C(1.5957691216057308)) * m_fma(t, t * V(C(0.044715)), V(C(1.0))));
        part.store(grad_up_row + c, gate * s * grad);
      });
      close_row<C>(a, 2, row, c0, n, grad_up_row);
    }
  }
}

template <class C>
AVO_KERNEL void geglu_backward_tanh_to_gate(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* gate_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V grad = part.load(grad_row + c);
        const V gate = part.load(gate_row + c);
        const V t = m_min(m_max(gate, V(C(-30.0))), V(C(30.0)));
        const V du = V(C(1.5957691216057308)) * m_fma(t * t, V(C(0.134145)), V(C(1.0)));
        const V t1 = t * V(C(1.5957691216057308)) * m_fma(t, t * V(C(0.044715)), V(C(1.0)));
        const V s = m_sigmoid(t1);
        part.store(grad_gate_row + c, up * grad * m_fma(du, t * (s * m_sigmoid_rest(t1, s)), s));
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
    }
  }
}

template <class C>
AVO_KERNEL void geglu_backward_tanh(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* gate_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      C* grad_up_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V grad = part.load(grad_row + c);
        const V gate = part.load(gate_row + c);
        const V t = m_min(m_max(gate, V(C(-30.0))), V(C(30.0)));
        const V du = V(C(1.5957691216057308)) * m_fma(t * t, V(C(0.134145)), V(C(1.0)));
        const V t1 = t * V(C(1.5957691216057308)) * m_fma(t, t * V(C(0.044715)), V(C(1.0)));
        const V s = m_sigmoid(t1);
        part.store(grad_gate_row + c, up * grad * m_fma(du, t * (s * m_sigmoid_rest(t1, s)), s));
        part.store(grad_up_row + c, gate * s * grad);
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
      close_row<C>(a, 4, row, c0, n, grad_up_row);
    }
  }
}

// gate * sigmoid(gate) * up
// Source: Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202
template <class C>
AVO_KERNEL void swiglu_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V gate = part.load(gate_row + c);
        part.store(y_row + c, up * m_x_sigmoid(gate));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void swiglu_backward_to_up(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* gate_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_up_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V gate = part.load(gate_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_up_row + c, m_x_sigmoid(gate) * grad);
      });
      close_row<C>(a, 2, row, c0, n, grad_up_row);
    }
  }
}

template <class C>
AVO_KERNEL void swiglu_backward_to_gate(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* gate_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V grad = part.load(grad_row + c);
        const V gate = part.load(gate_row + c);
        const V s = m_sigmoid(gate);
        part.store(grad_gate_row + c, up * grad * m_fma(gate, s * m_sigmoid_rest(gate, s), s));
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
    }
  }
}

template <class C>
AVO_KERNEL void swiglu_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* gate_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      C* grad_up_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V grad = part.load(grad_row + c);
        const V gate = part.load(gate_row + c);
        const V s = m_sigmoid(gate);
        part.store(grad_gate_row + c, up * grad * m_fma(gate, s * m_sigmoid_rest(gate, s), s));
        part.store(grad_up_row + c, m_x_sigmoid(gate) * grad);
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
      close_row<C>(a, 4, row, c0, n, grad_up_row);
    }
  }
}

// g * sigmoid(alpha g) * (u + 1); g = min(gate, limit), u = min(max(up, -limit), limit)
// Source: OpenAI, gpt-oss-120b and gpt-oss-20b Model Card, arXiv:2508.10925, and its published code
template <class C>
AVO_KERNEL void swiglu_oai_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C limit = C(a->scalars[0]);
  const C alpha = C(a->scalars[1]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      const C t1 = -limit;
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V gate = part.load(gate_row + c);
        const V g = m_min(gate, V(limit));
        const V s = m_sigmoid(V(alpha) * g);
        part.store(y_row + c, (m_min(V(limit), m_max(up, V(t1))) + V(C(1.0))) * (g * s));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void swiglu_oai_backward_to_up(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C limit = C(a->scalars[0]);
  const C alpha = C(a->scalars[1]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* grad_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_up_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      const C t1 = -limit;
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V gate = part.load(gate_row + c);
        const V grad = part.load(grad_row + c);
        const V g = m_min(gate, V(limit));
        const V s = m_sigmoid(V(alpha) * g);
        const V of_up = g * s * grad;
        part.store(grad_up_row + c, m_where(m_and(m_ge(up, V(t1)), m_le(up, V(limit))), of_up, V(C(0.0))));
      });
      close_row<C>(a, 3, row, c0, n, grad_up_row);
    }
  }
}

template <class C>
AVO_KERNEL void swiglu_oai_backward_to_gate(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C limit = C(a->scalars[0]);
  const C alpha = C(a->scalars[1]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* gate_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* up_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* grad_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      const C t1 = -limit;
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V gate = part.load(gate_row + c);
        const V up = part.load(up_row + c);
        const V grad = part.load(grad_row + c);
        const V g = m_min(gate, V(limit));
        const V t2 = V(alpha) * g;
        const V s = m_sigmoid(t2);
        const V of_gate = (m_min(V(limit), m_max(up, V(t1))) + V(C(1.0))) * grad * m_fma(V(alpha), g * (s * m_sigmoid_rest(t2, s)), s);
        part.store(grad_gate_row + c, m_where(m_le(gate, V(limit)), of_gate, V(C(0.0))));
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
    }
  }
}

template <class C>
AVO_KERNEL void swiglu_oai_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C limit = C(a->scalars[0]);
  const C alpha = C(a->scalars[1]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* gate_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* up_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* grad_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      C* grad_up_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      const C t1 = -limit;
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V gate = part.load(gate_row + c);
        const V up = part.load(up_row + c);
        const V grad = part.load(grad_row + c);
        const V g = m_min(gate, V(limit));
        const V t2 = V(alpha) * g;
        const V s = m_sigmoid(t2);
        const V of_gate = (m_min(V(limit), m_max(up, V(t1))) + V(C(1.0))) * grad * m_fma(V(alpha), g * (s * m_sigmoid_rest(t2, s)), s);
        const V of_up = g * s * grad;
        part.store(grad_gate_row + c, m_where(m_le(gate, V(limit)), of_gate, V(C(0.0))));
        part.store(grad_up_row + c, m_where(m_and(m_ge(up, V(t1)), m_le(up, V(limit))), of_up, V(C(0.0))));
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
      close_row<C>(a, 4, row, c0, n, grad_up_row);
    }
  }
}

// a * sigmoid(b); a, b = the halves of x along dim
// Source: Dauphin et al., Language Modeling with Gated Convolutional Networks, arXiv:1612.08083
template <class C>
AVO_KERNEL void glu_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* half_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V half = part.load(half_row + c);
        const V gate = part.load(gate_row + c);
        part.store(y_row + c, half * m_sigmoid(gate));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void glu_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* gate_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* half_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_half_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      C* grad_gate_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V gate = part.load(gate_row + c);
        const V grad = part.load(grad_row + c);
        const V half = part.load(half_row + c);
        const V t1 = m_sigmoid(gate);
        part.store(grad_half_row + c, t1 * grad);
        part.store(grad_gate_row + c, half * (t1 * m_sigmoid_rest(gate, t1)) * grad);
      });
      close_row<C>(a, 3, row, c0, n, grad_half_row);
      close_row<C>(a, 4, row, c0, n, grad_gate_row);
    }
  }
}

// max(gate, 0) * up; gate, up = the halves of the last dim of x
// Source: Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202
template <class C>
AVO_KERNEL void reglu_packed_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V gate = part.load(gate_row + c);
        part.store(y_row + c, up * m_max(gate, V(C(0.0))));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void reglu_packed_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* gate_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* up_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* grad_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      C* grad_up_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V gate = part.load(gate_row + c);
        const V up = part.load(up_row + c);
        const V grad = part.load(grad_row + c);
        const V t1 = m_max(gate, V(C(0.0)));
        part.store(grad_gate_row + c, m_where(m_le(t1, V(C(0.0))), V(C(0.0)), up * grad));
        part.store(grad_up_row + c, t1 * grad);
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
      close_row<C>(a, 4, row, c0, n, grad_up_row);
    }
  }
}

// gelu(gate) * up; gate, up = the halves of the last dim of x
// Source: Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202
template <class C>
AVO_KERNEL void geglu_packed_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V gate = part.load(gate_row + c);
        part.store(y_row + c, up * m_x_ndtr(gate, m_exp_neg_half_sq(gate)));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void geglu_packed_forward_tanh(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V gate = part.load(gate_row + c);
        const V t = m_min(m_max(gate, V(C(-30.0))), V(C(30.0)));
        const V s = m_sigmoid(t * V(C(1.5957691216057308)) * m_fma(t, t * V(C(0.044715)), V(C(1.0))));
        part.store(y_row + c, up * (gate * s));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void geglu_packed_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* gate_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      C* grad_up_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V grad = part.load(grad_row + c);
        const V gate = part.load(gate_row + c);
        const V t1 = m_exp_neg_half_sq(gate);
        part.store(grad_gate_row + c, up * grad * m_fma(gate, t1 * V(C(0.3989422804014327)), m_ndtr(gate, t1)));
        part.store(grad_up_row + c, m_x_ndtr(gate, t1) * grad);
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
      close_row<C>(a, 4, row, c0, n, grad_up_row);
    }
  }
}

template <class C>
AVO_KERNEL void geglu_packed_backward_tanh(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* gate_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      C* grad_up_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V grad = part.load(grad_row + c);
        const V gate = part.load(gate_row + c);
        const V t = m_min(m_max(gate, V(C(-30.0))), V(C(30.0)));
        const V du = V(C(1.5957691216057308)) * m_fma(t * t, V(C(0.134145)), V(C(1.0)));
        const V t1 = t * V(C(1.5957691216057308)) * m_fma(t, t * V(C(0.044715)), V(C(1.0)));
        const V s = m_sigmoid(t1);
        part.store(grad_gate_row + c, up * grad * m_fma(du, t * (s * m_sigmoid_rest(t1, s)), s));
        part.store(grad_up_row + c, gate * s * grad);
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
      close_row<C>(a, 4, row, c0, n, grad_up_row);
    }
  }
}

// gate * sigmoid(gate) * up; gate, up = the halves of the last dim of x
// Source: Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202
template <class C>
AVO_KERNEL void swiglu_packed_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V gate = part.load(gate_row + c);
        part.store(y_row + c, up * m_x_sigmoid(gate));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void swiglu_packed_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* gate_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      C* grad_up_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V grad = part.load(grad_row + c);
        const V gate = part.load(gate_row + c);
        const V s = m_sigmoid(gate);
        part.store(grad_gate_row + c, up * grad * m_fma(gate, s * m_sigmoid_rest(gate, s), s));
        part.store(grad_up_row + c, m_x_sigmoid(gate) * grad);
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
      close_row<C>(a, 4, row, c0, n, grad_up_row);
    }
  }
}

// g * sigmoid(alpha g) * (u + 1); g = min(gate, limit), u = min(max(up, -limit), limit); gate, up = the
//   halves of the last dim of x
// Source: OpenAI, gpt-oss-120b and gpt-oss-20b Model Card, arXiv:2508.10925, and its published code
template <class C>
AVO_KERNEL void swiglu_oai_packed_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C limit = C(a->scalars[0]);
  const C alpha = C(a->scalars[1]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      const C t1 = -limit;
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V gate = part.load(gate_row + c);
        const V g = m_min(gate, V(limit));
        const V s = m_sigmoid(V(alpha) * g);
        part.store(y_row + c, (m_min(V(limit), m_max(up, V(t1))) + V(C(1.0))) * (g * s));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void swiglu_oai_packed_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C limit = C(a->scalars[0]);
  const C alpha = C(a->scalars[1]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* gate_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* up_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* grad_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      C* grad_up_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      const C t1 = -limit;
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V gate = part.load(gate_row + c);
        const V up = part.load(up_row + c);
        const V grad = part.load(grad_row + c);
        const V g = m_min(gate, V(limit));
        const V t2 = V(alpha) * g;
        const V s = m_sigmoid(t2);
        const V of_gate = (m_min(V(limit), m_max(up, V(t1))) + V(C(1.0))) * grad * m_fma(V(alpha), g * (s * m_sigmoid_rest(t2, s)), s);
        const V of_up = g * s * grad;
        part.store(grad_gate_row + c, m_where(m_le(gate, V(limit)), of_gate, V(C(0.0))));
        part.store(grad_up_row + c, m_where(m_and(m_ge(up, V(t1)), m_le(up, V(limit))), of_up, V(C(0.0))));
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
      close_row<C>(a, 4, row, c0, n, grad_up_row);
    }
  }
}

// gate * sigmoid(gate) * up; gate, up = x[..., 0::2], x[..., 1::2]
// Source: Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202
template <class C>
AVO_KERNEL void swiglu_interleaved_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V gate = part.load(gate_row + c);
        part.store(y_row + c, up * m_x_sigmoid(gate));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void swiglu_interleaved_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* gate_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      C* grad_up_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V grad = part.load(grad_row + c);
        const V gate = part.load(gate_row + c);
        const V s = m_sigmoid(gate);
        part.store(grad_gate_row + c, up * grad * m_fma(gate, s * m_sigmoid_rest(gate, s), s));
        part.store(grad_up_row + c, m_x_sigmoid(gate) * grad);
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
      close_row<C>(a, 4, row, c0, n, grad_up_row);
    }
  }
}

// g * sigmoid(alpha g) * (u + 1); g = min(gate, limit), u = min(max(up, -limit), limit); gate, up = x[...,
//   0::2], x[..., 1::2]
// Source: OpenAI, gpt-oss-120b and gpt-oss-20b Model Card, arXiv:2508.10925, and its published code
template <class C>
AVO_KERNEL void swiglu_oai_interleaved_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C limit = C(a->scalars[0]);
  const C alpha = C(a->scalars[1]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(2));
      const C t1 = -limit;
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V gate = part.load(gate_row + c);
        const V g = m_min(gate, V(limit));
        const V s = m_sigmoid(V(alpha) * g);
        part.store(y_row + c, (m_min(V(limit), m_max(up, V(t1))) + V(C(1.0))) * (g * s));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void swiglu_oai_interleaved_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C limit = C(a->scalars[0]);
  const C alpha = C(a->scalars[1]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* gate_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* up_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* grad_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      C* grad_gate_row = open_row<C>(a, 3, row, c0, n, buffer(3));
      C* grad_up_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      const C t1 = -limit;
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V gate = part.load(gate_row + c);
        const V up = part.load(up_row + c);
        const V grad = part.load(grad_row + c);
        const V g = m_min(gate, V(limit));
        const V t2 = V(alpha) * g;
        const V s = m_sigmoid(t2);
        const V of_gate = (m_min(V(limit), m_max(up, V(t1))) + V(C(1.0))) * grad * m_fma(V(alpha), g * (s * m_sigmoid_rest(t2, s)), s);
        const V of_up = g * s * grad;
        part.store(grad_gate_row + c, m_where(m_le(gate, V(limit)), of_gate, V(C(0.0))));
        part.store(grad_up_row + c, m_where(m_and(m_ge(up, V(t1)), m_le(up, V(limit))), of_up, V(C(0.0))));
      });
      close_row<C>(a, 3, row, c0, n, grad_gate_row);
      close_row<C>(a, 4, row, c0, n, grad_up_row);
    }
  }
}

// gate * sigmoid(gate) * up; gate, up = the halves of the last dim of x + bias
// Source: Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202
template <class C>
AVO_KERNEL void bias_swiglu_packed_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* up_bias_columns = load_row<C>(a, 2, 0, c_begin, c_end - c_begin, buffer(3));
    const C* gate_bias_columns = load_row<C>(a, 3, 0, c_begin, c_end - c_begin, buffer(7));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* up_bias_row = up_bias_columns + (c0 - c_begin);
        const C* gate_bias_row = gate_bias_columns + (c0 - c_begin);
        const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        C* y_row = open_row<C>(a, 4, row, c0, n, buffer(2));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V up = part.load(up_row + c);
          const V up_bias = part.load(up_bias_row + c);
          const V gate = part.load(gate_row + c);
          const V gate_bias = part.load(gate_bias_row + c);
          const V sums = up + up_bias;
          part.store(y_row + c, sums * m_x_sigmoid(gate + gate_bias));
        });
        close_row<C>(a, 4, row, c0, n, y_row);
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_swiglu_packed_backward_to_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  zero_partial<C>(a, chunk, 2, 0, col_begin, col_end);
  zero_partial<C>(a, chunk, 2, 1, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* up_bias_columns = load_row<C>(a, 3, 0, c_begin, c_end - c_begin, buffer(3));
    const C* gate_bias_columns = load_row<C>(a, 4, 0, c_begin, c_end - c_begin, buffer(7));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* up_bias_row = up_bias_columns + (c0 - c_begin);
        const C* gate_bias_row = gate_bias_columns + (c0 - c_begin);
        C* grad_gate_bias_sum = partial_row<C>(a, chunk, 2, 0) + c0;
        C* grad_up_bias_sum = partial_row<C>(a, chunk, 2, 1) + c0;
        const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        const C* gate_row = load_row<C>(a, 2, row, c0, n, buffer(2));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V up = part.load(up_row + c);
          const V up_bias = part.load(up_bias_row + c);
          const V grad = part.load(grad_row + c);
          const V gate = part.load(gate_row + c);
          const V gate_bias = part.load(gate_bias_row + c);
          const V sums = up + up_bias;
          const V t1 = gate + gate_bias;
          const V s = m_sigmoid(t1);
          part.store(grad_gate_bias_sum + c, part.sum(part.load(grad_gate_bias_sum + c), sums * grad * m_fma(t1, s * m_sigmoid_rest(t1, s), s)));
          part.store(grad_up_bias_sum + c, part.sum(part.load(grad_up_bias_sum + c), m_x_sigmoid(t1) * grad));
        });
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_swiglu_packed_backward_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* up_bias_columns = load_row<C>(a, 3, 0, c_begin, c_end - c_begin, buffer(5));
    const C* gate_bias_columns = load_row<C>(a, 4, 0, c_begin, c_end - c_begin, buffer(9));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* up_bias_row = up_bias_columns + (c0 - c_begin);
        const C* gate_bias_row = gate_bias_columns + (c0 - c_begin);
        const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        const C* gate_row = load_row<C>(a, 2, row, c0, n, buffer(2));
        C* grad_gate_row = open_row<C>(a, 5, row, c0, n, buffer(3));
        C* grad_up_row = open_row<C>(a, 6, row, c0, n, buffer(4));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V up = part.load(up_row + c);
          const V up_bias = part.load(up_bias_row + c);
          const V grad = part.load(grad_row + c);
          const V gate = part.load(gate_row + c);
          const V gate_bias = part.load(gate_bias_row + c);
          const V sums = up + up_bias;
          const V t1 = gate + gate_bias;
          const V s = m_sigmoid(t1);
          part.store(grad_gate_row + c, sums * grad * m_fma(t1, s * m_sigmoid_rest(t1, s), s));
          part.store(grad_up_row + c, m_x_sigmoid(t1) * grad);
        });
        close_row<C>(a, 5, row, c0, n, grad_gate_row);
        close_row<C>(a, 6, row, c0, n, grad_up_row);
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_swiglu_packed_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  zero_partial<C>(a, chunk, 2, 0, col_begin, col_end);
  zero_partial<C>(a, chunk, 2, 1, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* up_bias_columns = load_row<C>(a, 3, 0, c_begin, c_end - c_begin, buffer(5));
    const C* gate_bias_columns = load_row<C>(a, 4, 0, c_begin, c_end - c_begin, buffer(9));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* up_bias_row = up_bias_columns + (c0 - c_begin);
        const C* gate_bias_row = gate_bias_columns + (c0 - c_begin);
        C* grad_gate_bias_sum = partial_row<C>(a, chunk, 2, 0) + c0;
        C* grad_up_bias_sum = partial_row<C>(a, chunk, 2, 1) + c0;
        const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* grad_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        const C* gate_row = load_row<C>(a, 2, row, c0, n, buffer(2));
        C* grad_gate_row = open_row<C>(a, 5, row, c0, n, buffer(3));
        C* grad_up_row = open_row<C>(a, 6, row, c0, n, buffer(4));
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V up = part.load(up_row + c);
          const V up_bias = part.load(up_bias_row + c);
          const V grad = part.load(grad_row + c);
          const V gate = part.load(gate_row + c);
          const V gate_bias = part.load(gate_bias_row + c);
          const V sums = up + up_bias;
          const V t1 = gate + gate_bias;
          const V s = m_sigmoid(t1);
          const V t2 = sums * grad * m_fma(t1, s * m_sigmoid_rest(t1, s), s);
          const V t3 = m_x_sigmoid(t1) * grad;
          part.store(grad_gate_row + c, t2);
          part.store(grad_up_row + c, t3);
          part.store(grad_gate_bias_sum + c, part.sum(part.load(grad_gate_bias_sum + c), t2));
          part.store(grad_up_bias_sum + c, part.sum(part.load(grad_up_bias_sum + c), t3));
        });
        close_row<C>(a, 5, row, c0, n, grad_gate_row);
        close_row<C>(a, 6, row, c0, n, grad_up_row);
      }
    }
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_gated[] = {
    {"sigmoid_gate_forward", sigmoid_gate_forward<float>, sigmoid_gate_forward<double>},
    {"sigmoid_gate_backward_to_gate", sigmoid_gate_backward_to_gate<float>, sigmoid_gate_backward_to_gate<double>},
    {"sigmoid_gate_backward_to_x", sigmoid_gate_backward_to_x<float>, sigmoid_gate_backward_to_x<double>},
    {"sigmoid_gate_backward", sigmoid_gate_backward<float>, sigmoid_gate_backward<double>},
    {"reglu_forward", reglu_forward<float>, reglu_forward<double>},
    {"reglu_backward_to_up", reglu_backward_to_up<float>, reglu_backward_to_up<double>},
    {"reglu_backward_to_gate", reglu_backward_to_gate<float>, reglu_backward_to_gate<double>},
    {"reglu_backward", reglu_backward<float>, reglu_backward<double>},
    {"geglu_forward", geglu_forward<float>, geglu_forward<double>},
    {"geglu_forward_tanh", geglu_forward_tanh<float>, geglu_forward_tanh<double>},
    {"geglu_backward_to_up", geglu_backward_to_up<float>, geglu_backward_to_up<double>},
    {"geglu_backward_to_gate", geglu_backward_to_gate<float>, geglu_backward_to_gate<double>},
    {"geglu_backward", geglu_backward<float>, geglu_backward<double>},
    {"geglu_backward_tanh_to_up", geglu_backward_tanh_to_up<float>, geglu_backward_tanh_to_up<double>},
    {"geglu_backward_tanh_to_gate", geglu_backward_tanh_to_gate<float>, geglu_backward_tanh_to_gate<double>},
    {"geglu_backward_tanh", geglu_backward_tanh<float>, geglu_backward_tanh<double>},
    {"swiglu_forward", swiglu_forward<float>, swiglu_forward<double>},
    {"swiglu_backward_to_up", swiglu_backward_to_up<float>, swiglu_backward_to_up<double>},
    {"swiglu_backward_to_gate", swiglu_backward_to_gate<float>, swiglu_backward_to_gate<double>},
    {"swiglu_backward", swiglu_backward<float>, swiglu_backward<double>},
    {"swiglu_oai_forward", swiglu_oai_forward<float>, swiglu_oai_forward<double>},
    {"swiglu_oai_backward_to_up", swiglu_oai_backward_to_up<float>, swiglu_oai_backward_to_up<double>},
    {"swiglu_oai_backward_to_gate", swiglu_oai_backward_to_gate<float>, swiglu_oai_backward_to_gate<double>},
    {"swiglu_oai_backward", swiglu_oai_backward<float>, swiglu_oai_backward<double>},
    {"glu_forward", glu_forward<float>, glu_forward<double>},
    {"glu_backward", glu_backward<float>, glu_backward<double>},
    {"reglu_packed_forward", reglu_packed_forward<float>, reglu_packed_forward<double>},
    {"reglu_packed_backward", reglu_packed_backward<float>, reglu_packed_backward<double>},
    {"geglu_packed_forward", geglu_packed_forward<float>, geglu_packed_forward<double>},
    {"geglu_packed_forward_tanh", geglu_packed_forward_tanh<float>, geglu_packed_forward_tanh<double>},
    {"geglu_packed_backward", geglu_packed_backward<float>, geglu_packed_backward<double>},
    {"geglu_packed_backward_tanh", geglu_packed_backward_tanh<float>, geglu_packed_backward_tanh<double>},
    {"swiglu_packed_forward", swiglu_packed_forward<float>, swiglu_packed_forward<double>},
    {"swiglu_packed_backward", swiglu_packed_backward<float>, swiglu_packed_backward<double>},
    {"swiglu_oai_packed_forward", swiglu_oai_packed_forward<float>, swiglu_oai_packed_forward<double>},
    {"swiglu_oai_packed_backward", swiglu_oai_packed_backward<float>, swiglu_oai_packed_backward<double>},
    {"swiglu_interleaved_forward", swiglu_interleaved_forward<float>, swiglu_interleaved_forward<double>},
    {"swiglu_interleaved_backward", swiglu_interleaved_backward<float>, swiglu_interleaved_backward<double>},
    {"swiglu_oai_interleaved_forward", swiglu_oai_interleaved_forward<float>, swiglu_oai_interleaved_forward<double>},
    {"swiglu_oai_interleaved_backward", swiglu_oai_interleaved_backward<float>, swiglu_oai_interleaved_backward<double>},
    {"bias_swiglu_packed_forward", bias_swiglu_packed_forward<float>, bias_swiglu_packed_forward<double>},
    {"bias_swiglu_packed_backward_to_bias", bias_swiglu_packed_backward_to_bias<float>, bias_swiglu_packed_backward_to_bias<double>},
    {"bias_swiglu_packed_backward_to_x", bias_swiglu_packed_backward_to_x<float>, bias_swiglu_packed_backward_to_x<double>},
    {"bias_swiglu_packed_backward", bias_swiglu_packed_backward<float>, bias_swiglu_packed_backward<double>},
};
AVO_HIDDEN extern const int kernels_gated_count = 44;

} // namespace AVO_ISA_NAMESPACE
