#pragma once

#include <cstdint>

// Random numbers that are a function of a key and a position, so that any part of a tensor can be
// drawn anywhere, in any order and by any instruction set, with the same bits. No state.
namespace tern {

// Bijective on 32 bits, with every input bit spread over the output (the finalizer of a hash).
constexpr std::uint32_t mix32(std::uint32_t x) noexcept {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  x ^= x >> 16;
  return x;
}

constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  x ^= x >> 31;
  return x;
}

// One more part of what a key is made of: key = mixed_key(mixed_key(seed, step), node).
constexpr std::uint64_t mixed_key(std::uint64_t key, std::uint64_t part) noexcept {
  return mix64(key + 0x9e3779b97f4a7c15u * (part + 1));
}

// Uniform over all 32-bit numbers. A loop over consecutive positions is made of plain 32-bit
// operations, which compilers vectorize.
constexpr std::uint32_t random_u32(std::uint64_t key, std::uint32_t position) noexcept {
  const auto low = static_cast<std::uint32_t>(key);
  const auto high = static_cast<std::uint32_t>(key >> 32);
  return mix32(mix32(position ^ low) + high);
}

// Uniform over the multiples of 2^-24 in [0, 1).
constexpr float random_unit(std::uint64_t key, std::uint32_t position) noexcept {
  return static_cast<float>(static_cast<std::int32_t>(random_u32(key, position) >> 8)) * 0x1p-24f;
}

}  // namespace tern
