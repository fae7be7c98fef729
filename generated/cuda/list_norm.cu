// Generated, do not edit. avo::list_norm: list kernel
// sqrt(sum of x^2 over all elements of all tensors), in float64
// Source: what torch.nn.utils.get_total_norm computes
#include "device/list_sum.cuh"

namespace avo {

struct list_norm {
  using C = double;

  AVO_INLINE static C add(C total, C x) {
    return m_fma(x, x, total);
  }
  AVO_INLINE static void finish(const double* given, double* found) {
    const C total_ = C(given[0]);
    found[0] = m_sqrt(total_);
  }
};

} // namespace avo
