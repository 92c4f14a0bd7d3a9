#pragma once

#include <cstdint>

#include "codec/device/selection.h"

// The section of topk (codec/sparsifier/positions.h), one byte by each thread: a thread finds the
// positions that have bits in its byte, so that no two write to one place.
namespace tern::codec::device {

class PositionSection {
 public:
  static constexpr std::uint32_t kHeaderBytes = 5;

  TERN_DEVICE PositionSection(const Selection& selection, std::uint32_t count,
                              std::uint32_t elements)
      : selection_(selection), count_(count) {
    if (count == 0) return;
    low_bits_ = log2_of(elements / count);
    low_bytes_ = (count * low_bits_ + 7) / 8;
    const std::uint32_t high_bits = count + ((elements - 1) >> low_bits_);
    const std::uint32_t bytes = low_bytes_ + (high_bits + 7) / 8;
    is_bitmap_ = (elements + 7) / 8 <= bytes;
    body_bytes_ = is_bitmap_ ? (elements + 7) / 8 : bytes;
  }

  TERN_DEVICE std::uint32_t bytes() const { return kHeaderBytes + body_bytes_; }

  TERN_DEVICE std::uint8_t byte_at(std::uint32_t i) const {
    if (i < 4) return static_cast<std::uint8_t>(count_ >> (8 * i));
    if (i == 4) return is_bitmap_ ? 0 : 1;
    const std::uint32_t at = i - kHeaderBytes;
    if (is_bitmap_) return set_bits(at, false);
    return at < low_bytes_ ? low_byte(at) : set_bits(at - low_bytes_, true);
  }

 private:
  static TERN_DEVICE std::uint32_t log2_of(std::uint32_t value) {
    std::uint32_t result = 0;
    while (value > 1) {
      value >>= 1;
      ++result;
    }
    return result;
  }

  // The bit that stands for position number i, in the bitmap or in the string of the high parts.
  TERN_DEVICE std::uint32_t bit_of(std::uint32_t i, bool high) const {
    const std::uint32_t position = selection_.position(i);
    return high ? (position >> low_bits_) + i : position;
  }

  TERN_DEVICE std::uint8_t set_bits(std::uint32_t byte, bool high) const {
    std::uint32_t first = 0;
    std::uint32_t end = count_;
    while (first < end) {
      const std::uint32_t middle = (first + end) / 2;
      if (bit_of(middle, high) < 8 * byte) {
        first = middle + 1;
      } else {
        end = middle;
      }
    }
    std::uint32_t bits = 0;
    for (std::uint32_t i = first; i < count_; ++i) {
      const std::uint32_t bit = bit_of(i, high);
      if (bit >= 8 * byte + 8) break;
      bits |= 1u << (bit % 8);
    }
    return static_cast<std::uint8_t>(bits);
  }

  TERN_DEVICE std::uint8_t low_byte(std::uint32_t byte) const {
    const std::uint32_t mask = (1u << low_bits_) - 1;
    std::uint32_t bits = 0;
    for (std::uint32_t i = 8 * byte / low_bits_; i < count_; ++i) {
      const std::uint32_t begin = i * low_bits_;
      if (begin >= 8 * byte + 8) break;
      const std::uint32_t low = selection_.position(i) & mask;
      bits |= begin >= 8 * byte ? low << (begin - 8 * byte) : low >> (8 * byte - begin);
    }
    return static_cast<std::uint8_t>(bits);
  }

  Selection selection_;
  std::uint32_t count_;
  std::uint32_t low_bits_ = 0;
  std::uint32_t low_bytes_ = 0;
  std::uint32_t body_bytes_ = 0;
  bool is_bitmap_ = true;
};

}  // namespace tern::codec::device
