// dropout: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// x / (1 - p) where Philox(seed of the row, column) >= p, else 0
// Source: Srivastava et al., Dropout, JMLR 15 (2014), 1929-1958; Salmon et al., Parallel random numbers: as
//   easy as 1, 2, 3, SC 2011 (Philox4x32-10)
template <class C>
AVO_KERNEL void dropout_rows_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C p_ = C(a->scalars[0]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* y_row = open_row<C>(a, 2, row, c0, n, buffer(1));
      const int64_t seed = load_whole_number(a, 1, row);
      const C t1 = C(1.0) / (C(1.0) - p_);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        part.store(y_row + c, x * m_where(m_ge(m_uniform<C>(seed, c0 + c), V(p_)), V(t1), V(C(0.0))));
      });
      close_row<C>(a, 2, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void dropout_rows_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C p_ = C(a->scalars[0]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* grad_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(1));
      const int64_t seed = load_whole_number(a, 1, row);
      const C t1 = C(1.0) / (C(1.0) - p_);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, m_where(m_ge(m_uniform<C>(seed, c0 + c), V(p_)), V(t1), V(C(0.0))) * grad);
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

// residual + dropout(x + bias); dropout(x) = x / (1 - p) where Philox(seed of the row, column) >= p, else 0
// Source: Srivastava et al., Dropout, JMLR 15 (2014), 1929-1958; Salmon et al., Parallel random numbers: as
//   easy as 1, 2, 3, SC 2011 (Philox4x32-10)
template <class C>
AVO_KERNEL void bias_dropout_add_rows_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C p_ = C(a->scalars[0]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* residual_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* y_row = open_row<C>(a, 3, row, c0, n, buffer(2));
      const int64_t seed = load_whole_number(a, 2, row);
      const C t1 = C(1.0) / (C(1.0) - p_);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V residual = part.load(residual_row + c);
        part.store(y_row + c, m_fma(x, m_where(m_ge(m_uniform<C>(seed, c0 + c), V(p_)), V(t1), V(C(0.0))), residual));
      });
      close_row<C>(a, 3, row, c0, n, y_row);
    }
  }
}

template <class C>
AVO_KERNEL void bias_dropout_add_rows_forward_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C p_ = C(a->scalars[0]);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    const C* bias_columns = load_row<C>(a, 2, 0, c_begin, c_end - c_begin, buffer(3));
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        const C* bias_row = bias_columns + (c0 - c_begin);
        const C* x_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* residual_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        C* y_row = open_row<C>(a, 4, row, c0, n, buffer(2));
        const int64_t seed = load_whole_number(a, 3, row);
        const C t1 = C(1.0) / (C(1.0) - p_);
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V bias = part.load(bias_row + c);
          const V residual = part.load(residual_row + c);
          part.store(y_row + c, m_fma(x + bias, m_where(m_ge(m_uniform<C>(seed, c0 + c), V(p_)), V(t1), V(C(0.0))), residual));
        });
        close_row<C>(a, 4, row, c0, n, y_row);
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_dropout_add_rows_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C p_ = C(a->scalars[0]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* grad_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(1));
      C* grad_residual_row = open_row<C>(a, 3, row, c0, n, buffer(2));
      const int64_t seed = load_whole_number(a, 1, row);
      const C t1 = C(1.0) / (C(1.0) - p_);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, m_where(m_ge(m_uniform<C>(seed, c0 + c), V(p_)), V(t1), V(C(0.0))) * grad);
        part.store(grad_residual_row + c, grad);
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
      close_row<C>(a, 3, row, c0, n, grad_residual_row);
    }
  }
}

template <class C>
AVO_KERNEL void bias_dropout_add_rows_backward_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C p_ = C(a->scalars[0]);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* grad_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(1));
      const int64_t seed = load_whole_number(a, 1, row);
      const C t1 = C(1.0) / (C(1.0) - p_);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, m_where(m_ge(m_uniform<C>(seed, c0 + c), V(p_)), V(t1), V(C(0.0))) * grad);
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

