#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/kernels.h"
#include "gpu/memory.h"
#include "gpu/primary_context.h"
#include "gpu/streams.h"

namespace tern::bench {

// Of the launches of a series, on the device's own clock.
struct LaunchTimes {
  double median_us = 0;
  double least_us = 0;
  double most_us = 0;
};

// The first GPU of this machine with the kernels on it, and one stream for all that it does.
class KernelDevice {
 public:
  // `image_file`: a cubin or a fat binary of the kernels. `driver_library`: as of gpu::Driver.
  static Result<std::unique_ptr<KernelDevice>> open(
      const std::string& image_file, const std::string& driver_library = "libcuda.so.1");

  const std::string& name() const noexcept { return context_->device_name(); }
  const gpu::DeviceTraits& traits() const noexcept { return driver_->device(); }

  Result<std::unique_ptr<gpu::DeviceArray>> allocate(std::size_t bytes) const {
    return gpu::DeviceArray::allocate(*driver_, bytes);
  }
  // Done when they return, so that the host's memory is the caller's again.
  Status upload(gpu::DeviceAddress to, std::span<const std::byte> from) const;
  Status download(std::span<std::byte> to, gpu::DeviceAddress from) const;
  // Enqueued.
  Status copy(gpu::DeviceAddress to, gpu::DeviceAddress from, std::size_t bytes) const;
  Status fill(gpu::DeviceAddress to, unsigned char value, std::size_t bytes) const;
  Status launch(const gpu::KernelLaunch& launch) const;
  // Waits for all that is enqueued; says what went wrong with it.
  Status finish() const { return stream_->finish(); }

  // Repeats the first `unit` bytes until `bytes` are filled. Enqueued. Requires: unit > 0.
  Status tile(gpu::DeviceAddress array, std::size_t unit, std::size_t bytes) const;

  // What `enqueue` enqueues, `rounds` times after some that do not count. Requires: rounds > 0.
  Result<LaunchTimes> time(std::size_t rounds, const std::function<Status()>& enqueue) const;

 private:
  KernelDevice() = default;

  // In this order: each outlives what comes after it.
  std::unique_ptr<gpu::PrimaryContext> context_;
  std::unique_ptr<gpu::Driver> driver_;
  std::vector<char> image_;
  std::unique_ptr<gpu::Kernels> kernels_;
  std::unique_ptr<gpu::OwnStream> stream_;
};

}  // namespace tern::bench
