// position: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// a cos - b sin, b cos + a sin; a, b = the halves of the last dim of x, and of the result
// Source: Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding, arXiv:2104.09864
template <class C>
AVO_KERNEL void rotary_halves_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* second_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* sin_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* first_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      const C* cos_row = load_row<C>(a, 3, row, c0, n, buffer(3));
      C* turned_first_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      C* turned_second_row = open_row<C>(a, 5, row, c0, n, buffer(5));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V second = part.load(second_row + c);
        const V sin = part.load(sin_row + c);
        const V first_ = part.load(first_row + c);
        const V cos = part.load(cos_row + c);
        part.store(turned_first_row + c, m_fma(-second, sin, first_ * cos));
        part.store(turned_second_row + c, m_fma(first_, sin, second * cos));
      });
      close_row<C>(a, 4, row, c0, n, turned_first_row);
      close_row<C>(a, 5, row, c0, n, turned_second_row);
    }
  }
}

template <class C>
AVO_KERNEL void rotary_halves_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* cos_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_turned_first_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* sin_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      const C* grad_turned_second_row = load_row<C>(a, 3, row, c0, n, buffer(3));
      const C* first_row = load_row<C>(a, 4, row, c0, n, buffer(4));
      const C* second_row = load_row<C>(a, 5, row, c0, n, buffer(5));
      C* grad_first_row = open_row<C>(a, 6, row, c0, n, buffer(6));
      C* grad_second_row = open_row<C>(a, 7, row, c0, n, buffer(7));
      C* grad_cos_row = open_row<C>(a, 8, row, c0, n, buffer(8));
      C* grad_sin_row = open_row<C>(a, 9, row, c0, n, buffer(9));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V cos = part.load(cos_row + c);
        const V grad_turned_first = part.load(grad_turned_first_row + c);
        const V sin = part.load(sin_row + c);
        const V grad_turned_second = part.load(grad_turned_second_row + c);
        const V first_ = part.load(first_row + c);
        const V second = part.load(second_row + c);
        const V t1 = -grad_turned_first;
        part.store(grad_first_row + c, m_fma(cos, grad_turned_first, sin * grad_turned_second));
        part.store(grad_second_row + c, m_fma(sin, t1, cos * grad_turned_second));
        part.store(grad_cos_row + c, m_fma(first_, grad_turned_first, second * grad_turned_second));
        part.store(grad_sin_row + c, m_fma(second, t1, first_ * grad_turned_second));
      });
      close_row<C>(a, 6, row, c0, n, grad_first_row);
      close_row<C>(a, 7, row, c0, n, grad_second_row);
      close_row<C>(a, 8, row, c0, n, grad_cos_row);
      close_row<C>(a, 9, row, c0, n, grad_sin_row);
    }
  }
}

template <class C>
AVO_KERNEL void rotary_halves_backward_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* cos_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_turned_first_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* sin_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      const C* grad_turned_second_row = load_row<C>(a, 3, row, c0, n, buffer(3));
      C* grad_first_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      C* grad_second_row = open_row<C>(a, 5, row, c0, n, buffer(5));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V cos = part.load(cos_row + c);
        const V grad_turned_first = part.load(grad_turned_first_row + c);
        const V sin = part.load(sin_row + c);
        const V grad_turned_second = part.load(grad_turned_second_row + c);
        part.store(grad_first_row + c, m_fma(cos, grad_turned_first, sin * grad_turned_second));
        part.store(grad_second_row + c, m_fma(sin, -grad_turned_first, cos * grad_turned_second));
      });
      close_row<C>(a, 4, row, c0, n, grad_first_row);
      close_row<C>(a, 5, row, c0, n, grad_second_row);
    }
  }
}

// a cos - b sin, b cos + a sin; a, b = x[..., 0::2], x[..., 1::2], and of the result
// Source: Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding, arXiv:2104.09864
template <class C>
AVO_KERNEL void rotary_pairs_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* second_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* sin_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* first_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      const C* cos_row = load_row<C>(a, 3, row, c0, n, buffer(3));
      C* turned_first_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      C* turned_second_row = open_row<C>(a, 5, row, c0, n, buffer(5));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V second = part.load(second_row + c);
        const V sin = part.load(sin_row + c);
        const V first_ = part.load(first_row + c);
        const V cos = part.load(cos_row + c);
        part.store(turned_first_row + c, m_fma(-second, sin, first_ * cos));
        part.store(turned_second_row + c, m_fma(first_, sin, second * cos));
      });
      close_row<C>(a, 4, row, c0, n, turned_first_row);
      close_row<C>(a, 5, row, c0, n, turned_second_row);
    }
  }
}