template <class C>
AVO_KERNEL void bias_dropout_add_rows_backward_bias_to_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C p_ = C(a->scalars[0]);
  zero_partial<C>(a, chunk, 1, 0, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0) + c0;
        const C* grad_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const int64_t seed = load_whole_number(a, 1, row);
        const C t1 = C(1.0) / (C(1.0) - p_);
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V grad = part.load(grad_row + c);
          part.store(grad_bias_sum + c, part.sum(part.load(grad_bias_sum + c), m_where(m_ge(m_uniform<C>(seed, c0 + c), V(p_)), V(t1), V(C(0.0))) * grad));
        });
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_dropout_add_rows_backward_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C p_ = C(a->scalars[0]);
  zero_partial<C>(a, chunk, 1, 0, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0) + c0;
        const C* grad_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(1));
        C* grad_residual_row = open_row<C>(a, 3, row, c0, n, buffer(2));
        const int64_t seed = load_whole_number(a, 1, row);
        const C t1 = C(1.0) / (C(1.0) - p_);
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V grad = part.load(grad_row + c);
          const V t2 = m_where(m_ge(m_uniform<C>(seed, c0 + c), V(p_)), V(t1), V(C(0.0))) * grad;
          part.store(grad_x_row + c, t2);
          part.store(grad_residual_row + c, grad);
          part.store(grad_bias_sum + c, part.sum(part.load(grad_bias_sum + c), t2));
        });
        close_row<C>(a, 2, row, c0, n, grad_x_row);
        close_row<C>(a, 3, row, c0, n, grad_residual_row);
      }
    }
  }
}

template <class C>
AVO_KERNEL void bias_dropout_add_rows_backward_bias_to_x_bias(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  const C p_ = C(a->scalars[0]);
  zero_partial<C>(a, chunk, 1, 0, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        C* grad_bias_sum = partial_row<C>(a, chunk, 1, 0) + c0;
        const C* grad_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(1));
        const int64_t seed = load_whole_number(a, 1, row);
        const C t1 = C(1.0) / (C(1.0) - p_);
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V grad = part.load(grad_row + c);
          const V t2 = m_where(m_ge(m_uniform<C>(seed, c0 + c), V(p_)), V(t1), V(C(0.0))) * grad;
          part.store(grad_x_row + c, t2);
          part.store(grad_bias_sum + c, part.sum(part.load(grad_bias_sum + c), t2));
        });
        close_row<C>(a, 2, row, c0, n, grad_x_row);
      }
    }
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_dropout[] = {
    {"dropout_rows_forward", dropout_rows_forward<float>, dropout_rows_forward<double>},
    {"dropout_rows_backward", dropout_rows_backward<float>, dropout_rows_backward<double>},
    {"bias_dropout_add_rows_forward", bias_dropout_add_rows_forward<float>, bias_dropout_add_rows_forward<double>},
    {"bias_dropout_add_rows_forward_bias", bias_dropout_add_rows_forward_bias<float>, bias_dropout_add_rows_forward_bias<double>},
    {"bias_dropout_add_rows_backward", bias_dropout_add_rows_backward<float>, bias_dropout_add_rows_backward<double>},
    {"bias_dropout_add_rows_backward_to_x", bias_dropout_add_rows_backward_to_x<float>, bias_dropout_add_rows_backward_to_x<double>},
    {"bias_dropout_add_rows_backward_bias_to_bias", bias_dropout_add_rows_backward_bias_to_bias<float>, bias_dropout_add_rows_backward_bias_to_bias<double>},
    {"bias_dropout_add_rows_backward_bias", bias_dropout_add_rows_backward_bias<float>, bias_dropout_add_rows_backward_bias<double>},
    {"bias_dropout_add_rows_backward_bias_to_x_bias", bias_dropout_add_rows_backward_bias_to_x_bias<float>, bias_dropout_add_rows_backward_bias_to_x_bias<double>},
};
AVO_HIDDEN extern const int kernels_dropout_count = 9;

} // namespace AVO_ISA_NAMESPACE
