#pragma once

#include <bit>
#include <cstddef>
#include <memory>
#include <span>

#include "gpu/driver.h"

// Memory that kernels use: the client's arena, pinned by the client and never by the daemon, and
// residuals in the device's own memory.
namespace tern::gpu {

// Of the host. What is pinned is whole pages, because a page cannot be pinned twice.
std::size_t page_bytes() noexcept;
std::size_t whole_pages(std::size_t bytes) noexcept;

// What kernels call a place. Not for the host to follow.
template <typename T>
T* as_pointer(DeviceAddress address) noexcept {
  return std::bit_cast<T*>(address);
}
template <typename T>
DeviceAddress as_address(T* place) noexcept {
  return std::bit_cast<DeviceAddress>(place);
}

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
  // What is in it makes no sense. Requires: as below.
  static Result<std::unique_ptr<DeviceArray>> allocate(const Driver& driver, std::size_t bytes);
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

// Pages of the library's own that the device reads and writes. Zeros at first.
class PinnedPages {
 public:
  // Requires: `driver` outlives it.
  static Result<std::unique_ptr<PinnedPages>> create(const Driver& driver, std::size_t bytes);
  ~PinnedPages();
  PinnedPages(const PinnedPages&) = delete;
  PinnedPages& operator=(const PinnedPages&) = delete;

  std::byte* data() noexcept { return memory_.data(); }
  std::size_t bytes() const noexcept { return memory_.size(); }
  DeviceAddress address() const noexcept { return range_->address_of(memory_.data()); }

 private:
  explicit PinnedPages(std::span<std::byte> memory) noexcept : memory_(memory) {}

  std::span<std::byte> memory_;
  std::unique_ptr<PinnedRange> range_;
};

// Copies that are done when the stream gets there. Requires: the host's memory stays until then.
Status copy_down(const Driver& driver, std::span<std::byte> to, DeviceAddress from, Stream stream);
Status copy_up(const Driver& driver, DeviceAddress to, std::span<const std::byte> from,
               Stream stream);

}  // namespace tern::gpu
