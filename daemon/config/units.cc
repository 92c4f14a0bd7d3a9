#include "daemon/config/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <span>

namespace tern::daemon {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

// Largest first, so that formatting takes the largest unit that divides the value.
constexpr std::array<Unit, 5> kSizeUnits{
    {{"TiB", 1ULL << 40}, {"GiB", 1ULL << 30}, {"MiB", 1ULL << 20}, {"KiB", 1ULL << 10}, {"B", 1}}};
constexpr std::array<Unit, 6> kDurationUnits{{{"h", 3'600'000'000'000},
                                              {"min", 60'000'000'000},
                                              {"s", 1'000'000'000},
                                              {"ms", 1'000'000},
                                              {"us", 1'000},
                                              {"ns", 1}}};

constexpr std::string_view kSizeForm =
    "write a whole number with B, KiB, MiB, GiB or TiB, for example \"256KiB\"";
constexpr std::string_view kDurationForm =
    "write a whole number with ns, us, ms, s, min or h, for example \"500ms\"";

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

bool is_alphanumeric(char c) noexcept {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// default_factor is the factor of a number without a unit; 0 means that only zero may go without.
Result<std::uint64_t> parse_with_unit(std::string_view text, std::span<const Unit> units,
                                      std::uint64_t default_factor, std::string_view form) {
  const std::string quoted = fmt::format("\"{}\"", text);
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc::result_out_of_range) {
    return fail(Errc::invalid_argument, fmt::format("{} is too large", quoted));
  }
  if (error != std::errc{}) {
    return fail(Errc::invalid_argument, fmt::format("{} is not a number; {}", quoted, form));
  }
  std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  std::uint64_t factor = default_factor;
  if (!unit.empty()) {
    const auto found =
        std::find_if(units.begin(), units.end(), [&](const Unit& row) { return row.name == unit; });
    if (found == units.end()) {
      return fail(Errc::invalid_argument, fmt::format("{} has no known unit; {}", quoted, form));
    }
    factor = found->factor;
  } else if (factor == 0 && number != 0) {
    return fail(Errc::invalid_argument, fmt::format("{} lacks a unit; {}", quoted, form));
  }
  if (factor != 0 && number > std::numeric_limits<std::uint64_t>::max() / factor) {
    return fail(Errc::invalid_argument, fmt::format("{} is too large", quoted));
  }
  return number * factor;
}

std::string format_with_unit(std::uint64_t value, std::span<const Unit> units) {
  if (value == 0) return fmt::format("0{}", units.back().name);
  for (const Unit& unit : units) {
    if (value % unit.factor == 0) return fmt::format("{}{}", value / unit.factor, unit.name);
  }
  return fmt::format("{}", value);
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  return parse_with_unit(text, kSizeUnits, 1, kSizeForm);
}

std::string format_size(std::uint64_t bytes) { return format_with_unit(bytes, kSizeUnits); }

Result<std::uint64_t> parse_duration(std::string_view text) {
  return parse_with_unit(text, kDurationUnits, 0, kDurationForm);
}

std::string format_duration(std::uint64_t ns) {
  return ns == 0 ? "0s" : format_with_unit(ns, kDurationUnits);
}

Result<std::uint64_t> parse_count(std::string_view text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || rest != end) {
    return fail(Errc::invalid_argument, fmt::format("\"{}\" is not a whole number", text));
  }
  return number;
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  const auto bad = [&](std::string_view what) {
    return fail(Errc::invalid_argument,
                fmt::format("\"{}\" {}; write host:port or [IPv6]:port", text, what));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad("has no port");
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!bracketed && host.find(':') != std::string_view::npos) return bad("has colons in its host");
  // Who expands a variable there need not know which kind of address it is.
  if (bracketed && host.find(':') == std::string_view::npos &&
      host.find_first_not_of("0123456789.") != std::string_view::npos) {
    return bad("has no address in []");
  }
  if (!is_host(host)) return bad("has no valid host");
  const auto port = parse_count(text.substr(colon + 1));
  if (!port || *port > 65'535) return bad("has no port in 0..65535");
  return Endpoint{std::string(host), static_cast<std::uint16_t>(*port)};
}

std::string format_endpoint(const Endpoint& endpoint) {
  if (endpoint.host.empty()) return "";
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", endpoint.host, endpoint.port)
            : fmt::format("{}:{}", endpoint.host, endpoint.port);
}

bool is_host(std::string_view host) noexcept {
  if (host.empty()) return false;
  const bool v6 = host.find(':') != std::string_view::npos;
  // A per cent sign introduces the zone of a link-local address.
  const std::string_view marks = v6 ? ":.%" : ".-_";
  return std::all_of(host.begin(), host.end(), [&](char c) {
    return is_alphanumeric(c) || marks.find(c) != std::string_view::npos;
  });
}

Result<std::uint32_t> parse_mode(std::string_view text) {
  std::uint32_t mode = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, mode, 8);
  if (error != std::errc{} || rest != end || mode > 0777) {
    return fail(
        Errc::invalid_argument,
        fmt::format("\"{}\" is not a file mode; write octal text, \"0000\" to \"0777\"", text));
  }
  return mode;
}

std::string format_mode(std::uint32_t mode) { return fmt::format("{:04o}", mode); }

}  // namespace tern::daemon
