#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <span>
#include <utility>

namespace tern::rdma {

// Owns a mapping of whole pages, so that what a device pins holds nothing else.
class Mapping {
 public:
  Mapping() noexcept = default;
  explicit Mapping(std::span<std::byte> bytes) noexcept : bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }

  // Empty if the kernel has no memory.
  static Mapping make(std::size_t bytes) noexcept {
    void* memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return {};
    return Mapping({static_cast<std::byte*>(memory), bytes});
  }
  std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace tern::rdma
