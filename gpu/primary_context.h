#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "gpu/driver_api.h"

// The context of the first GPU, for programs of Tern's own that measure or test kernels. A program
// that uses libtern_cuda has a context already.
namespace tern::gpu {

class PrimaryContext {
 public:
  // Current for the calling thread from then on. Errc::unsupported, with a sentence, where there is
  // no driver or no GPU.
  static Result<std::unique_ptr<PrimaryContext>> make_current(
      const std::string& library = "libcuda.so.1");
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  // As the driver calls the GPU.
  const std::string& device_name() const noexcept { return device_name_; }

 private:
  explicit PrimaryContext(void* library) noexcept : library_(library) {}

  void* library_;
  int device_ = -1;  // negative: nothing is retained
  DriverCode (*release_)(int device) = nullptr;
  std::string device_name_;
};

}  // namespace tern::gpu
