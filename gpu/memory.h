#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "gpu/driver.h"

// Memory that kernels use: the client's arena, pinned by the client and never by the daemon, and
// residuals in the device's own memory.
namespace tern::gpu {

// Memory of the process that the device can read and write while this lives.
class PinnedRange {
 public:
  // Requires: `driver` and the memory outlive it. The memory begins at a page.
  static Result<std::unique_ptr<PinnedRange>> pin(const Driver& driver,
                                                  std::span<std::byte> memory);
  ~PinnedRange();
  PinnedRange(const PinnedRange&) = delete;
  PinnedRange& operator=(const PinnedRange&) = delete;

  // Where the device sees a place of the memory. Requires: it lies in the range.
  DeviceAddress address_of(const std::byte* place) const noexcept {
    return address_ + static_cast<DeviceAddress>(place - memory_.data());
  }

 private:
  PinnedRange(const Driver& driver, std::span<std::byte> memory) noexcept
      : driver_(driver), memory_(memory) {}

  const Driver& driver_;
  std::span<std::byte> memory_;
  DeviceAddress address_ = 0;
};

// An array in the device's memory.
class DeviceArray {
 public:
  // Zeros, by the time that what is enqueued on `stream` later runs. Requires: `driver` outlives it,
  // and nothing that uses the array is under way when it is destroyed.
  static Result<std::unique_ptr<DeviceArray>> allocate(const Driver& driver, std::size_t bytes,
                                                       Stream stream);
  ~DeviceArray();
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  DeviceAddress address() const noexcept { return address_; }

 private:
  explicit DeviceArray(const Driver& driver) noexcept : driver_(driver) {}

  const Driver& driver_;
  DeviceAddress address_ = 0;
};

}  // namespace tern::gpu
