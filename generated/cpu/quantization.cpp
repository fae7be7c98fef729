// quantization: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// q = x / scale, to nearest even, within [-448, 448] or [-128, 127]
// Source: Micikevicius et al., FP8 Formats for Deep Learning, arXiv:2209.05433 (e4m3)
template <class C>
AVO_KERNEL void quantize_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C scale = load_stat<C>(a, 1, 0);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* q_row = open_row<C>(a, 2, row, c0, n, buffer(1));
      const C t1 = m_recip(scale);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V q = m_quotient(x, V(scale), V(t1));
        part.store(q_row + c, m_min(V(C(448.0)), m_max(V(C(-448.0)), q)));
      });
      close_row<C>(a, 2, row, c0, n, q_row);
    }
  }
}

template <class C>
AVO_KERNEL void quantize_forward_int8(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C scale = load_stat<C>(a, 1, 0);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* q_row = open_row<C>(a, 2, row, c0, n, buffer(1));
      const C t1 = m_recip(scale);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V q = m_quotient(x, V(scale), V(t1));
        part.store(q_row + c, m_min(V(C(127.0)), m_max(V(C(-128.0)), m_round(m_where(m_eq(q, q), q, V(C(0.0)))))));
      });
      close_row<C>(a, 2, row, c0, n, q_row);
    }
  }
}

// x * scale
// Source: Micikevicius et al., FP8 Formats for Deep Learning, arXiv:2209.05433 (e4m3)
template <class C>
AVO_KERNEL void dequantize_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C scale = load_stat<C>(a, 1, 0);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, x * V(scale));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void dequantize_forward_int8(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C scale = load_stat<C>(a, 1, 0);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(1));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, x * V(scale));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

// x * scale, one for each row
// Source: Micikevicius et al., FP8 Formats for Deep Learning, arXiv:2209.05433 (e4m3)
template <class C>
AVO_KERNEL void dequantize_rows_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(1));
      const C scale = load_stat<C>(a, 1, row);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, x * V(scale));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void dequantize_rows_forward_int8(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(1));
      const C scale = load_stat<C>(a, 1, row);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, x * V(scale));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

// q = gate * sigmoid(gate) * up / scale, to nearest even, within [-448, 448] or [-128, 127]; gate, up = the
//   halves of the last dim of x
// Source: Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202; Micikevicius et al., FP8 Formats for
//   Deep Learning, arXiv:2209.05433 (e4m3)
template <class C>
AVO_KERNEL void swiglu_packed_quantize_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C scale = load_stat<C>(a, 2, 0);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* q_row = open_row<C>(a, 3, row, c0, n, buffer(2));
      const C t1 = m_recip(scale);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V gate = part.load(gate_row + c);
        const V q = m_quotient(up * m_x_sigmoid(gate), V(scale), V(t1));
        part.store(q_row + c, m_min(V(C(448.0)), m_max(V(C(-448.0)), q)));
      });
      close_row<C>(a, 3, row, c0, n, q_row);
    }
  }
}

template <class C>
AVO_KERNEL void swiglu_packed_quantize_forward_int8(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C scale = load_stat<C>(a, 2, 0);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* up_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* gate_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* q_row = open_row<C>(a, 3, row, c0, n, buffer(2));
      const C t1 = m_recip(scale);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V up = part.load(up_row + c);
        const V gate = part.load(gate_row + c);
        const V q = m_quotient(up * m_x_sigmoid(gate), V(scale), V(t1));
        part.store(q_row + c, m_min(V(C(127.0)), m_max(V(C(-128.0)), m_round(m_where(m_eq(q, q), q, V(C(0.0)))))));
      });
      close_row<C>(a, 3, row, c0, n, q_row);
    }
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_quantization[] = {
    {"quantize_forward", quantize_forward<float>, quantize_forward<double>},
    {"quantize_forward_int8", quantize_forward_int8<float>, quantize_forward_int8<double>},
    {"dequantize_forward", dequantize_forward<float>, dequantize_forward<double>},
    {"dequantize_forward_int8", dequantize_forward_int8<float>, dequantize_forward_int8<double>},
    {"dequantize_rows_forward", dequantize_rows_forward<float>, dequantize_rows_forward<double>},
    {"dequantize_rows_forward_int8", dequantize_rows_forward_int8<float>, dequantize_rows_forward_int8<double>},
    {"swiglu_packed_quantize_forward", swiglu_packed_quantize_forward<float>, swiglu_packed_quantize_forward<double>},
    {"swiglu_packed_quantize_forward_int8", swiglu_packed_quantize_forward_int8<float>, swiglu_packed_quantize_forward_int8<double>},
};
AVO_HIDDEN extern const int kernels_quantization_count = 8;

} // namespace AVO_ISA_NAMESPACE
