#include "daemon/membership/group_id.h"

#include <fmt/format.h>

#include <charconv>

#include "base/check.h"
#include "daemon/config/units.h"
#include "daemon/membership/hmac.h"

namespace tern::daemon {
namespace {

constexpr std::string_view kPrefix = "tern1:";

tl::unexpected<Error> refuse(std::string what) {
  return fail(Errc::invalid_argument, "group id " + std::move(what));
}

// Takes what is before the next colon off the front of `text`; false if there is no colon.
bool take_field(std::string_view& text, std::string_view& field) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  field = text.substr(0, colon);
  text.remove_prefix(colon + 1);
  return true;
}

Status take_host(std::string_view& text, std::string_view& host) {
  if (!text.starts_with('[')) {
    if (!take_field(text, host)) return refuse("ends after its host; it was cut short");
    return {};
  }
  const std::size_t close = text.find("]:");
  if (close == std::string_view::npos)
    return refuse("has an IPv6 host without its closing bracket");
  host = text.substr(1, close - 1);
  if (host.find(':') == std::string_view::npos)
    return refuse("has brackets without an IPv6 address");
  text.remove_prefix(close + 2);
  return {};
}

Status check_address(std::string_view host, std::uint32_t port) {
  if (!is_host(host)) return refuse("has no valid host");
  if (host.size() > kMaxGroupHostBytes) {
    return refuse("has a host of " + std::to_string(host.size()) + " characters; at most " +
                  std::to_string(kMaxGroupHostBytes) + " fit");
  }
  if (port == 0 || port > 65'535) return refuse("has no port in 1..65535");
  return {};
}

// 0, which is no valid port, for anything but the one decimal form without leading zeros.
std::uint32_t parse_port(std::string_view text) {
  std::uint32_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, port);
  const bool whole = error == std::errc{} && rest == end;
  return whole && !text.starts_with('0') ? port : 0;
}

}  // namespace

Result<GroupId> mint_group_id(std::string_view host, std::uint16_t port) {
  if (auto status = check_address(host, port); !status) return tl::unexpected(status.error());
  GroupId id;
  id.host = host;
  id.port = port;
  random_bytes(id.uid);
  random_bytes(id.secret);
  return id;
}

Result<GroupId> parse_group_id(std::string_view text) {
  if (text.size() > kMaxGroupIdBytes) {
    return refuse("has " + std::to_string(text.size()) + " characters; at most 255 are possible");
  }
  if (!text.starts_with(kPrefix)) {
    return refuse("does not begin with \"tern1:\"; pass it exactly as it was minted");
  }
  text.remove_prefix(kPrefix.size());
  std::string_view host;
  if (auto status = take_host(text, host); !status) return tl::unexpected(status.error());
  std::string_view port_text;
  if (!take_field(text, port_text)) return refuse("ends after its port; it was cut short");
  const std::uint32_t port = parse_port(port_text);
  if (auto status = check_address(host, port); !status) return tl::unexpected(status.error());
  std::string_view uid;
  if (!take_field(text, uid)) return refuse("ends after its uid; it was cut short");

  GroupId id;
  id.host = host;
  id.port = static_cast<std::uint16_t>(port);
  if (!from_hex(uid, id.uid)) return refuse("has a uid that is not 32 lower-case hex digits");
  if (!from_hex(text, id.secret)) {
    return refuse("has a secret that is not 64 lower-case hex digits but " +
                  std::to_string(text.size()) + " characters");
  }
  return id;
}

std::string format_group_id(const GroupId& id) {
  std::string text(kPrefix);
  text += format_endpoint({id.host, id.port});
  text += ':';
  text += to_hex(id.uid);
  text += ':';
  text += to_hex(id.secret);
  TERN_CHECK(text.size() <= kMaxGroupIdBytes);
  return text;
}

std::string short_group_uid(const GroupId& id) { return to_hex(id.uid).substr(0, 8); }

std::uint64_t link_number(const GroupId& id) noexcept {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < sizeof(number); ++i) {
    number = number << 8 | std::to_integer<std::uint64_t>(id.uid[i]);
  }
  return number;
}

std::string group_of_link(std::uint64_t number) {
  return number == 0 ? "" : fmt::format("{:08x}", number >> 32);
}

}  // namespace tern::daemon
