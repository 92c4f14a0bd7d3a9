#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tern::daemon {

// Names a group, its coordinator and the right to join. The text form is what applications pass
// around:
//   tern1:<host>:<port>:<uid, 32 hex digits>:<secret, 64 hex digits>
// with IPv6 hosts in brackets. There is one text for one id, so that equal ids have equal texts.
struct GroupId {
  std::string host;  // the coordinator's, without brackets; 1 to kMaxGroupHostBytes characters
  std::uint16_t port = 0;
  std::array<std::byte, 16> uid{};
  std::array<std::byte, 32> secret{};

  bool operator==(const GroupId&) const = default;
};

// tern_group_id has room for 255 characters and the zero.
inline constexpr std::size_t kMaxGroupIdBytes = 255;
// "tern1:" + "[]" + ":65535:" + 32 + ":" + 64 surround the host.
inline constexpr std::size_t kMaxGroupHostBytes = kMaxGroupIdBytes - (6 + 2 + 7 + 32 + 1 + 64);

// A new id with a random uid and secret; fails if host or port cannot be part of an id.
Result<GroupId> mint_group_id(std::string_view host, std::uint16_t port);

// The text comes from applications: the error says what is wrong with it, and never shows the
// secret.
Result<GroupId> parse_group_id(std::string_view text);

// Requires: an id from mint or parse.
std::string format_group_id(const GroupId& id);

// The first eight digits of the uid, for logs and tables. Never the secret.
std::string short_group_uid(const GroupId& id);

// The first eight bytes of the uid: what nodes tell the links of their groups apart by.
std::uint64_t link_number(const GroupId& id) noexcept;
// Of the group that a link belongs to, as short_group_uid(); empty for those of conductors.
std::string group_of_link(std::uint64_t number);

}  // namespace tern::daemon
