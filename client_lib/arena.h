#pragma once

// Shares out the bytes of the arena: best fit, neighbours joined when freed. It knows offsets only;
// its books are in the process's own memory, because arena bytes belong to the application.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace tern::client_lib {

class Arena {
 public:
  static constexpr std::uint64_t kAlignment = 64;

  // What so many bytes take.
  static std::uint64_t rounded(std::uint64_t bytes) noexcept {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // REQUIRES: bytes is a multiple of kAlignment.
  explicit Arena(std::uint64_t bytes);

  // An offset, aligned to kAlignment, or nothing if no hole is large enough. REQUIRES: bytes > 0.
  std::optional<std::uint64_t> allocate(std::uint64_t bytes);

  // False if offset is not one that allocate returned and nobody freed since.
  bool free(std::uint64_t offset);

  // Whether allocate() would find room.
  bool fits(std::uint64_t bytes) const noexcept;

  std::uint64_t used_bytes() const noexcept { return used_bytes_; }

 private:
  void add_hole(std::uint64_t offset, std::uint64_t bytes);
  void remove_hole(std::map<std::uint64_t, std::uint64_t>::iterator hole);

  std::uint64_t bytes_;
  std::uint64_t used_bytes_ = 0;
  std::map<std::uint64_t, std::uint64_t> holes_;                      // offset -> bytes
  std::set<std::pair<std::uint64_t, std::uint64_t>> holes_by_bytes_;  // (bytes, offset)
  std::unordered_map<std::uint64_t, std::uint64_t> blocks_;           // offset -> bytes
};

}  // namespace tern::client_lib
