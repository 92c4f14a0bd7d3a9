#include "gpu/kernels.h"

namespace tern::gpu {

Result<std::unique_ptr<Kernels>> Kernels::load(const Driver& driver, const void* image) {
  std::unique_ptr<Kernels> kernels(new Kernels(driver));
  const DriverApi& api = driver.api();
  if (auto done = driver.check(api.load_module(&kernels->module_, image), "load the kernels");
      !done) {
    kernels->module_ = nullptr;
    return tl::unexpected(done.error());
  }
  for (std::size_t i = 0; i < kKernelCount; ++i) {
    Function& function = kernels->functions_[i];
    auto done = driver.check(api.find_function(&function, kernels->module_, kKernelNames[i]),
                             "find a kernel; the kernels are of another version");
    if (done) {
      done = driver.check(api.set_function(function, kFunctionShared, driver.device().shared_bytes),
                          "give a kernel its shared memory");
    }
    if (!done) return tl::unexpected(done.error());
  }
  return kernels;
}

Kernels::~Kernels() {
  if (module_ != nullptr) driver_.api().unload_module(module_);
}

Status Kernels::launch(const KernelLaunch& launch, Stream stream) const {
  if (launch.chunks == 0) return {};
  const auto most = static_cast<std::uint32_t>(driver_.device().shared_bytes);
  if (launch.shared_bytes > most) {
    return fail(Errc::unsupported, "a chunk takes " + std::to_string(launch.shared_bytes) +
                                       " bytes of shared memory and the GPU has " +
                                       std::to_string(most) + "; use smaller chunks");
  }
  LaunchConfig config{};
  config.grid[0] = launch.chunks;
  config.grid[1] = config.grid[2] = 1;
  config.block[0] = kThreads;
  config.block[1] = config.block[2] = 1;
  config.shared_bytes = launch.shared_bytes;
  config.stream = stream;
  Function function = functions_[static_cast<std::size_t>(launch.kernel)];
  return driver_.check(driver_.api().launch(&config, function, launch.parameters, nullptr),
                       "launch a kernel");
}

}  // namespace tern::gpu
