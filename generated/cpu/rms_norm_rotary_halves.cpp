// rms_norm_rotary_halves: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// a cos - b sin, b cos + a sin; a, b = the halves of the last dim of x / sqrt(mean(x^2) + eps) * (weight +
//   offset), and of the result; no gradient for cos and sin; eps=None: the machine epsilon of the dtype of
//   the math
// Source: Yang et al., Qwen3 Technical Report, arXiv:2505.09388 (QK-Norm); Su et al., RoFormer: Enhanced
//   Transformer with Rotary Position Embedding, arXiv:2104.09864
template <class C>
AVO_KERNEL void rms_norm_rotary_halves_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C offset = C(a->scalars[0]);
  const C eps = C(a->scalars[1]);
  const C* second_weight_row = load_row<C>(a, 4, 0, 0, N, buffer(6));
  const C* first_weight_row = load_row<C>(a, 5, 0, 0, N, buffer(7));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    load_panel<C>(a, 3, panel, buffer(3));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* sin_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* second_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* first_row = load_row<C>(a, 2, row, panel, buffer(2));
      const C* cos_row = load_row<C>(a, 3, row, panel, buffer(3));
      C* turned_first_row = open_row<C>(a, 6, row, panel, buffer(4));
      C* turned_second_row = open_row<C>(a, 7, row, panel, buffer(5));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V second = part.load(second_row + c);
          const V first_ = part.load(first_row + c);
          t1_block[chain] = part.sum(t1_block[chain], m_fma(second, second, first_ * first_));
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C rstd = m_rsqrt(m_fma(C(0.5), t1 / C(N), eps));
      store_stat<C>(a, 8, row, rstd);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V sin = part.load(sin_row + c);
        const V second_weight = part.load(second_weight_row + c);
        const V second = part.load(second_row + c);
        const V cos = part.load(cos_row + c);
        const V first_weight = part.load(first_weight_row + c);
        const V first_ = part.load(first_row + c);
        const V t2 = (second_weight + V(offset)) * (second * V(rstd));
        const V t3 = (first_weight + V(offset)) * (first_ * V(rstd));
        part.store(turned_first_row + c, m_fma(-sin, t2, cos * t3));
        part.store(turned_second_row + c, m_fma(sin, t3, cos * t2));
      });
      close_row<C>(a, 6, row, panel, turned_first_row);
      close_row<C>(a, 7, row, panel, turned_second_row);
    }
    store_panel<C>(a, 6, panel, buffer(4));
    store_panel<C>(a, 7, panel, buffer(5));
  }
}

template <class C>
AVO_KERNEL void rms_norm_rotary_halves_backward_to_weight(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  zero_partial<C>(a, chunk, 2, 0, col_begin, col_end);
  zero_partial<C>(a, chunk, 2, 1, col_begin, col_end);
  for (int64_t c_begin = col_begin; c_begin < col_end; c_begin += 2048) {
    const int64_t c_end = col_end - c_begin < 2048 ? col_end : c_begin + 2048;
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t c0 = c_begin; c0 < c_end; c0 += 512) {
        const int64_t n = c_end - c0 < 512 ? c_end - c0 : 512;
        C* grad_first_weight_sum = partial_row<C>(a, chunk, 2, 0) + c0;
        C* grad_second_weight_sum = partial_row<C>(a, chunk, 2, 1) + c0;
        const C* first_row = load_row<C>(a, 0, row, c0, n, buffer(0));
        const C* cos_row = load_row<C>(a, 1, row, c0, n, buffer(1));
        const C* grad_turned_first_row = load_row<C>(a, 2, row, c0, n, buffer(2));
        const C* sin_row = load_row<C>(a, 3, row, c0, n, buffer(3));
        const C* grad_turned_second_row = load_row<C>(a, 4, row, c0, n, buffer(4));
        const C* second_row = load_row<C>(a, 5, row, c0, n, buffer(5));
        const C rstd = load_stat<C>(a, 6, row);
        sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
          const V first_ = part.load(first_row + c);
          const V cos = part.load(cos_row + c);
          const V grad_turned_first = part.load(grad_turned_first_row + c);
          const V sin = part.load(sin_row + c);
          const V grad_turned_second = part.load(grad_turned_second_row + c);
          const V second = part.load(second_row + c);
          part.store(grad_first_weight_sum + c, part.sum(part.load(grad_first_weight_sum + c), first_ * V(rstd), m_fma(cos, grad_turned_first, sin * grad_turned_second)));
          part.store(grad_second_weight_sum + c, part.sum(part.load(grad_second_weight_sum + c), second * V(rstd), m_fma(sin, -grad_turned_first, cos * grad_turned_second)));
        });
      }
    }
  }
}

