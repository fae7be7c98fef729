// All kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/rows.h"
#include "cpu/finish.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

AVO_HIDDEN extern const AvoKernelEntry kernels_activations[];
AVO_HIDDEN extern const int kernels_activations_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_bias[];
AVO_HIDDEN extern const int kernels_bias_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_gated[];
AVO_HIDDEN extern const int kernels_gated_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_cross_entropy_rows[];
AVO_HIDDEN extern const int kernels_cross_entropy_rows_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_layer_norm[];
AVO_HIDDEN extern const int kernels_layer_norm_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_rms_norm[];
AVO_HIDDEN extern const int kernels_rms_norm_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_l2_normalize[];
AVO_HIDDEN extern const int kernels_l2_normalize_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_add_layer_norm[];
AVO_HIDDEN extern const int kernels_add_layer_norm_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_add_rms_norm[];
AVO_HIDDEN extern const int kernels_add_rms_norm_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_softmax[];
AVO_HIDDEN extern const int kernels_softmax_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_log_softmax[];
AVO_HIDDEN extern const int kernels_log_softmax_count;

static constexpr int kMost = 1024;
static AvoKernelEntry all[kMost];

static int gather(const AvoKernelEntry* table, int count, int at) {
  for (int i = 0; i < count && at < kMost; ++i) all[at++] = table[i];
  return at;
}

} // namespace AVO_ISA_NAMESPACE

extern "C" const AvoKernelEntry* AVO_PASTE(avo_cpu_kernels_, AVO_ISA_SUFFIX)(int* count) {
  using namespace AVO_ISA_NAMESPACE;
  int at = 0;
  at = gather(kernels_activations, kernels_activations_count, at);
  at = gather(kernels_bias, kernels_bias_count, at);
  at = gather(kernels_gated, kernels_gated_count, at);
  at = gather(kernels_cross_entropy_rows, kernels_cross_entropy_rows_count, at);
  at = gather(kernels_layer_norm, kernels_layer_norm_count, at);
  at = gather(kernels_rms_norm, kernels_rms_norm_count, at);
  at = gather(kernels_l2_normalize, kernels_l2_normalize_count, at);
  at = gather(kernels_add_layer_norm, kernels_add_layer_norm_count, at);
  at = gather(kernels_add_rms_norm, kernels_add_rms_norm_count, at);
  at = gather(kernels_softmax, kernels_softmax_count, at);
  at = gather(kernels_log_softmax, kernels_log_softmax_count, at);
  *count = at;
  return all;
}
