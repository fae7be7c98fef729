// Generated, do not edit. avo::lion_: list kernel
// g = clip * grad / grad_scale (-g to maximize); nothing changes where found_inf is not 0; p = p (1 - lr
//   weight_decay) - lr sign(beta1 m + (1 - beta1) g); m = beta2 m + (1 - beta2) g
// Source: Chen et al., Symbolic Discovery of Optimization Algorithms, arXiv:2302.06675
#include "device/list.cuh"

namespace avo {

struct lion_ {
  static constexpr int kOperands = 3, kGiven = 7, kOfTensor = 0, kShared = 7;
  static constexpr bool kSkips = true;

  // given: lr, beta1, beta2, weight_decay, maximize, grad_scale, clip
  AVO_INLINE static void numbers(const double* given, double* found) {
    using C = double;
    const C lr = C(given[0]);
    const C beta1 = C(given[1]);
    const C beta2 = C(given[2]);
    const C weight_decay = C(given[3]);
    const C maximize = C(given[4]);
    const C grad_scale = C(given[5]);
    const C clip = C(given[6]);
    const C factor = m_where(m_ne(maximize, C(0.0)), -clip, clip) / grad_scale;
    const C t1 = -lr;
    found[0] = factor;
    found[1] = beta1;
    found[2] = C(1.0) - beta1;
    found[3] = m_fma(t1, weight_decay, C(1.0));
    found[4] = t1;
    found[5] = beta2;
    found[6] = C(1.0) - beta2;
  }

  template <class C, int V, class T0, class T1, class T2>
  AVO_INLINE static void elements(const C* number, const uint64_t* base, int64_t first) {
    const C factor = number[0];
    const C beta1 = number[1];
    const C shared2 = number[2];
    const C shared3 = number[3];
    const C shared4 = number[4];
    const C beta2 = number[5];
    const C shared6 = number[6];
    T0* const param_ptr = reinterpret_cast<T0*>(base[0]) + first;
    T1* const grad_ptr = reinterpret_cast<T1*>(base[1]) + first;
    T2* const exp_avg_ptr = reinterpret_cast<T2*>(base[2]) + first;
    Vec<T0, V> param_vec;
    load_list(param_vec, param_ptr);
    Vec<T1, V> grad_vec;
    load_list(grad_vec, grad_ptr);
    Vec<T2, V> exp_avg_vec;
    load_list(exp_avg_vec, exp_avg_ptr);
    C new_param_out[V], new_exp_avg_out[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const C t1 = C(grad_vec[j]) * factor;
      const C update = m_sign(m_fma(t1, shared2, C(exp_avg_vec[j]) * beta1));
      new_param_out[j] = m_fma(shared4, update, C(param_vec[j]) * shared3);
      new_exp_avg_out[j] = m_fma(t1, shared6, C(exp_avg_vec[j]) * beta2);
    }
    store_list<C>(param_ptr, new_param_out);
    store_list<C>(exp_avg_ptr, new_exp_avg_out);
  }
};

} // namespace avo