template <class C>
AVO_KERNEL void rms_norm_rotary_halves_backward_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C offset = C(a->scalars[0]);
  const C* second_weight_row = load_row<C>(a, 6, 0, 0, N, buffer(8));
  const C* first_weight_row = load_row<C>(a, 7, 0, 0, N, buffer(9));
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    load_panel<C>(a, 3, panel, buffer(3));
    load_panel<C>(a, 4, panel, buffer(4));
    load_panel<C>(a, 5, panel, buffer(5));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* first_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* second_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* sin_row = load_row<C>(a, 2, row, panel, buffer(2));
      const C* grad_turned_first_row = load_row<C>(a, 3, row, panel, buffer(3));
      const C* cos_row = load_row<C>(a, 4, row, panel, buffer(4));
      const C* grad_turned_second_row = load_row<C>(a, 5, row, panel, buffer(5));
      C* grad_first_row = open_row<C>(a, 9, row, panel, buffer(6));
      C* grad_second_row = open_row<C>(a, 10, row, panel, buffer(7));
      const C rstd = load_stat<C>(a, 8, row);
      V t1_lanes(C(0));
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block = V(C(0));
        V t2_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V second = part.load(second_row + c);
          const V second_weight = part.load(second_weight_row + c);
          const V sin = part.load(sin_row + c);
          const V grad_turned_first = part.load(grad_turned_first_row + c);
          const V cos = part.load(cos_row + c);
          const V grad_turned_second = part.load(grad_turned_second_row + c);
          const V first_ = part.load(first_row + c);
          const V first_weight = part.load(first_weight_row + c);
          t1_block = part.sum(t1_block, second, (second_weight + V(offset)) * m_fma(sin, -grad_turned_first, cos * grad_turned_second));
          t2_block = part.sum(t2_block, first_, (first_weight + V(offset)) * m_fma(cos, grad_turned_first, sin * grad_turned_second));
        });
        t1_lanes = t1_lanes + t1_block;
        t2_lanes = t2_lanes + t2_block;
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = rstd * (rstd * (C(-0.5) * (t1 + t2) / C(N)));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V first_ = part.load(first_row + c);
        const V first_weight = part.load(first_weight_row + c);
        const V cos = part.load(cos_row + c);
        const V grad_turned_first = part.load(grad_turned_first_row + c);
        const V sin = part.load(sin_row + c);
        const V grad_turned_second = part.load(grad_turned_second_row + c);
        const V second = part.load(second_row + c);
        const V second_weight = part.load(second_weight_row + c);
        part.store(grad_first_row + c, m_fma(first_ * V(rstd), V(t3), V(rstd) * ((first_weight + V(offset)) * m_fma(cos, grad_turned_first, sin * grad_turned_second))));
        part.store(grad_second_row + c, m_fma(second * V(rstd), V(t3), V(rstd) * ((second_weight + V(offset)) * m_fma(sin, -grad_turned_first, cos * grad_turned_second))));
      });
      close_row<C>(a, 9, row, panel, grad_first_row);
      close_row<C>(a, 10, row, panel, grad_second_row);
    }
    store_panel<C>(a, 9, panel, buffer(6));
    store_panel<C>(a, 10, panel, buffer(7));
  }
}

