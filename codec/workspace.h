#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "codec/entropy/entropy.h"
#include "wire/block.h"

namespace tern::codec {

// The memory that encoding and decoding need besides their spans, for chunks of any length that a
// block can have. One per thread. Pages are committed when a chunk first needs them.
class Workspace {
 public:
  Workspace();

  std::span<float> sums() noexcept { return floats(0); }
  std::span<float> decoded() noexcept { return floats(1); }
  std::span<float> kept() noexcept { return floats(2); }
  std::span<std::uint32_t> positions() noexcept {
    return {static_cast<std::uint32_t*>(static_cast<void*>(part(3))), wire::kMaxBlockElements};
  }
  // Codes before the entropy coder, or what a lossless codec needs.
  std::span<std::byte> bytes() noexcept { return {part(4), kPartBytes + kBytesSlack}; }
  entropy::Scratch& entropy() noexcept { return entropy_; }

 private:
  static constexpr std::size_t kPartBytes = sizeof(float) * wire::kMaxBlockElements;
  static constexpr std::size_t kParts = 5;
  // Scales and the like beside four bytes per element, and what a decoder may write too far.
  static constexpr std::size_t kBytesSlack = 1u << 20;

  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };

  std::byte* part(std::size_t i) noexcept { return memory_.get() + i * kPartBytes; }
  std::span<float> floats(std::size_t i) noexcept {
    return {static_cast<float*>(static_cast<void*>(part(i))), wire::kMaxBlockElements};
  }

  std::unique_ptr<std::byte, Free> memory_;
  entropy::Scratch entropy_;
};

}  // namespace tern::codec
