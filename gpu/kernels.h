#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "gpu/driver.h"

// The kernels of codec/device in the program's context.
namespace tern::gpu {

// In the order of kKernelNames.
enum class Kernel : std::uint8_t {
  threelc_encode,
  threelc_encode_twice,
  threelc_decode,
  threelc_add,
  int8_encode,
  int8_decode,
  int8_add,
  int4_encode,
  int4_decode,
  int4_add,
  fp8_e4m3_encode,
  fp8_e4m3_decode,
  fp8_e4m3_add,
  fp8_e5m2_encode,
  fp8_e5m2_decode,
  fp8_e5m2_add,
  bf16_encode,
  bf16_decode,
  bf16_add,
  topk_encode,
  lossless_encode,
};
inline constexpr std::size_t kKernelCount = 21;

// The entry points in codec/device/kernels.cu.
inline constexpr std::array<const char*, kKernelCount> kKernelNames = {
    "tern_threelc_encode", "tern_threelc_encode_twice", "tern_threelc_decode",
    "tern_threelc_add",    "tern_int8_encode",          "tern_int8_decode",
    "tern_int8_add",       "tern_int4_encode",          "tern_int4_decode",
    "tern_int4_add",       "tern_fp8_e4m3_encode",      "tern_fp8_e4m3_decode",
    "tern_fp8_e4m3_add",   "tern_fp8_e5m2_encode",      "tern_fp8_e5m2_decode",
    "tern_fp8_e5m2_add",   "tern_bf16_encode",          "tern_bf16_decode",
    "tern_bf16_add",       "tern_topk_encode",          "tern_lossless_encode",
};

struct KernelLaunch {
  Kernel kernel;
  std::uint32_t chunks;        // one block of threads for each
  std::uint32_t shared_bytes;  // of a block
  void** parameters;           // pointers to the kernel's arguments, in their order
};

class Kernels {
 public:
  static constexpr unsigned kThreads = 512;  // of a block, as in kernels.cu

  // `image` is a cubin or a fat binary of kernels.cu. Every kernel may use all shared memory that
  // the device gives a block. Requires: `driver` outlives it.
  static Result<std::unique_ptr<Kernels>> load(const Driver& driver, const void* image);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // Returns when the launch is enqueued; none for no chunks. The error of a kernel that runs shows
  // at a later call of the driver.
  Status launch(const KernelLaunch& launch, Stream stream) const;

 private:
  explicit Kernels(const Driver& driver) noexcept : driver_(driver) {}

  const Driver& driver_;
  Module module_ = nullptr;
  std::array<Function, kKernelCount> functions_{};
};

}  // namespace tern::gpu
