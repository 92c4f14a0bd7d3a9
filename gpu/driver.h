#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "gpu/driver_api.h"

// The CUDA driver, opened at run time, in the context that is current for the calling thread: the
// program's own.
namespace tern::gpu {

// What Tern needs to know of the program's device.
struct DeviceTraits {
  int number = 0;  // as the driver counts those of the program, from 0
  int major = 0;   // compute capability
  int minor = 0;
  int shared_bytes = 0;  // the most that a block of threads may ask for
};

class Driver {
 public:
  // The oldest driver: CUDA 12.0, which has launches with a configuration and waits for words.
  static constexpr int kOldestVersion = 12000;

  // Opens the driver's library. Fails, with a sentence that says what to do, where there is none,
  // it is too old, or the thread has no context of a device that Tern has kernels for.
  static Result<std::unique_ptr<Driver>> open(const std::string& library = "libcuda.so.1");
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  const DriverApi& api() const noexcept { return api_; }
  const DeviceTraits& device() const noexcept { return device_; }
  // The one that was current when the driver was opened.
  Context context() const noexcept { return context_; }

  // What a call of the driver said, as an error. `what` names what failed, as in "pin the arena".
  Status check(DriverCode code, const char* what) const;

 private:
  explicit Driver(void* library) noexcept : library_(library) {}

  Status find_functions();
  Status look_at_device();

  void* library_;
  DriverApi api_{};
  Context context_ = nullptr;
  DeviceTraits device_;
};

}  // namespace tern::gpu
