// Generated, do not edit. avo::sgd_momentum_: list kernel
// g = clip * grad / grad_scale (-g to maximize); nothing changes where found_inf is not 0; d = g +
//   weight_decay p; b = momentum b + (1 - dampening) d, at first d; p = p - lr b, or lr (d + momentum b) if
//   nesterov
// Source: Sutskever et al., On the Importance of Initialization and Momentum in Deep Learning, ICML 2013; as
//   torch.optim.SGD
#include "device/list.cuh"

namespace avo {

struct sgd_momentum_ {
  static constexpr int kOperands = 3, kGiven = 9, kOfTensor = 0, kShared = 7;
  static constexpr bool kSkips = true;

  // given: lr, momentum, dampening, weight_decay, nesterov, is_first_step, maximize, grad_scale, clip
  AVO_INLINE static void numbers(const double* given, double* found) {
    using C = double;
    const C lr = C(given[0]);
    const C momentum = C(given[1]);
    const C dampening = C(given[2]);
    const C weight_decay = C(given[3]);
    const C nesterov = C(given[4]);
    const C is_first_step = C(given[5]);
    const C maximize = C(given[6]);
    const C grad_scale = C(given[7]);
    const C clip = C(given[8]);
    const C factor = m_where(m_ne(maximize, C(0.0)), -clip, clip) / grad_scale;
    found[0] = factor;
    found[1] = weight_decay;
    found[2] = momentum;
    found[3] = C(1.0) - dampening;
    found[4] = m_ne(is_first_step, C(0.0)) ? C(1) : C(0);
    found[5] = m_ne(nesterov, C(0.0)) ? C(1) : C(0);
    found[6] = -lr;
  }

  template <class C, int V, class T0, class T1, class T2>
  AVO_INLINE static void elements(const C* number, const uint64_t* base, int64_t first) {
    const C factor = number[0];
    const C weight_decay = number[1];
    const C momentum = number[2];
    const C shared3 = number[3];
    const C shared4 = number[4];
    const C shared5 = number[5];
    const C shared6 = number[6];
    T0* const param_ptr = reinterpret_cast<T0*>(base[0]) + first;
    T1* const grad_ptr = reinterpret_cast<T1*>(base[1]) + first;
    T2* const momentum_buffer_ptr = reinterpret_cast<T2*>(base[2]) + first;
    Vec<T0, V> param_vec;
    load_list(param_vec, param_ptr);
    Vec<T1, V> grad_vec;
    load_list(grad_vec, grad_ptr);
    Vec<T2, V> momentum_buffer_vec;
    load_list(momentum_buffer_vec, momentum_buffer_ptr);
    C new_param_out[V], new_momentum_buffer_out[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const C g = m_fma(C(param_vec[j]), weight_decay, C(grad_vec[j]) * factor);
      const C t1 = m_where(m_ne(shared4, C(0.0)), g, m_fma(shared3, g, C(momentum_buffer_vec[j]) * momentum));
      const C update = m_where(m_ne(C(0.0), shared5), m_fma(momentum, t1, g), t1);
      new_param_out[j] = m_fma(shared6, update, C(param_vec[j]));
      new_momentum_buffer_out[j] = t1;
    }
    store_list<C>(param_ptr, new_param_out);
    store_list<C>(momentum_buffer_ptr, new_momentum_buffer_out);
  }
};

} // namespace avo
