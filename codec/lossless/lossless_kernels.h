#pragma once

#include <cstddef>
#include <cstdint>

// The loops over elements of codec/lossless, one table of functions per target. Private to it.
namespace tern::codec::lossless {

// An element turned left by one bit has its exponent, or the most of it, in the highest byte, and
// mantissa and sign below. `low` gets the lower bytes of every element, `high` the highest ones.
struct LosslessKernels {
  void (*split16)(const std::uint8_t* in, std::size_t count, std::uint8_t* low,
                  std::uint8_t* high) noexcept;
  void (*split32)(const std::uint8_t* in, std::size_t count, std::uint8_t* low,
                  std::uint8_t* high) noexcept;
  void (*join16)(const std::uint8_t* low, const std::uint8_t* high, std::size_t count,
                 std::uint8_t* out) noexcept;
  void (*join32)(const std::uint8_t* low, const std::uint8_t* high, std::size_t count,
                 std::uint8_t* out) noexcept;
  // out = a ^ b. `out` may be `b`.
  void (*exclusive_or)(const std::uint8_t* a, const std::uint8_t* b, std::size_t bytes,
                       std::uint8_t* out) noexcept;
  // Bit i % 64 of masks[i / 64] says that element i of `a` is not that of `b`, for `words` words of
  // 64 elements of two or four bytes.
  void (*changes16)(const std::uint8_t* a, const std::uint8_t* b, std::size_t words,
                    std::uint64_t* masks) noexcept;
  void (*changes32)(const std::uint8_t* a, const std::uint8_t* b, std::size_t words,
                    std::uint64_t* masks) noexcept;
};

extern const LosslessKernels kScalarLossless;
// `target` is one bit of hwy::SupportedTargets(); null if this build has no kernels for it.
const LosslessKernels* lossless_highway(std::int64_t target) noexcept;

}  // namespace tern::codec::lossless
