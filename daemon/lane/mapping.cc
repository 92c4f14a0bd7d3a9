#include "daemon/lane/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/check.h"
#include "base/free_slice.h"

namespace tern::daemon {

Result<Mapping> Mapping::make(std::uint64_t bytes) {
  Mapping made;
  if (bytes == 0) return made;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail_errno(Errc::out_of_memory, "cannot map " + std::to_string(bytes) + " bytes", errno);
  }
  made.base_ = static_cast<std::byte*>(memory);
  made.bytes_ = made.with_pages_ = bytes;
  return made;
}

Mapping Mapping::at_start(std::uint64_t bytes) {
  auto made = make(bytes);
  TERN_CHECK(made.has_value());
  return std::move(*made);
}

std::uint64_t Mapping::piece_bytes(std::uint64_t bytes) noexcept {
  static const auto kPageBytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

Region Mapping::take(std::uint64_t bytes) noexcept {
  const std::uint64_t piece = piece_bytes(bytes);
  TERN_CHECK(piece <= bytes_ - taken_);
  Region region;
  region.base = base_ + taken_;
  region.bytes = piece;
  taken_ += piece;
  return region;
}

bool Mapping::unmap_some() noexcept {
  if (with_pages_ > 0) {
    const std::uint64_t left = without_last_slice(base_, with_pages_);
    ::madvise(base_ + left, with_pages_ - left, MADV_DONTNEED);
    with_pages_ = left;
  }
  if (with_pages_ > 0) return true;
  unmap();
  return false;
}

// Where the kernel has made one mapping of this one and its neighbours, and may have no more of
// them, this fails. The addresses then stay, without pages if they were given back before.
void Mapping::unmap() noexcept {
  if (base_ != nullptr) ::munmap(base_, bytes_);
  base_ = nullptr;
  bytes_ = taken_ = with_pages_ = 0;
}

void Mapping::swap(Mapping& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(taken_, other.taken_);
  std::swap(with_pages_, other.with_pages_);
}

}  // namespace tern::daemon
