// kl_div_rows: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// sum(p (log(p) - x)) over the last dim; p = target, or exp(target) where the target is a logarithm
// Source: Kullback and Leibler, On Information and Sufficiency, Ann. Math. Statist. 22 (1951), 79-86
template <class C>
AVO_KERNEL void kl_div_rows_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* target_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, panel, buffer(1));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V target = part.load(target_row + c);
          const V x = part.load(x_row + c);
          const V logarithm = m_log(m_where(m_eq(target, V(C(0.0))), V(C(1.0)), target));
          t1_block = part.sum(t1_block, target * (logarithm - x));
        });
        t1_lanes = t1_lanes + t1_block;
      }
      const C t1 = hsum(t1_lanes);
      store_stat<C>(a, 2, row, t1);
    }
  }
}

template <class C>
AVO_KERNEL void kl_div_rows_forward_yes(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* target_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, panel, buffer(1));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V target = part.load(target_row + c);
          const V x = part.load(x_row + c);
          const V t2 = m_exp(target);
          t1_block = part.sum(t1_block, t2 * (m_max(target, V(C(-1000.0))) - m_where(m_eq(t2, V(C(0.0))), V(C(0.0)), x)));
        });
        t1_lanes = t1_lanes + t1_block;
      }
      const C t1 = hsum(t1_lanes);
      store_stat<C>(a, 2, row, t1);
    }
  }
}

template <class C>
AVO_KERNEL void kl_div_rows_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* target_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 3, row, c0, n, buffer(2));
      C* grad_target_row = open_row<C>(a, 4, row, c0, n, buffer(3));
      const C grad = load_stat<C>(a, 2, row);
      const C t1 = -grad;
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V target = part.load(target_row + c);
        const V x = part.load(x_row + c);
        const auto t2 = m_eq(target, V(C(0.0)));
        const V logarithm = m_log(m_where(t2, V(C(1.0)), target));
        part.store(grad_x_row + c, target * V(t1));
        part.store(grad_target_row + c, m_where(t2, -x, V(C(1.0)) + (logarithm - x)) * V(grad));
      });
      close_row<C>(a, 3, row, c0, n, grad_x_row);
      close_row<C>(a, 4, row, c0, n, grad_target_row);
    }
  }
}

template <class C>
AVO_KERNEL void kl_div_rows_backward_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* target_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(1));
      const C grad = load_stat<C>(a, 1, row);
      const C t1 = -grad;
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V target = part.load(target_row + c);
        part.store(grad_x_row + c, target * V(t1));
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

template <class C>
AVO_KERNEL void kl_div_rows_backward_yes(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* target_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, c0, n, buffer(1));
      C* grad_x_row = open_row<C>(a, 3, row, c0, n, buffer(2));
      C* grad_target_row = open_row<C>(a, 4, row, c0, n, buffer(3));
      const C grad = load_stat<C>(a, 2, row);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V target = part.load(target_row + c);
        const V x = part.load(x_row + c);
        const V t1 = m_exp(target);
        const V weighted = t1 * V(grad);
        part.store(grad_x_row + c, -weighted);
        part.store(grad_target_row + c, m_fma(m_max(target, V(C(-1000.0))) - m_where(m_eq(t1, V(C(0.0))), V(C(0.0)), x), weighted, weighted));
      });
      close_row<C>(a, 3, row, c0, n, grad_x_row);
      close_row<C>(a, 4, row, c0, n, grad_target_row);
    }
  }
}

template <class C>
AVO_KERNEL void kl_div_rows_backward_yes_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const BlockBuffers<C> buffer(scratch);
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t c0 = col_begin; c0 < col_end; c0 += 512) {
      const int64_t n = col_end - c0 < 512 ? col_end - c0 : 512;
      const C* target_row = load_row<C>(a, 0, row, c0, n, buffer(0));
      C* grad_x_row = open_row<C>(a, 2, row, c0, n, buffer(1));
      const C grad = load_stat<C>(a, 1, row);
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        const V target = part.load(target_row + c);
        const V t1 = m_exp(target);
        const V weighted = t1 * V(grad);
        part.store(grad_x_row + c, -weighted);
      });
      close_row<C>(a, 2, row, c0, n, grad_x_row);
    }
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_kl_div_rows[] = {
    {"kl_div_rows_forward", kl_div_rows_forward<float>, kl_div_rows_forward<double>},
    {"kl_div_rows_forward_yes", kl_div_rows_forward_yes<float>, kl_div_rows_forward_yes<double>},
    {"kl_div_rows_backward", kl_div_rows_backward<float>, kl_div_rows_backward<double>},
    {"kl_div_rows_backward_to_x", kl_div_rows_backward_to_x<float>, kl_div_rows_backward_to_x<double>},
    {"kl_div_rows_backward_yes", kl_div_rows_backward_yes<float>, kl_div_rows_backward_yes<double>},
    {"kl_div_rows_backward_yes_to_x", kl_div_rows_backward_yes_to_x<float>, kl_div_rows_backward_yes_to_x<double>},
};
AVO_HIDDEN extern const int kernels_kl_div_rows_count = 6;

} // namespace AVO_ISA_NAMESPACE
