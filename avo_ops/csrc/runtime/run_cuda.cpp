// Execution on CUDA: device, temporaries, launches on torch's current stream. Nothing here synchronises, and
// all memory is torch's, so that a call can be captured in a CUDA graph.
#include "cuda_kernels.h"
#include "cuda_params.h"
#include "run.h"

namespace avo {
namespace {

// Makes a device the current one, and gives back the old one at the end.
class DeviceScope {
public:
  explicit DeviceScope(int device) {
    int32_t current = -1;
    if (aoti_torch_get_current_device_index(&current) == AOTI_TORCH_SUCCESS && current == device) return;
    check_shim(aoti_torch_create_device_guard(device, &guard_), "change of the CUDA device");
  }
  DeviceScope(const DeviceScope &) = delete;
  ~DeviceScope() {
    if (guard_) aoti_torch_delete_device_guard(guard_);
  }

private:
  DeviceGuardHandle guard_ = nullptr;
};

// A thread that has made no runtime call yet has no context: then the device's primary one, which torch uses.
void ensure_context(const cuda::Driver &driver, int device) {
  cuda::Context context = nullptr;
  if (driver.cuCtxGetCurrent(&context) == 0 && context) return;
  cuda::Device handle = 0;
  cuda::Result error = driver.cuDeviceGet(&handle, device);
  if (!error) error = driver.cuDevicePrimaryCtxRetain(&context, handle);
  if (!error) error = driver.cuCtxSetCurrent(context);
  if (error) fail("cuda:", device, ": no context: ", cuda::error_text(error));
}

void launch(const Op &op, const StepPlan &step, cuda::Kernel kernel, cuda::Stream stream, bool overlap,
            void **params) {
  const Variant &variant = *step.use->variant;
  cuda::LaunchConfig config{};
  cuda::LaunchAttribute attributes[2]{};
  if (variant.cluster > 1) {
    cuda::LaunchAttribute &cluster = attributes[config.attribute_count++];
    cluster.id = cuda::kClusterDimension;
    cluster.value.cluster = {static_cast<unsigned>(variant.cluster), 1, 1};
  }
  if (overlap) {
    cuda::LaunchAttribute &early = attributes[config.attribute_count++];
    early.id = cuda::kProgrammaticSerialization;
    early.value.overlap = 1;
  }
  config.grid_x = step.grid[0];
  config.grid_y = step.grid[1];
  config.grid_z = step.grid[2];
  config.block_x = static_cast<unsigned>(variant.block);
  config.block_y = config.block_z = 1;
  config.shared_bytes = static_cast<unsigned>(variant.smem);
  config.stream = stream;
  config.attributes = attributes;
  if (cuda::Result error = cuda::driver()->cuLaunchKernelEx(&config, kernel, params, nullptr))
    fail(op.name, ": launch of ", variant.symbol, " failed: ", cuda::error_text(error));
  step.use->calls.fetch_add(1, std::memory_order_relaxed);
}

} // namespace

bool run_cuda(const Plan &plan, const Arguments &args, OwnedTensor *returns) {
  const Op &op = *plan.op;
  int device = plan.target.device, arguments = static_cast<int>(op.args.size()), count = op.operand_count();
  cuda::Stream stream = nullptr;
  if (!cuda::driver() || !current_stream(device, &stream)) return false;
  DeviceScope scope(device);
  ensure_context(*cuda::driver(), device);

  cuda::Kernel functions[kMaxSteps];
  for (int s = 0; s < plan.step_count; ++s) {
    functions[s] = cuda_kernel(*plan.steps[s].step->family, *plan.steps[s].use->variant, plan.target);
    if (!functions[s]) return false;
  }

  OwnedTensor temporaries[kMaxOperands], workspaces[kMaxSteps];
  void *data[kMaxOperands + 1];
  data[kAbsent] = nullptr;
  for (int k = 0; k < count; ++k) {
    const Operand &operand = plan.operands[k];
    data[k] = nullptr;
    if (!operand.present) continue;
    bool is_return = k >= arguments, temporary = operand.copy || operand.cast;
    if (is_return) returns[k - arguments] = allocate_return(plan, operand);
    if (temporary) temporaries[k] = allocate_temporary(plan, operand, is_return ? nullptr : args.of[k].tensor.handle);
    data[k] = temporary   ? temporaries[k].data()
              : is_return ? returns[k - arguments].data()
                          : const_cast<void *>(operand.data); // kernels do not write to arguments
  }
  for (int i = 0; i < plan.workspace_count; ++i) {
    int64_t size = plan.workspaces[i].groups * plan.workspaces[i].sums * plan.N, stride = 1;
    workspaces[i] = OwnedTensor::empty(1, &size, &stride, plan.compute, true, device);
  }

  for (int s = 0; s < plan.step_count; ++s) {
    const StepPlan &step = plan.steps[s];
    LaunchParams params;
    fill_params(plan, step, args, data, step.workspace >= 0 ? workspaces[step.workspace].data() : nullptr, params);
    launch(op, step, functions[s], stream, s > 0 && may_overlap(*step.use->variant, plan.target), params.pointers);
  }
  for (int k = arguments; k < count; ++k)
    if (temporaries[k]) returns[k - arguments].copy_from(temporaries[k].get());
  return true;
}

} // namespace avo
