#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace tern::daemon {

using Digest = std::array<std::byte, 32>;

// HMAC-SHA256 (RFC 2104) of the parts, one after the other. The parts are not delimited: a caller
// whose parts vary in length must put the lengths among them.
Digest hmac_sha256(std::span<const std::byte> key,
                   std::initializer_list<std::span<const std::byte>> parts);

// Takes the same time wherever the first difference is. Different lengths are unequal.
bool equal_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept;

// Fills the span from the kernel's generator; waits for it once after boot.
void random_bytes(std::span<std::byte> out) noexcept;

// Lower-case digits, two a byte.
std::string to_hex(std::span<const std::byte> bytes);

// Fills all of `out`; false, with `out` unspecified, unless `text` is exactly its lower-case hex.
[[nodiscard]] bool from_hex(std::string_view text, std::span<std::byte> out) noexcept;

// The bytes of a text, for hmac_sha256.
inline std::span<const std::byte> bytes_of(std::string_view text) noexcept {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace tern::daemon
