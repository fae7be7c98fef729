// scaled_masked_softmax_rows: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// softmax(scale * x + attn_mask) over the last dim, without the columns beyond last
// Source: Vaswani et al., Attention Is All You Need, arXiv:1706.03762
template <class C>
AVO_KERNEL void scaled_masked_softmax_rows_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C scale = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      C* y_row = open_row<C>(a, 1, row, panel, buffer(1));
      C* shifted_row = buffer(2);
      V max_score_lanes[2] = {V(lowest<C>()), V(lowest<C>())};
      sweep_pairs<C>(0, N, [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V score = x * V(scale);
        max_score_lanes[chain] = part.amax(max_score_lanes[chain], score);
      });
      const C max_score = hamax(Whole::amax(max_score_lanes[0], max_score_lanes[1]));
      V sum_shifted_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_shifted_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V score = x * V(scale);
          const V shifted = m_exp(score - V(max_score));
          part.store(shifted_row + c, shifted);
          sum_shifted_block = part.sum(sum_shifted_block, shifted);
        });
        sum_shifted_lanes = sum_shifted_lanes + sum_shifted_block;
      }
      const C sum_shifted = hsum(sum_shifted_lanes);
      const C t1 = m_recip(sum_shifted);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V shifted = part.load(shifted_row + c);
        part.store(y_row + c, m_quotient(shifted, V(sum_shifted), V(t1)));
      });
      close_row<C>(a, 1, row, panel, y_row);
    }
    store_panel<C>(a, 1, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void scaled_masked_softmax_rows_forward_last(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C scale = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      C* y_row = open_row<C>(a, 2, row, panel, buffer(1));
      C* shifted_row = buffer(2);
      const int64_t last = load_whole_number(a, 1, row);
      V max_score_lanes[2] = {V(lowest<C>()), V(lowest<C>())};
      sweep_pairs<C>(0, N, [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
        const V column = numbers_from<C>(c);
        const V x = part.load(x_row + c);
        const V score = x * V(scale);
        const V score_ = m_where(m_le(column, V(C(last))), score, V(lowest<C>()));
        max_score_lanes[chain] = part.amax(max_score_lanes[chain], score_);
      });
      const C max_score = hamax(Whole::amax(max_score_lanes[0], max_score_lanes[1]));
      V sum_shifted_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_shifted_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V column = numbers_from<C>(c);
          const V x = part.load(x_row + c);
          const V score = x * V(scale);
          const V score_ = m_where(m_le(column, V(C(last))), score, V(lowest<C>()));
          const V shifted = m_exp(score_ - V(max_score));
          part.store(shifted_row + c, shifted);
          sum_shifted_block = part.sum(sum_shifted_block, shifted);
        });
        sum_shifted_lanes = sum_shifted_lanes + sum_shifted_block;
      }
      const C sum_shifted = hsum(sum_shifted_lanes);
      const C t1 = m_recip(sum_shifted);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V shifted = part.load(shifted_row + c);
        part.store(y_row + c, m_quotient(shifted, V(sum_shifted), V(t1)));
      });
      close_row<C>(a, 2, row, panel, y_row);
    }
    store_panel<C>(a, 2, panel, buffer(1));
  }
}

template <class C>
AVO_KERNEL void scaled_masked_softmax_rows_forward_attn_mask(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C scale = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* attn_mask_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* y_row = open_row<C>(a, 2, row, panel, buffer(2));
      C* shifted_row = buffer(3);
      V max_score_lanes[2] = {V(lowest<C>()), V(lowest<C>())};
      sweep_pairs<C>(0, N, [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V attn_mask = part.load(attn_mask_row + c);
        const V score = m_fma(x, V(scale), attn_mask);
        max_score_lanes[chain] = part.amax(max_score_lanes[chain], score);
      });
      const C max_score = hamax(Whole::amax(max_score_lanes[0], max_score_lanes[1]));
      V sum_shifted_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_shifted_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V attn_mask = part.load(attn_mask_row + c);
          const V score = m_fma(x, V(scale), attn_mask);
          const V shifted = m_exp(score - V(max_score));
          part.store(shifted_row + c, shifted);
          sum_shifted_block = part.sum(sum_shifted_block, shifted);
        });
        sum_shifted_lanes = sum_shifted_lanes + sum_shifted_block;
      }
      const C sum_shifted = hsum(sum_shifted_lanes);
      const C t1 = m_recip(sum_shifted);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V shifted = part.load(shifted_row + c);
        part.store(y_row + c, m_quotient(shifted, V(sum_shifted), V(t1)));
      });
      close_row<C>(a, 2, row, panel, y_row);
    }
    store_panel<C>(a, 2, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void scaled_masked_softmax_rows_forward_attn_mask_last(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C scale = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* x_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* attn_mask_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* y_row = open_row<C>(a, 3, row, panel, buffer(2));
      C* shifted_row = buffer(3);
      const int64_t last = load_whole_number(a, 2, row);
      V max_score_lanes[2] = {V(lowest<C>()), V(lowest<C>())};
      sweep_pairs<C>(0, N, [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
        const V column = numbers_from<C>(c);
        const V x = part.load(x_row + c);
        const V attn_mask = part.load(attn_mask_row + c);
        const V score = m_fma(x, V(scale), attn_mask);
        const V score_ = m_where(m_le(column, V(C(last))), score, V(lowest<C>()));
        max_score_lanes[chain] = part.amax(max_score_lanes[chain], score_);
      });
      const C max_score = hamax(Whole::amax(max_score_lanes[0], max_score_lanes[1]));
      V sum_shifted_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_shifted_block = V(C(0));
        sweep<C>(c0, block_end(c0, N), [&](int64_t c, auto part) AVO_LAMBDA {
          const V column = numbers_from<C>(c);
          const V x = part.load(x_row + c);
          const V attn_mask = part.load(attn_mask_row + c);
          const V score = m_fma(x, V(scale), attn_mask);
          const V score_ = m_where(m_le(column, V(C(last))), score, V(lowest<C>()));
          const V shifted = m_exp(score_ - V(max_score));
          part.store(shifted_row + c, shifted);
          sum_shifted_block = part.sum(sum_shifted_block, shifted);
        });
        sum_shifted_lanes = sum_shifted_lanes + sum_shifted_block;
      }
      const C sum_shifted = hsum(sum_shifted_lanes);
      const C t1 = m_recip(sum_shifted);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V shifted = part.load(shifted_row + c);
        part.store(y_row + c, m_quotient(shifted, V(sum_shifted), V(t1)));
      });
      close_row<C>(a, 3, row, panel, y_row);
    }
    store_panel<C>(a, 3, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void scaled_masked_softmax_rows_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C scale = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* y_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, panel, buffer(2));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V y = part.load(y_row + c);
          const V grad = part.load(grad_row + c);
          t1_block[chain] = part.sum(t1_block[chain], y, grad);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V y = part.load(y_row + c);
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, V(scale) * (y * (grad - V(t1))));
      });
      close_row<C>(a, 2, row, panel, grad_x_row);
    }
    store_panel<C>(a, 2, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void scaled_masked_softmax_rows_backward_last(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C scale = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* y_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 3, row, panel, buffer(2));
      const int64_t last = load_whole_number(a, 2, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V y = part.load(y_row + c);
          const V grad = part.load(grad_row + c);
          t1_block[chain] = part.sum(t1_block[chain], y, grad);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V column = numbers_from<C>(c);
        const V y = part.load(y_row + c);
        const V grad = part.load(grad_row + c);
        const V of_score = m_where(m_le(column, V(C(last))), y * (grad - V(t1)), V(C(0.0)));
        part.store(grad_x_row + c, V(scale) * of_score);
      });
      close_row<C>(a, 3, row, panel, grad_x_row);
    }
    store_panel<C>(a, 3, panel, buffer(2));
  }
}

