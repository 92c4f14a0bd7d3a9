#include "collective/departures.h"

#include <cstdio>

#include "collective/op_sets.h"

namespace tern::collective {

std::array<char, 64> left_text(std::uint32_t rank) noexcept {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "rank %u has left the group", rank);
  return text;
}

std::array<char, 64> released_text(std::uint32_t rank) noexcept {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "the node of rank %u has released the tensor", rank);
  return text;
}

void Departures::leave(std::uint32_t local_rank) noexcept { left_ |= bit(local_rank); }

bool Departures::others_may_come(std::uint64_t submitted,
                                 std::uint32_t local_ranks) const noexcept {
  return (submitted | left_) != low_bits(local_ranks);
}

bool Departures::end(Errc code, std::string_view text) noexcept {
  if (ended_) return false;
  ended_ = true;
  code_ = code;
  text.copy(text_, sizeof(text_) - 1);
  return true;
}

}  // namespace tern::collective