template <class C>
AVO_KERNEL void rms_norm_rotary_halves_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C offset = C(a->scalars[0]);
  const C* second_weight_row = load_row<C>(a, 6, 0, 0, N, buffer(8));
  const C* first_weight_row = load_row<C>(a, 7, 0, 0, N, buffer(9));
  zero_partial<C>(a, chunk, 2, 0, 0, N);
  zero_partial<C>(a, chunk, 2, 1, 0, N);
  C* grad_first_weight_sum = partial_row<C>(a, chunk, 2, 0);
  C* grad_second_weight_sum = partial_row<C>(a, chunk, 2, 1);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    load_panel<C>(a, 3, panel, buffer(3));
    load_panel<C>(a, 4, panel, buffer(4));
    load_panel<C>(a, 5, panel, buffer(5));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* first_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* second_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* sin_row = load_row<C>(a, 2, row, panel, buffer(2));
      const C* grad_turned_first_row = load_row<C>(a, 3, row, panel, buffer(3));
      const C* cos_row = load_row<C>(a, 4, row, panel, buffer(4));
      const C* grad_turned_second_row = load_row<C>(a, 5, row, panel, buffer(5));
      C* grad_first_row = open_row<C>(a, 9, row, panel, buffer(6));
      C* grad_second_row = open_row<C>(a, 10, row, panel, buffer(7));
      const C rstd = load_stat<C>(a, 8, row);
      V t1_lanes(C(0));
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block = V(C(0));
        V t2_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V second = part.load(second_row + c);
          const V second_weight = part.load(second_weight_row + c);
          const V sin = part.load(sin_row + c);
          const V grad_turned_first = part.load(grad_turned_first_row + c);
          const V cos = part.load(cos_row + c);
          const V grad_turned_second = part.load(grad_turned_second_row + c);
          const V first_ = part.load(first_row + c);
          const V first_weight = part.load(first_weight_row + c);
          t1_block = part.sum(t1_block, second, (second_weight + V(offset)) * m_fma(sin, -grad_turned_first, cos * grad_turned_second));
          t2_block = part.sum(t2_block, first_, (first_weight + V(offset)) * m_fma(cos, grad_turned_first, sin * grad_turned_second));
        });
        t1_lanes = t1_lanes + t1_block;
        t2_lanes = t2_lanes + t2_block;
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = rstd * (rstd * (C(-0.5) * (t1 + t2) / C(N)));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V first_ = part.load(first_row + c);
        const V first_weight = part.load(first_weight_row + c);
        const V cos = part.load(cos_row + c);
        const V grad_turned_first = part.load(grad_turned_first_row + c);
        const V sin = part.load(sin_row + c);
        const V grad_turned_second = part.load(grad_turned_second_row + c);
        const V second = part.load(second_row + c);
        const V second_weight = part.load(second_weight_row + c);
        const V t4 = first_ * V(rstd);
        const V t5 = m_fma(cos, grad_turned_first, sin * grad_turned_second);
        const V t6 = second * V(rstd);
        const V t7 = m_fma(sin, -grad_turned_first, cos * grad_turned_second);
        part.store(grad_first_row + c, m_fma(t4, V(t3), V(rstd) * ((first_weight + V(offset)) * t5)));
        part.store(grad_second_row + c, m_fma(t6, V(t3), V(rstd) * ((second_weight + V(offset)) * t7)));
        part.store(grad_first_weight_sum + c, part.sum(part.load(grad_first_weight_sum + c), t4, t5));
        part.store(grad_second_weight_sum + c, part.sum(part.load(grad_second_weight_sum + c), t6, t7));
      });
      close_row<C>(a, 9, row, panel, grad_first_row);
      close_row<C>(a, 10, row, panel, grad_second_row);
    }
    store_panel<C>(a, 9, panel, buffer(6));
    store_panel<C>(a, 10, panel, buffer(7));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_rms_norm_rotary_halves[] = {
    {"rms_norm_rotary_halves_forward", rms_norm_rotary_halves_forward<float>, rms_norm_rotary_halves_forward<double>},
    {"rms_norm_rotary_halves_backward_to_weight", rms_norm_rotary_halves_backward_to_weight<float>, rms_norm_rotary_halves_backward_to_weight<double>},
    {"rms_norm_rotary_halves_backward_to_x", rms_norm_rotary_halves_backward_to_x<float>, rms_norm_rotary_halves_backward_to_x<double>},
    {"rms_norm_rotary_halves_backward", rms_norm_rotary_halves_backward<float>, rms_norm_rotary_halves_backward<double>},
};
AVO_HIDDEN extern const int kernels_rms_norm_rotary_halves_count = 4;

} // namespace AVO_ISA_NAMESPACE