template <class C>
AVO_KERNEL void scaled_masked_softmax_rows_backward_attn_mask(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C scale = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* y_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 2, row, panel, buffer(2));
      C* grad_attn_mask_row = open_row<C>(a, 3, row, panel, buffer(3));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V y = part.load(y_row + c);
          const V grad = part.load(grad_row + c);
          t1_block[chain] = part.sum(t1_block[chain], y, grad);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V y = part.load(y_row + c);
        const V grad = part.load(grad_row + c);
        const V t2 = y * (grad - V(t1));
        part.store(grad_x_row + c, V(scale) * t2);
        part.store(grad_attn_mask_row + c, t2);
      });
      close_row<C>(a, 2, row, panel, grad_x_row);
      close_row<C>(a, 3, row, panel, grad_attn_mask_row);
    }
    store_panel<C>(a, 2, panel, buffer(2));
    store_panel<C>(a, 3, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void scaled_masked_softmax_rows_backward_attn_mask_last(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C scale = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* y_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 3, row, panel, buffer(2));
      C* grad_attn_mask_row = open_row<C>(a, 4, row, panel, buffer(3));
      const int64_t last = load_whole_number(a, 2, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V y = part.load(y_row + c);
          const V grad = part.load(grad_row + c);
          t1_block[chain] = part.sum(t1_block[chain], y, grad);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V column = numbers_from<C>(c);
        const V y = part.load(y_row + c);
        const V grad = part.load(grad_row + c);
        const V of_score = m_where(m_le(column, V(C(last))), y * (grad - V(t1)), V(C(0.0)));
        part.store(grad_x_row + c, V(scale) * of_score);
        part.store(grad_attn_mask_row + c, of_score);
      });
      close_row<C>(a, 3, row, panel, grad_x_row);
      close_row<C>(a, 4, row, panel, grad_attn_mask_row);
    }
    store_panel<C>(a, 3, panel, buffer(2));
    store_panel<C>(a, 4, panel, buffer(3));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_scaled_masked_softmax_rows[] = {
    {"scaled_masked_softmax_rows_forward", scaled_masked_softmax_rows_forward<float>, scaled_masked_softmax_rows_forward<double>},
    {"scaled_masked_softmax_rows_forward_last", scaled_masked_softmax_rows_forward_last<float>, scaled_masked_softmax_rows_forward_last<double>},
    {"scaled_masked_softmax_rows_forward_attn_mask", scaled_masked_softmax_rows_forward_attn_mask<float>, scaled_masked_softmax_rows_forward_attn_mask<double>},
    {"scaled_masked_softmax_rows_forward_attn_mask_last", scaled_masked_softmax_rows_forward_attn_mask_last<float>, scaled_masked_softmax_rows_forward_attn_mask_last<double>},
    {"scaled_masked_softmax_rows_backward", scaled_masked_softmax_rows_backward<float>, scaled_masked_softmax_rows_backward<double>},
    {"scaled_masked_softmax_rows_backward_last", scaled_masked_softmax_rows_backward_last<float>, scaled_masked_softmax_rows_backward_last<double>},
    {"scaled_masked_softmax_rows_backward_attn_mask", scaled_masked_softmax_rows_backward_attn_mask<float>, scaled_masked_softmax_rows_backward_attn_mask<double>},
    {"scaled_masked_softmax_rows_backward_attn_mask_last", scaled_masked_softmax_rows_backward_attn_mask_last<float>, scaled_masked_softmax_rows_backward_attn_mask_last<double>},
};
AVO_HIDDEN extern const int kernels_scaled_masked_softmax_rows_count = 8;

} // namespace AVO_ISA_NAMESPACE
