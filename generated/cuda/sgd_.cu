// Generated, do not edit. avo::sgd_: list kernel
// g = clip * grad / grad_scale (-g to maximize); nothing changes where found_inf is not 0; p = p - lr (g +
//   weight_decay p)
// Source: Robbins and Monro, A Stochastic Approximation Method, 1951; as torch.optim.SGD
#include "device/list.cuh"

namespace avo {

struct sgd_ {
  static constexpr int kOperands = 2, kGiven = 5, kOfTensor = 0, kShared = 3;
  static constexpr bool kSkips = true;

  // given: lr, weight_decay, maximize, grad_scale, clip
  AVO_INLINE static void numbers(const double* given, double* found) {
    using C = double;
    const C lr = C(given[0]);
    const C weight_decay = C(given[1]);
    const C maximize = C(given[2]);
    const C grad_scale = C(given[3]);
    const C clip = C(given[4]);
    const C factor = m_where(m_ne(maximize, C(0.0)), -clip, clip) / grad_scale;
    found[0] = factor;
    found[1] = weight_decay;
    found[2] = -lr;
  }

  template <class C, int V, class T0, class T1>
  AVO_INLINE static void elements(const C* number, const uint64_t* base, int64_t first) {
    const C factor = number[0];
    const C weight_decay = number[1];
    const C shared2 = number[2];
    T0* const param_ptr = reinterpret_cast<T0*>(base[0]) + first;
    T1* const grad_ptr = reinterpret_cast<T1*>(base[1]) + first;
    Vec<T0, V> param_vec;
    load_list(param_vec, param_ptr);
    Vec<T1, V> grad_vec;
    load_list(grad_vec, grad_ptr);
    C new_param_out[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const C g = m_fma(C(param_vec[j]), weight_decay, C(grad_vec[j]) * factor);
      new_param_out[j] = m_fma(shared2, g, C(param_vec[j]));
    }
    store_list<C>(param_ptr, new_param_out);
  }
};

} // namespace avo
