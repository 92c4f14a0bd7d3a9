#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "gpu/kernels.h"
#include "gpu/memory.h"

// What kernels are told and what they answer, in arrays of a fixed length.
namespace tern::cuda {

// Where kernels run. Both outlive whatever is given it.
struct Device {
  const gpu::Driver& driver;
  const gpu::Kernels& kernels;
};

// Memory of this kind that somebody holds.
struct HeldBytes {
  std::uint64_t device = 0;
  std::uint64_t pinned = 0;

  HeldBytes& operator+=(const HeldBytes& more) noexcept {
    device += more.device;
    pinned += more.pinned;
    return *this;
  }
};

// Of the host; kernels write to it over the bus, an element once.
template <typename T>
class Answers {
 public:
  static Result<Answers> create(const gpu::Driver& driver, std::size_t count) {
    auto pages = gpu::PinnedPages::create(driver, count * sizeof(T));
    if (!pages) return tl::unexpected(pages.error());
    return Answers(std::move(*pages), count);
  }

  std::span<T> host() const noexcept {
    return {static_cast<T*>(static_cast<void*>(pages_->data())), count_};
  }
  T* device(std::size_t i) const noexcept { return gpu::as_pointer<T>(pages_->address()) + i; }
  HeldBytes held() const noexcept { return {0, pages_->bytes()}; }

 private:
  Answers(std::unique_ptr<gpu::PinnedPages> pages, std::size_t count)
      : pages_(std::move(pages)), count_(count) {}

  std::unique_ptr<gpu::PinnedPages> pages_;
  std::size_t count_;
};

// Written by the host and copied to the device, where all threads of a launch read them.
template <typename T>
class Orders {
 public:
  static Result<Orders> create(const gpu::Driver& driver, std::size_t count) {
    auto host = Answers<T>::create(driver, count);
    if (!host) return tl::unexpected(host.error());
    auto array = gpu::DeviceArray::allocate(driver, count * sizeof(T));
    if (!array) return tl::unexpected(array.error());
    return Orders(driver, std::move(*host), std::move(*array));
  }

  std::span<T> host() const noexcept { return host_.host(); }
  T* device(std::size_t i) const noexcept { return gpu::as_pointer<T>(array_->address()) + i; }
  Status upload(std::size_t count, gpu::Stream stream) const {
    return gpu::copy_up(*driver_, array_->address(), std::as_bytes(host().first(count)), stream);
  }
  HeldBytes held() const noexcept { return {host().size_bytes(), host_.held().pinned}; }

 private:
  Orders(const gpu::Driver& driver, Answers<T> host, std::unique_ptr<gpu::DeviceArray> array)
      : driver_(&driver), host_(std::move(host)), array_(std::move(array)) {}

  const gpu::Driver* driver_;
  Answers<T> host_;
  std::unique_ptr<gpu::DeviceArray> array_;
};

}  // namespace tern::cuda
