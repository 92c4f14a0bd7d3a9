#include "gpu/primary_context.h"

#include <dlfcn.h>

#include <array>

#include "gpu/symbol.h"

namespace tern::gpu {
Result<std::unique_ptr<PrimaryContext>> PrimaryContext::make_current(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return fail(Errc::unsupported,
                "cannot open the CUDA driver: " + std::string(why != nullptr ? why : library));
  }
  std::unique_ptr<PrimaryContext> made(new PrimaryContext(handle));
  DriverCode (*init)(unsigned flags) = nullptr;
  DriverCode (*find_device)(int* device, int number) = nullptr;
  DriverCode (*name_of)(char* name, int length, int device) = nullptr;
  DriverCode (*retain)(Context * context, int device) = nullptr;
  DriverCode (*set_current)(Context context) = nullptr;
  if (!find_symbol(handle, "cuInit", init) || !find_symbol(handle, "cuDeviceGet", find_device) ||
      !find_symbol(handle, "cuDeviceGetName", name_of) ||
      !find_symbol(handle, "cuDevicePrimaryCtxRetain", retain) ||
      !find_symbol(handle, "cuDevicePrimaryCtxRelease_v2", made->release_) ||
      !find_symbol(handle, "cuCtxSetCurrent", set_current)) {
    return fail(Errc::unsupported, library + " is no CUDA driver");
  }
  const auto failed = [](const char* what, DriverCode code) {
    return fail(Errc::unsupported, std::string("cannot ") + what + ": the CUDA driver says error " +
                                       std::to_string(code));
  };
  if (const auto code = init(0); code != kSuccess) return failed("start the CUDA driver", code);
  int device = 0;
  if (const auto code = find_device(&device, 0); code != kSuccess) {
    return failed("find a GPU", code);
  }
  std::array<char, 256> name{};
  if (const auto code = name_of(name.data(), static_cast<int>(name.size()) - 1, device);
      code != kSuccess) {
    return failed("ask the GPU's name", code);
  }
  made->device_name_ = name.data();
  Context context = nullptr;
  if (const auto code = retain(&context, device); code != kSuccess) {
    return failed("make a CUDA context", code);
  }
  made->device_ = device;
  if (const auto code = set_current(context); code != kSuccess) {
    return failed("enter the CUDA context", code);
  }
  return made;
}

PrimaryContext::~PrimaryContext() {
  if (device_ >= 0) release_(device_);
  dlclose(library_);
}

}  // namespace tern::gpu
