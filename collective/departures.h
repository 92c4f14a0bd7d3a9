#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/errc.h"

namespace tern::collective {

// What an op's ranks are told when it fails because `rank` has left, or because its node has
// released the tensor.
std::array<char, 64> left_text(std::uint32_t rank) noexcept;
std::array<char, 64> released_text(std::uint32_t rank) noexcept;

// Which ranks of this node have left the group, and whether and why its epoch has ended.
class Departures {
 public:
  void leave(std::uint32_t local_rank) noexcept;
  std::uint64_t left() const noexcept { return left_; }  // as bits
  // Whether one of so many local ranks may still submit an op that `submitted` have.
  bool others_may_come(std::uint64_t submitted, std::uint32_t local_ranks) const noexcept;

  // Of several ends the first counts. False: it had ended before.
  bool end(Errc code, std::string_view text) noexcept;
  bool ended() const noexcept { return ended_; }
  Errc code() const noexcept { return code_; }
  std::string_view text() const noexcept { return text_; }

 private:
  std::uint64_t left_ = 0;
  bool ended_ = false;
  Errc code_ = Errc::ok;
  char text_[184] = {};
};

}  // namespace tern::collective
