// layer_norm_modulate: kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/math.h"
#include "cpu/rows.h"
#include "cpu/values.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

// layer_norm(x) * (1 + scale) + shift; scale and shift have the shape of x or broadcast to it
// Source: Peebles and Xie, Scalable Diffusion Models with Transformers, arXiv:2212.09748 (adaLN)
template <class C>
AVO_KERNEL void layer_norm_modulate_forward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  const C eps = C(a->scalars[0]);
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* scale_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* shift_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* y_row = open_row<C>(a, 3, row, panel, buffer(3));
      V sum_x_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_x_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          sum_x_block[chain] = part.sum(sum_x_block[chain], x);
        });
        sum_x_lanes = sum_x_lanes + (sum_x_block[0] + sum_x_block[1]);
      }
      const C sum_x = hsum(sum_x_lanes);
      const C mean = sum_x / C(N);
      V sum_centred_lanes(C(0));
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V sum_centred_block[2] = {V(C(0)), V(C(0))};
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V centred = x - V(mean);
          sum_centred_block[chain] = part.sum(sum_centred_block[chain], centred);
          t1_block[chain] = part.sum(t1_block[chain], centred * centred);
        });
        sum_centred_lanes = sum_centred_lanes + (sum_centred_block[0] + sum_centred_block[1]);
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C sum_centred = hsum(sum_centred_lanes);
      const C t1 = hsum(t1_lanes);
      const C residue = sum_centred / C(N);
      const C variance = m_fma(-residue, residue, t1 / C(N));
      const C rstd = m_rsqrt(eps + variance);
      const C t2 = -(residue * rstd);
      store_stat<C>(a, 4, row, rstd);
      store_stat<C>(a, 5, row, mean);
      store_stat<C>(a, 6, row, residue);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V scale = part.load(scale_row + c);
        const V x = part.load(x_row + c);
        const V shift = part.load(shift_row + c);
        const V centred = x - V(mean);
        const V y = m_fma(centred, V(rstd), V(t2));
        part.store(y_row + c, m_fma(scale + V(C(1.0)), y, shift));
      });
      close_row<C>(a, 3, row, panel, y_row);
    }
    store_panel<C>(a, 3, panel, buffer(3));
  }
}

template <class C>
AVO_KERNEL void layer_norm_modulate_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* scale_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* x_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 6, row, panel, buffer(3));
      C* grad_scale_row = open_row<C>(a, 7, row, panel, buffer(4));
      C* grad_shift_row = open_row<C>(a, 8, row, panel, buffer(5));
      const C rstd = load_stat<C>(a, 3, row);
      const C mean = load_stat<C>(a, 4, row);
      const C residue = load_stat<C>(a, 5, row);
      V t1_lanes(C(0));
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        V t2_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V scale = part.load(scale_row + c);
          const V grad = part.load(grad_row + c);
          const V x = part.load(x_row + c);
          const V t3 = (scale + V(C(1.0))) * grad;
          const V centred = x - V(mean);
          t1_block[chain] = part.sum(t1_block[chain], t3);
          t2_block[chain] = part.sum(t2_block[chain], (centred - V(residue)) * t3);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
        t2_lanes = t2_lanes + (t2_block[0] + t2_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = -(rstd * t1) / C(N);
      const C t4 = rstd * (rstd * (-t2 / C(N)));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V scale = part.load(scale_row + c);
        const V grad = part.load(grad_row + c);
        const V centred = x - V(mean);
        const V y = V(rstd) * (centred - V(residue));
        part.store(grad_x_row + c, V(t3) + m_fma(V(t4), V(rstd) * centred, V(rstd) * ((scale + V(C(1.0))) * grad)));
        part.store(grad_scale_row + c, y * grad);
        part.store(grad_shift_row + c, grad);
      });
      close_row<C>(a, 6, row, panel, grad_x_row);
      close_row<C>(a, 7, row, panel, grad_scale_row);
      close_row<C>(a, 8, row, panel, grad_shift_row);
    }
    store_panel<C>(a, 6, panel, buffer(3));
    store_panel<C>(a, 7, panel, buffer(4));
    store_panel<C>(a, 8, panel, buffer(5));
  }
}

template <class C>
AVO_KERNEL void layer_norm_modulate_backward_to_x(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    load_panel<C>(a, 2, panel, buffer(2));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* scale_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* grad_row = load_row<C>(a, 1, row, panel, buffer(1));
      const C* x_row = load_row<C>(a, 2, row, panel, buffer(2));
      C* grad_x_row = open_row<C>(a, 6, row, panel, buffer(3));
      const C rstd = load_stat<C>(a, 3, row);
      const C mean = load_stat<C>(a, 4, row);
      const C residue = load_stat<C>(a, 5, row);
      V t1_lanes(C(0));
      V t2_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        V t2_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V scale = part.load(scale_row + c);
          const V grad = part.load(grad_row + c);
          const V x = part.load(x_row + c);
          const V t3 = (scale + V(C(1.0))) * grad;
          const V centred = x - V(mean);
          t1_block[chain] = part.sum(t1_block[chain], t3);
          t2_block[chain] = part.sum(t2_block[chain], (centred - V(residue)) * t3);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
        t2_lanes = t2_lanes + (t2_block[0] + t2_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      const C t2 = hsum(t2_lanes);
      const C t3 = -(rstd * t1) / C(N);
      const C t4 = rstd * (rstd * (-t2 / C(N)));
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V x = part.load(x_row + c);
        const V scale = part.load(scale_row + c);
        const V grad = part.load(grad_row + c);
        const V centred = x - V(mean);
        part.store(grad_x_row + c, V(t3) + m_fma(V(t4), V(rstd) * centred, V(rstd) * ((scale + V(C(1.0))) * grad)));
      });
      close_row<C>(a, 6, row, panel, grad_x_row);
    }
    store_panel<C>(a, 6, panel, buffer(3));
  }
}

AVO_HIDDEN extern const AvoKernelEntry kernels_layer_norm_modulate[] = {
    {"layer_norm_modulate_forward", layer_norm_modulate_forward<float>, layer_norm_modulate_forward<double>},
    {"layer_norm_modulate_backward", layer_norm_modulate_backward<float>, layer_norm_modulate_backward<double>},
    {"layer_norm_modulate_backward_to_x", layer_norm_modulate_backward_to_x<float>, layer_norm_modulate_backward_to_x<double>},
};
AVO_HIDDEN extern const int kernels_layer_norm_modulate_count = 3;

} // namespace AVO_ISA_NAMESPACE
