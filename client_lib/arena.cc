#include "client_lib/arena.h"

#include <iterator>

namespace tern::client_lib {

Arena::Arena(std::uint64_t bytes) : bytes_(bytes) {
  if (bytes_ != 0) add_hole(0, bytes_);
}

std::optional<std::uint64_t> Arena::allocate(std::uint64_t bytes) {
  if (bytes > bytes_) return std::nullopt;
  const std::uint64_t taken = rounded(bytes);
  const auto fit = holes_by_bytes_.lower_bound({taken, 0});
  if (fit == holes_by_bytes_.end()) return std::nullopt;
  const auto [hole_bytes, offset] = *fit;
  blocks_.emplace(offset, taken);
  remove_hole(holes_.find(offset));
  if (hole_bytes > taken) add_hole(offset + taken, hole_bytes - taken);
  used_bytes_ += taken;
  return offset;
}

bool Arena::fits(std::uint64_t bytes) const noexcept {
  if (bytes > bytes_) return false;
  return holes_by_bytes_.lower_bound({rounded(bytes), 0}) != holes_by_bytes_.end();
}

bool Arena::free(std::uint64_t offset) {
  const auto block = blocks_.find(offset);
  if (block == blocks_.end()) return false;
  std::uint64_t begin = offset;
  std::uint64_t end = offset + block->second;
  used_bytes_ -= block->second;
  blocks_.erase(block);
  const auto after = holes_.lower_bound(begin);
  if (after != holes_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      remove_hole(before);
    }
  }
  if (after != holes_.end() && after->first == end) {
    end += after->second;
    remove_hole(after);
  }
  add_hole(begin, end - begin);
  return true;
}

void Arena::add_hole(std::uint64_t offset, std::uint64_t bytes) {
  holes_.emplace(offset, bytes);
  holes_by_bytes_.emplace(bytes, offset);
}

void Arena::remove_hole(std::map<std::uint64_t, std::uint64_t>::iterator hole) {
  holes_by_bytes_.erase({hole->second, hole->first});
  holes_.erase(hole);
}

}  // namespace tern::client_lib
