#pragma once

#include <cstdint>
#include <utility>

#include "base/result.h"
#include "daemon/lane/operand.h"

namespace tern::daemon {

// Owns memory without a name, and deals it out in pieces. A page costs memory once it is touched.
class Mapping {
 public:
  // out_of_memory: the kernel maps no more for this process.
  static Result<Mapping> make(std::uint64_t bytes);
  // While the daemon starts. REQUIRES: whoever starts it has seen that there is room.
  static Mapping at_start(std::uint64_t bytes);

  Mapping() noexcept = default;  // of nothing
  Mapping(Mapping&& other) noexcept { swap(other); }
  Mapping& operator=(Mapping&& other) noexcept {
    Mapping taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Mapping() { unmap(); }

  // What a piece of so many bytes takes: whole pages, so that nothing else is in its last one.
  static std::uint64_t piece_bytes(std::uint64_t bytes) noexcept;
  // The next piece. REQUIRES: there is one.
  Region take(std::uint64_t bytes) noexcept;

  // Gives pages back to the kernel, for less than a millisecond, and unmaps all when none are left.
  // True: some are. Nothing of the memory may be used any more.
  bool unmap_some() noexcept;

 private:
  void swap(Mapping& other) noexcept;
  void unmap() noexcept;

  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t with_pages_ = 0;  // the beginning, whose pages have not been given back
};

}  // namespace tern::daemon
