#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/kernel_device.h"

namespace tern::bench {

// Values of a normal distribution, on the device and on the host, and memory for results. The host
// has a pool, and the arrays on the device are the pool over and over.
class KernelValues {
 public:
  // Arrays of so many bytes. Requires: `device` outlives it; bytes > 0, a multiple of 4.
  static Result<std::unique_ptr<KernelValues>> create(const KernelDevice& device, std::size_t bytes,
                                                      std::uint64_t seed);

  std::size_t bytes() const noexcept { return bytes_; }  // of each array
  std::size_t pool_elements() const noexcept { return pool_.size(); }

  gpu::DeviceAddress floats() const noexcept { return floats_->address(); }
  gpu::DeviceAddress halves() const noexcept { return halves_->address(); }  // the same as bf16
  // For a residual or an output.
  gpu::DeviceAddress scratch() const noexcept { return scratch_->address(); }

  // What lies in the arrays at these elements.
  std::vector<float> floats(std::size_t begin, std::size_t count) const;
  std::vector<std::uint16_t> halves(std::size_t begin, std::size_t count) const;

 private:
  KernelValues(std::size_t bytes, std::uint64_t seed);

  std::size_t bytes_;
  std::vector<float> pool_;
  std::unique_ptr<gpu::DeviceArray> floats_;
  std::unique_ptr<gpu::DeviceArray> halves_;
  std::unique_ptr<gpu::DeviceArray> scratch_;
};

}  // namespace tern::bench
