// Launches on a GPU: its context, torch's current stream. Nothing here synchronises, so that a call can be captured in
// a CUDA graph.
#include "cuda_kernels.h"
#include "launcher.h"

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

class DriverLauncher final : public Launcher {
public:
  DriverLauncher(const Target &target, cuda::Stream stream) : target_(target), stream_(stream), scope_(target.device) {
    ensure_context(*cuda::driver(), target.device);
  }

  void *kernel(const Family &family, const Variant &variant) override { return cuda_kernel(family, variant, target_); }

  void launch(const std::string &op, const Variant &variant, const uint32_t (&grid)[3], void *kernel,
              void **params) override {
    cuda::LaunchConfig config{};
    cuda::LaunchAttribute attributes[2]{};
    if (variant.cluster > 1) {
      cuda::LaunchAttribute &cluster = attributes[config.attribute_count++];
      cluster.id = cuda::kClusterDimension;
      cluster.value.cluster = {static_cast<unsigned>(variant.cluster), 1, 1};
    }
    if (may_overlap(variant, target_)) {
      cuda::LaunchAttribute &early = attributes[config.attribute_count++];
      early.id = cuda::kProgrammaticSerialization;
      early.value.overlap = 1;
    }
    config.grid_x = grid[0];
    config.grid_y = grid[1];
    config.grid_z = grid[2];
    config.block_x = static_cast<unsigned>(variant.block);
    config.block_y = config.block_z = 1;
    config.shared_bytes = static_cast<unsigned>(variant.smem);
    config.stream = stream_;
    config.attributes = attributes;
    if (cuda::Result error =
            cuda::driver()->cuLaunchKernelEx(&config, static_cast<cuda::Kernel>(kernel), params, nullptr))
      fail(op, ": launch of ", variant.symbol, " failed: ", cuda::error_text(error));
  }

private:
  const Target &target_;
  cuda::Stream stream_;
  DeviceScope scope_;
};

} // namespace

std::unique_ptr<Launcher> driver_launcher(const Target &target) {
  cuda::Stream stream = nullptr;
  if (!cuda::driver() || !current_stream(target.device, &stream)) return nullptr;
  return std::make_unique<DriverLauncher>(target, stream);
}

} // namespace avo
