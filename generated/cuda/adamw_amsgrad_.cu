// Generated, do not edit. avo::adamw_amsgrad_: list kernel
// g = clip * grad / grad_scale (-g to maximize); nothing changes where found_inf is not 0; m = beta1 m + (1 -
//   beta1) g; v = beta2 v + (1 - beta2) g^2; u = max(u, v); p = p (1 - lr weight_decay) - lr / (1 -
//   beta1^step) m / (sqrt(u / (1 - beta2^step)) + eps)
// Source: Reddi, Kale and Kumar, On the Convergence of Adam and Beyond, ICLR 2018; as
//   torch.optim.AdamW(amsgrad=True)
#include "device/list.cuh"

namespace avo {

struct adamw_amsgrad_ {
  static constexpr int kOperands = 5, kGiven = 8, kOfTensor = 1, kShared = 10;
  static constexpr bool kSkips = true;

  // given: lr, beta1, beta2, weight_decay, eps, maximize, grad_scale, clip, step
  AVO_INLINE static void numbers(const double* given, double* found) {
    using C = double;
    const C lr = C(given[0]);
    const C beta1 = C(given[1]);
    const C beta2 = C(given[2]);
    const C weight_decay = C(given[3]);
    const C eps = C(given[4]);
    const C maximize = C(given[5]);
    const C grad_scale = C(given[6]);
    const C clip = C(given[7]);
    const C step_ = C(given[8]);
    const C factor = m_where(m_ne(maximize, C(0.0)), -clip, clip) / grad_scale;
    const C t1 = m_sqrt(C(1.0) - m_pow(beta2, step_));
    const C correction = m_recip(t1);
    const C step_size = lr / (C(1.0) - m_pow(beta1, step_));
    found[0] = factor;
    found[1] = beta1;
    found[2] = C(1.0) - beta1;
    found[3] = beta2;
    found[4] = C(1.0) - beta2;
    found[5] = t1;
    found[6] = correction;
    found[7] = eps;
    found[8] = m_fma(-lr, weight_decay, C(1.0));
    found[9] = -step_size;
  }

  template <class C, int V, class T0, class T1, class T2, class T3, class T4>
  AVO_INLINE static void elements(const C* number, const uint64_t* base, int64_t first) {
    using A = Fine;
    const C factor = number[0];
    const C beta1 = number[1];
    const C shared2 = number[2];
    const C beta2 = number[3];
    const C shared4 = number[4];
    const C shared5 = number[5];
    const C correction = number[6];
    const C eps = number[7];
    const C shared8 = number[8];
    const C shared9 = number[9];
    T0* const param_ptr = reinterpret_cast<T0*>(base[0]) + first;
    T1* const grad_ptr = reinterpret_cast<T1*>(base[1]) + first;
    T2* const exp_avg_ptr = reinterpret_cast<T2*>(base[2]) + first;
    T3* const exp_avg_sq_ptr = reinterpret_cast<T3*>(base[3]) + first;
    T4* const max_exp_avg_sq_ptr = reinterpret_cast<T4*>(base[4]) + first;
    Vec<T0, V> param_vec;
    load_list(param_vec, param_ptr);
    Vec<T1, V> grad_vec;
    load_list(grad_vec, grad_ptr);
    Vec<T2, V> exp_avg_vec;
    load_list(exp_avg_vec, exp_avg_ptr);
    Vec<T3, V> exp_avg_sq_vec;
    load_list(exp_avg_sq_vec, exp_avg_sq_ptr);
    Vec<T4, V> max_exp_avg_sq_vec;
    load_list(max_exp_avg_sq_vec, max_exp_avg_sq_ptr);
    C new_param_out[V], new_exp_avg_out[V], new_exp_avg_sq_out[V], new_max_exp_avg_sq_out[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const C t1 = C(grad_vec[j]) * factor;
      const C mean = m_fma(t1, shared2, C(exp_avg_vec[j]) * beta1);
      const C square = m_fma(t1 * t1, shared4, C(exp_avg_sq_vec[j]) * beta2);
      const C largest = m_max(C(max_exp_avg_sq_vec[j]), square);
      const C denominator = m_quotient<A>(m_sqrt(largest), shared5, correction) + eps;
      new_param_out[j] = m_fma(shared9, mean / denominator, C(param_vec[j]) * shared8);
      new_exp_avg_out[j] = mean;
      new_exp_avg_sq_out[j] = square;
      new_max_exp_avg_sq_out[j] = largest;
    }
    store_list<C>(param_ptr, new_param_out);
    store_list<C>(exp_avg_ptr, new_exp_avg_out);
    store_list<C>(exp_avg_sq_ptr, new_exp_avg_sq_out);
    store_list<C>(max_exp_avg_sq_ptr, new_max_exp_avg_sq_out);
  }
};

} // namespace avo
