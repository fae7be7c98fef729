// All kernels for the CPU. Written by the generator from definitions/; do not edit.
#include "cpu/rows.h"

#define AVO_HIDDEN __attribute__((visibility("hidden")))

namespace AVO_ISA_NAMESPACE {

AVO_HIDDEN extern const AvoKernelEntry kernels_activations[];
AVO_HIDDEN extern const int kernels_activations_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_bias[];
AVO_HIDDEN extern const int kernels_bias_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_dropout[];
AVO_HIDDEN extern const int kernels_dropout_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_dropout_add_layer_norm_rows[];
AVO_HIDDEN extern const int kernels_dropout_add_layer_norm_rows_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_dropout_add_rms_norm_rows[];
AVO_HIDDEN extern const int kernels_dropout_add_rms_norm_rows_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_gated[];
AVO_HIDDEN extern const int kernels_gated_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_cross_entropy_rows[];
AVO_HIDDEN extern const int kernels_cross_entropy_rows_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_mse_loss_rows[];
AVO_HIDDEN extern const int kernels_mse_loss_rows_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_huber_loss_rows[];
AVO_HIDDEN extern const int kernels_huber_loss_rows_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_binary_cross_entropy_with_logits_rows[];
AVO_HIDDEN extern const int kernels_binary_cross_entropy_with_logits_rows_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_kl_div_rows[];
AVO_HIDDEN extern const int kernels_kl_div_rows_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_jsd_rows[];
AVO_HIDDEN extern const int kernels_jsd_rows_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_mean_of_losses[];
AVO_HIDDEN extern const int kernels_mean_of_losses_count;
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
AVO_HIDDEN extern const AvoKernelEntry kernels_layer_norm_modulate[];
AVO_HIDDEN extern const int kernels_layer_norm_modulate_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_gated_rms_norm[];
AVO_HIDDEN extern const int kernels_gated_rms_norm_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_group_norm[];
AVO_HIDDEN extern const int kernels_group_norm_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_group_norm_silu[];
AVO_HIDDEN extern const int kernels_group_norm_silu_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_position[];
AVO_HIDDEN extern const int kernels_position_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_rms_norm_rotary_halves[];
AVO_HIDDEN extern const int kernels_rms_norm_rotary_halves_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_quantization[];
AVO_HIDDEN extern const int kernels_quantization_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_quantize_rows[];
AVO_HIDDEN extern const int kernels_quantize_rows_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_rms_norm_quantize[];
AVO_HIDDEN extern const int kernels_rms_norm_quantize_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_rms_norm_quantize_rows[];
AVO_HIDDEN extern const int kernels_rms_norm_quantize_rows_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_add_rms_norm_quantize[];
AVO_HIDDEN extern const int kernels_add_rms_norm_quantize_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_add_rms_norm_quantize_rows[];
AVO_HIDDEN extern const int kernels_add_rms_norm_quantize_rows_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_swiglu_packed_quantize_rows[];
AVO_HIDDEN extern const int kernels_swiglu_packed_quantize_rows_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_softmax[];
AVO_HIDDEN extern const int kernels_softmax_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_log_softmax[];
AVO_HIDDEN extern const int kernels_log_softmax_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_softcap_softmax[];
AVO_HIDDEN extern const int kernels_softcap_softmax_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_scaled_masked_softmax_rows[];
AVO_HIDDEN extern const int kernels_scaled_masked_softmax_rows_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_softmax_with_sink[];
AVO_HIDDEN extern const int kernels_softmax_with_sink_count;
AVO_HIDDEN extern const AvoKernelEntry kernels_optimizers[];
AVO_HIDDEN extern const int kernels_optimizers_count;

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
  at = gather(kernels_dropout, kernels_dropout_count, at);
  at = gather(kernels_dropout_add_layer_norm_rows, kernels_dropout_add_layer_norm_rows_count, at);
  at = gather(kernels_dropout_add_rms_norm_rows, kernels_dropout_add_rms_norm_rows_count, at);
  at = gather(kernels_gated, kernels_gated_count, at);
  at = gather(kernels_cross_entropy_rows, kernels_cross_entropy_rows_count, at);
  at = gather(kernels_mse_loss_rows, kernels_mse_loss_rows_count, at);
  at = gather(kernels_huber_loss_rows, kernels_huber_loss_rows_count, at);
  at = gather(kernels_binary_cross_entropy_with_logits_rows, kernels_binary_cross_entropy_with_logits_rows_count, at);
  at = gather(kernels_kl_div_rows, kernels_kl_div_rows_count, at);
  at = gather(kernels_jsd_rows, kernels_jsd_rows_count, at);
  at = gather(kernels_mean_of_losses, kernels_mean_of_losses_count, at);
  at = gather(kernels_layer_norm, kernels_layer_norm_count, at);
  at = gather(kernels_rms_norm, kernels_rms_norm_count, at);
  at = gather(kernels_l2_normalize, kernels_l2_normalize_count, at);
  at = gather(kernels_add_layer_norm, kernels_add_layer_norm_count, at);
  at = gather(kernels_add_rms_norm, kernels_add_rms_norm_count, at);
  at = gather(kernels_layer_norm_modulate, kernels_layer_norm_modulate_count, at);
  at = gather(kernels_gated_rms_norm, kernels_gated_rms_norm_count, at);
  at = gather(kernels_group_norm, kernels_group_norm_count, at);
  at = gather(kernels_group_norm_silu, kernels_group_norm_silu_count, at);
  at = gather(kernels_position, kernels_position_count, at);
  at = gather(kernels_rms_norm_rotary_halves, kernels_rms_norm_rotary_halves_count, at);
  at = gather(kernels_quantization, kernels_quantization_count, at);
  at = gather(kernels_quantize_rows, kernels_quantize_rows_count, at);
  at = gather(kernels_rms_norm_quantize, kernels_rms_norm_quantize_count, at);
  at = gather(kernels_rms_norm_quantize_rows, kernels_rms_norm_quantize_rows_count, at);
  at = gather(kernels_add_rms_norm_quantize, kernels_add_rms_norm_quantize_count, at);
  at = gather(kernels_add_rms_norm_quantize_rows, kernels_add_rms_norm_quantize_rows_count, at);
  at = gather(kernels_swiglu_packed_quantize_rows, kernels_swiglu_packed_quantize_rows_count, at);
  at = gather(kernels_softmax, kernels_softmax_count, at);
  at = gather(kernels_log_softmax, kernels_log_softmax_count, at);
  at = gather(kernels_softcap_softmax, kernels_softcap_softmax_count, at);
  at = gather(kernels_scaled_masked_softmax_rows, kernels_scaled_masked_softmax_rows_count, at);
  at = gather(kernels_softmax_with_sink, kernels_softmax_with_sink_count, at);
  at = gather(kernels_optimizers, kernels_optimizers_count, at);
  *count = at;
  return all;
}
