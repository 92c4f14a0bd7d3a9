#include "wire/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "wire/crc32c_folded.h"

namespace tern::wire {
namespace {

using Bytes = std::span<const std::byte>;

// Takes and gives the inverted register.
std::uint32_t by_library(Bytes bytes, std::uint32_t inverted) noexcept {
  // ISA-L takes a length of type int and a pointer to non-const that it only reads.
  constexpr std::size_t kLongest = std::size_t{1} << 30;
  while (!bytes.empty()) {
    const std::size_t length = std::min(bytes.size(), kLongest);
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
    inverted = crc32_iscsi(data, static_cast<int>(length), inverted);
    bytes = bytes.subspan(length);
  }
  return inverted;
}

std::uint32_t folded(Bytes bytes, std::uint32_t inverted) noexcept {
  const std::uint32_t of_blocks = crc32c_folded(bytes, inverted);
  return by_library(bytes, of_blocks);
}

// Either may be the faster one, by several times; which, is known of few processors (ADR 41). So
// each process tries both, for some microseconds, when its first long payload comes. The least of
// several times is what no interrupt was in.
bool folding_is_faster() noexcept {
  static const bool kIs = [] {
    constexpr int kTries = 8;
    static constexpr std::array<std::byte, 4096> kSample{};
    using Clock = std::chrono::steady_clock;
    auto least_folded = Clock::duration::max();
    auto least_by_library = Clock::duration::max();
    std::uint32_t inverted = 0;
    for (int i = 0; i < kTries; ++i) {
      const auto begin = Clock::now();
      inverted = folded(kSample, inverted);
      const auto between = Clock::now();
      inverted = by_library(kSample, inverted);
      least_folded = std::min(least_folded, between - begin);
      least_by_library = std::min(least_by_library, Clock::now() - between);
    }
    [[maybe_unused]] volatile std::uint32_t seen = inverted;  // so that it is computed
    return least_folded < least_by_library;
  }();
  return kIs;
}

}  // namespace

std::uint32_t crc32c(Bytes bytes, std::uint32_t crc) noexcept {
  if (bytes.size() >= kLeastFoldedBytes && folding_is_faster()) return ~folded(bytes, ~crc);
  return ~by_library(bytes, ~crc);
}

}  // namespace tern::wire
