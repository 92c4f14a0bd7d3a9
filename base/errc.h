#pragma once

#include <cstdint>
#include <string_view>

namespace tern {

// Every error of Tern, in one list. The numbers are part of the C ABI (tern_status in tern.h) and
// of the wire: a number is never reused, new ones go to the end.
enum class Errc : std::int32_t {
  ok = 0,
  invalid_argument = 1,
  out_of_memory = 2,
  would_block = 3,
  timeout = 4,
  daemon_absent = 5,
  daemon_lost = 6,
  peer_lost = 7,
  rank_lost = 8,
  mismatch = 9,
  cancelled = 10,
  op_timeout = 11,
  bad_secret = 12,
  rank_taken = 13,
  wrong_size = 14,
  quota_exceeded = 15,
  unknown_group = 16,
  unknown_tensor = 17,
  unknown_ticket = 18,
  version_mismatch = 19,
  permission_denied = 20,
  forked = 21,
  corrupt_data = 22,
  protocol_error = 23,
  epoch_ended = 24,
  unsupported = 25,
  io_error = 26,
  shutting_down = 27,
  group_left = 28,
  state_mismatch = 29,
  result_mismatch = 30,
  bad_recipe = 31,
  already_exists = 32,
  unreachable = 33,
  internal = 34,
};

inline constexpr std::int32_t kErrcCount = 35;

// The stable lower-case name, `peer_lost`; "unknown" for a number outside the list.
std::string_view errc_name(Errc code) noexcept;

// One sentence for people: what happened and what to do about it.
std::string_view errc_text(Errc code) noexcept;

}  // namespace tern
