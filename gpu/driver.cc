#include "gpu/driver.h"

#include <dlfcn.h>

#include "gpu/symbol.h"

namespace tern::gpu {
namespace {

constexpr int kOldestMajor = 8;  // sm_80

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

const char* remedy(DriverCode code) noexcept {
  switch (code) {
    case kOutOfMemory:
      return "; free device memory, or lock less memory";
    case kNoDevice:
      return "; the driver sees no GPU";
    case kInvalidContext:
      return "; call it on a thread of the program whose CUDA context is current";
    case kNoBinaryForGpu:
      return "; this build has no kernels for the GPU";
    case kAlreadyRegistered:
      return "; the program has pinned memory on the same pages: unpin it first";
    default:
      return "";
  }
}

}  // namespace

Result<std::unique_ptr<Driver>> Driver::open(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return fail(Errc::unsupported,
                "cannot open the CUDA driver: " + std::string(why != nullptr ? why : library) +
                    "; install NVIDIA's driver, or keep tensors in the processor's memory");
  }
  std::unique_ptr<Driver> driver(new Driver(handle));
  if (auto found = driver->find_functions(); !found) return tl::unexpected(found.error());
  if (auto looked = driver->look_at_device(); !looked) return tl::unexpected(looked.error());
  return driver;
}

Driver::~Driver() { dlclose(library_); }

Status Driver::find_functions() {
  // By the names that cuda.h gives to the versions of functions declared in driver_api.h.
  const char* missing = nullptr;
  const auto need = [&](const char* name, auto& function) {
    if (!find_symbol(library_, name, function) && missing == nullptr) missing = name;
  };
  need("cuInit", api_.init);
  need("cuDriverGetVersion", api_.version);
  need("cuGetErrorName", api_.error_name);
  need("cuCtxGetCurrent", api_.current_context);
  need("cuCtxSetCurrent", api_.set_context);
  need("cuCtxPushCurrent_v2", api_.push_context);
  need("cuCtxPopCurrent_v2", api_.pop_context);
  need("cuThreadExchangeStreamCaptureMode", api_.exchange_capture_mode);
  need("cuCtxGetDevice", api_.current_device);
  need("cuDeviceGetAttribute", api_.device_attribute);
  need("cuModuleLoadData", api_.load_module);
  need("cuModuleUnload", api_.unload_module);
  need("cuModuleGetFunction", api_.find_function);
  need("cuFuncSetAttribute", api_.set_function);
  need("cuLaunchKernelEx", api_.launch);
  need("cuMemAlloc_v2", api_.allocate);
  need("cuMemFree_v2", api_.release);
  need("cuMemsetD8Async", api_.fill);
  need("cuMemcpyDtoHAsync_v2", api_.copy_down);
  need("cuMemcpyHtoDAsync_v2", api_.copy_up);
  need("cuMemcpyDtoDAsync_v2", api_.copy_across);
  need("cuMemHostRegister_v2", api_.pin);
  need("cuMemHostUnregister", api_.unpin);
  need("cuMemHostGetDevicePointer_v2", api_.pinned_address);
  need("cuCtxGetStreamPriorityRange", api_.priorities);
  need("cuStreamCreateWithPriority", api_.make_stream);
  need("cuStreamDestroy_v2", api_.destroy_stream);
  need("cuStreamSynchronize", api_.finish_stream);
  need("cuStreamQuery", api_.query_stream);
  need("cuEventCreate", api_.make_event);
  need("cuEventDestroy_v2", api_.destroy_event);
  need("cuEventRecord", api_.record_event);
  need("cuStreamWaitEvent", api_.wait_event);
  need("cuEventElapsedTime", api_.elapsed);
  need("cuLaunchHostFunc", api_.call_host);
  need("cuStreamWaitValue64_v2", api_.wait_word);
  if (missing == nullptr) return {};
  return fail(Errc::unsupported, std::string("the CUDA driver lacks ") + missing +
                                     "; install a driver of CUDA " + version_text(kOldestVersion) +
                                     " or later");
}

Status Driver::look_at_device() {
  int version = 0;
  if (auto done = check(api_.version(&version), "ask the CUDA driver's version"); !done)
    return done;
  if (version < kOldestVersion) {
    return fail(Errc::unsupported, "the CUDA driver is of version " + version_text(version) +
                                       "; install one of " + version_text(kOldestVersion) +
                                       " or later");
  }
  if (auto done = check(api_.init(0), "start the CUDA driver"); !done) return done;
  if (auto done = check(api_.current_context(&context_), "find the CUDA context"); !done)
    return done;
  if (context_ == nullptr) return check(kInvalidContext, "find the CUDA context");
  if (auto done = check(api_.current_device(&device_.number), "find the GPU"); !done) return done;
  int waits = 0;
  const std::pair<int, int*> asked[] = {{kAttributeMajor, &device_.major},
                                        {kAttributeMinor, &device_.minor},
                                        {kAttributeShared, &device_.shared_bytes},
                                        {kAttributeWordWaits, &waits}};
  for (const auto& [attribute, value] : asked) {
    if (auto done =
            check(api_.device_attribute(value, attribute, device_.number), "ask about the GPU");
        !done) {
      return done;
    }
  }
  if (device_.major >= kOldestMajor && waits != 0) return {};
  return fail(Errc::unsupported, "the GPU has compute capability " + std::to_string(device_.major) +
                                     "." + std::to_string(device_.minor) +
                                     (waits != 0 ? "" : " and its streams cannot wait for words") +
                                     "; Tern has kernels for 8.0 and later, or keep tensors in "
                                     "the processor's memory");
}

Status Driver::check(DriverCode code, const char* what) const {
  if (code == kSuccess) return {};
  const char* name = nullptr;
  if (api_.error_name == nullptr || api_.error_name(code, &name) != kSuccess || name == nullptr) {
    name = "an unknown error";
  }
  const Errc kind = code == kOutOfMemory ? Errc::out_of_memory : Errc::internal;
  return fail(kind, std::string("cannot ") + what + ": the CUDA driver says " + name + " (" +
                        std::to_string(code) + ")" + remedy(code));
}

}  // namespace tern::gpu