template <class C>
AVO_KERNEL void rotary_pairs_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* cos_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_turned_first_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* sin_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      const C* grad_turned_second_row = load_row<C>(a, 3, row, c0, n, buffer(3));
      const C* first_row = load_row<C>(a, 4, row, c0, n, buffer(4));
      const C* second_row = load_row<C>(a, 5, row, c0, n, buffer(5));
      C* grad_first_row = open_row<C>(a, 6, row, c0, n, buffer(6));
      C* grad_second_row = open_row<C>(a, 7, row, c0, n, buffer(7));
      C* grad_cos_row = open_row<C>(a, 8, row, c0, n, buffer(8));
      C* grad_sin_row = open_row<C>(a, 9, row, c0, n, buffer(9));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V cos = part.load(cos_row + c);
        const V grad_turned_first = part.load(grad_turned_first_row + c);
        const V sin = part.load(sin_row + c);
        const V grad_turned_second = part.load(grad_turned_second_row + c);
        const V first_ = part.load(first_row + c);
        const V second = part.load(second_row + c);
        const V t1 = -grad_turned_first;
        part.store(grad_first_row + c, m_fma(cos, grad_turned_first, sin * grad_turned_second));
        part.store(grad_second_row + c, m_fma(sin, t1, cos * grad_turned_second));
        part.store(grad_cos_row + c, m_fma(first_, grad_turned_first, second * grad_turned_second));
        part.store(grad_sin_row + c, m_fma(second, t1, first_ * grad_turned_second));
      });
      close_row<C>(a, 6, row, c0, n, grad_first_row);
      close_row<C>(a, 7, row, c0, n, grad_second_row);
      close_row<C>(a, 8, row, c0, n, grad_cos_row);
      close_row<C>(a, 9, row, c0, n, grad_sin_row);
    }
  }
}

template <class C>
AVO_KERNEL void rotary_pairs_backward_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* cos_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* grad_turned_first_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      const C* sin_row = load_row<C>(a, 2, row, c0, n, buffer(2));
      const C* grad_turned_second_row = load_row<C>(a, 3, row, c0, n, buffer(3));
      C* grad_first_row = open_row<C>(a, 4, row, c0, n, buffer(4));
      C* grad_second_row = open_row<C>(a, 5, row, c0, n, buffer(5));
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V cos = part.load(cos_row + c);
        const V grad_turned_first = part.load(grad_turned_first_row + c);
        const V sin = part.load(sin_row + c);
        const V grad_turned_second = part.load(grad_turned_second_row + c);
        part.store(grad_first_row + c, m_fma(cos, grad_turned_first, sin * grad_turned_second));
        part.store(grad_second_row + c, m_fma(sin, -grad_turned_first, cos * grad_turned_second));
      });
      close_row<C>(a, 4, row, c0, n, grad_first_row);
      close_row<C>(a, 5, row, c0, n, grad_second_row);
    }
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_position[] = {
    {"rotary_halves_forward", rotary_halves_forward<float>, rotary_halves_forward<double>},
    {"rotary_halves_backward", rotary_halves_backward<float>, rotary_halves_backward<double>},
    {"rotary_halves_backward_to_x", rotary_halves_backward_to_x<float>, rotary_halves_backward_to_x<double>},
    {"rotary_pairs_forward", rotary_pairs_forward<float>, rotary_pairs_forward<double>},
    {"rotary_pairs_backward", rotary_pairs_backward<float>, rotary_pairs_backward<double>},
    {"rotary_pairs_backward_to_x", rotary_pairs_backward_to_x<float>, rotary_pairs_backward_to_x<double>},
};
AVO_HIDDEN extern const int kernels_position_count = 6;

} // namespace AVO_ISA_NAMESPACE
