#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "daemon/config/config.h"

// The text forms of values in settings. Every format_ function gives text that its parse_ function
// reads back to the same value. The error texts say what is allowed.
namespace tern::daemon {

inline constexpr std::uint64_t kKiB = 1ULL << 10;
inline constexpr std::uint64_t kMiB = 1ULL << 20;
inline constexpr std::uint64_t kGiB = 1ULL << 30;
inline constexpr std::uint64_t kTiB = 1ULL << 40;
inline constexpr std::uint64_t kMs = 1'000'000;  // in nanoseconds, as the next two
inline constexpr std::uint64_t kSecond = 1'000'000'000;
inline constexpr std::uint64_t kDay = 86'400 * kSecond;

// "256KiB", "1GiB", "512B" or plain bytes "4096".
Result<std::uint64_t> parse_size(std::string_view text);
std::string format_size(std::uint64_t bytes);

// "10min", "500ms", "20us"; only zero needs no unit. Nanoseconds.
Result<std::uint64_t> parse_duration(std::string_view text);
std::string format_duration(std::uint64_t ns);

Result<std::uint64_t> parse_count(std::string_view text);

// "host:port" or "[IPv6]:port".
Result<Endpoint> parse_endpoint(std::string_view text);
std::string format_endpoint(const Endpoint& endpoint);

// True for a host name, an IPv4 address or, with a colon in it, an IPv6 address without brackets.
// Looks at the characters only; the resolver has the last word.
bool is_host(std::string_view host) noexcept;

// File modes in octal, "0660".
Result<std::uint32_t> parse_mode(std::string_view text);
std::string format_mode(std::uint32_t mode);

}  // namespace tern::daemon
