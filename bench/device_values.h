#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "bench/kernel_device.h"
#include "wire/block.h"

namespace tern::bench {

// Whether they have the same bits: a NaN is equal to itself, and zeros of either sign differ.
template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) noexcept {
  return std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

// An array on the device.
template <typename T>
class DeviceValues {
 public:
  // What is in it makes no sense. Requires: `device` outlives it, here and below.
  static Result<DeviceValues> allocate(const KernelDevice& device, std::size_t count) {
    auto array = device.allocate(count * sizeof(T));
    if (!array) return tl::unexpected(array.error());
    return DeviceValues(device, std::move(*array), count);
  }
  static Result<DeviceValues> of(const KernelDevice& device, const std::vector<T>& values) {
    auto made = allocate(device, values.size());
    if (!made) return made;
    auto done = device.upload(made->address(), std::as_bytes(std::span(values)));
    if (!done) return tl::unexpected(done.error());
    return made;
  }

  gpu::DeviceAddress address() const noexcept { return array_->address(); }
  std::size_t bytes() const noexcept { return count_ * sizeof(T); }
  // As kernels call it.
  T* at(std::size_t i) const noexcept { return gpu::as_pointer<T>(address()) + i; }

  // When all that is enqueued is done.
  Result<std::vector<T>> download() const {
    std::vector<T> values(count_);
    auto done = device_->download(std::as_writable_bytes(std::span(values)), address());
    if (!done) return tl::unexpected(done.error());
    return values;
  }

 private:
  DeviceValues(const KernelDevice& device, std::unique_ptr<gpu::DeviceArray> array,
               std::size_t count)
      : device_(&device), array_(std::move(array)), count_(count) {}

  const KernelDevice* device_;
  std::unique_ptr<gpu::DeviceArray> array_;
  std::size_t count_;
};

// A block of the processor's.
struct HostBlock {
  wire::BlockHeader header;
  std::vector<std::byte> payload;

  std::size_t bytes() const noexcept { return wire::kBlockHeaderBytes + payload.size(); }
};

// Places for blocks on the device, each on cache lines of its own.
class BlockSlots {
 public:
  static Result<BlockSlots> allocate(const KernelDevice& device, std::size_t count,
                                     std::size_t payload_bytes);
  // The blocks over and over. Requires: at least one and at most `count`.
  static Result<BlockSlots> filled(const KernelDevice& device, std::size_t count,
                                   const std::vector<HostBlock>& blocks);

  std::byte* at(std::size_t i) const noexcept { return bytes_.at(i * slot_bytes_); }
  // No block from before can be taken for one of the next launch. Enqueued.
  Status spoil() const { return device_->fill(bytes_.address(), 0xff, bytes_.bytes()); }
  // Whether slot `i` begins with the block.
  Result<bool> holds(std::size_t i, const HostBlock& block) const;

 private:
  BlockSlots(const KernelDevice& device, DeviceValues<std::byte> bytes, std::size_t slot_bytes)
      : device_(&device), bytes_(std::move(bytes)), slot_bytes_(slot_bytes) {}

  const KernelDevice* device_;
  DeviceValues<std::byte> bytes_;
  std::size_t slot_bytes_;
};

}  // namespace tern::bench
