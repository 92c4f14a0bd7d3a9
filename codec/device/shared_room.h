#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/device/chunk.h"

// The shared memory that a block of threads needs for a chunk, which a launch has to ask for. Each
// function adds up the arrays that its kernel takes; tests/codec/device compares the sums with what
// the kernels take. For the processor.
namespace tern::codec::device {

inline constexpr std::size_t kBlockThreads = 512;  // as kernels.cu is compiled for

class SharedRoom {
 public:
  constexpr SharedRoom& take(std::size_t elements, std::size_t element_bytes) noexcept {
    bytes_ += (elements * element_bytes + kAlignment - 1) / kAlignment * kAlignment;
    return *this;
  }
  // One number of four bytes for each warp.
  constexpr SharedRoom& take_warps() noexcept { return take(kBlockThreads / 32, 4); }

  constexpr std::size_t bytes() const noexcept { return bytes_; }

 private:
  static constexpr std::size_t kAlignment = 16;

  std::size_t bytes_ = 0;
};

// Sums of a chunk, squares of a tile, the largest of each row, and the lanes of both energies.
constexpr SharedRoom sums_room(std::size_t elements, std::size_t row, bool on_chip) noexcept {
  const std::size_t rows = (elements + row - 1) / row;
  SharedRoom room;
  room.take((on_chip ? (elements + 63) / 64 * 64 : 0) + 4, 4);
  room.take(8 * kBlockThreads, 4).take(rows == 0 ? 1 : rows, 4).take(32 + 64, 4);
  return room;
}

constexpr std::size_t digit_column_room(std::size_t elements) noexcept {
  return ((elements + 4) / 5 + 1 + 15) / 16 * 16;
}

constexpr std::size_t threelc_encode_room(std::size_t elements, std::size_t scale_count,
                                          bool on_chip) noexcept {
  SharedRoom room = sums_room(elements, 64, on_chip);
  room.take(scale_count + 1, 4).take_warps().take_warps();
  room.take(on_chip ? 4 : 20 * kBlockThreads, 4);
  const std::size_t columns = digit_column_room(elements);
  return room.take(columns, 1).take(columns, 1).bytes();
}

constexpr std::size_t threelc_decode_room(std::size_t elements, std::size_t blocks,
                                          const DecodeRoom& decode) noexcept {
  const std::size_t columns = digit_column_room(elements);
  SharedRoom room;
  room.take(blocks + 1, sizeof(PayloadView)).take(columns * decode.at_once, 1);
  room.take((decode.scale_count + std::size_t{1}) * decode.at_once, 4);
  room.take(decode.at_once, 4);
  return room.take_warps().take_warps().bytes();
}

// What the formats of element_encode.cuh keep for a scale.
inline constexpr std::size_t kIntegerGridBytes = 12;
inline constexpr std::size_t kFp8GridBytes = 8;
inline constexpr std::size_t kBf16GridBytes = 1;

constexpr std::size_t element_encode_room(std::size_t elements, std::size_t scale_count,
                                          std::size_t grid_bytes) noexcept {
  return sums_room(elements, 32, true).take(scale_count + 1, grid_bytes).take_warps().bytes();
}

constexpr std::size_t element_decode_room(std::size_t blocks, const DecodeRoom& decode) noexcept {
  SharedRoom room;
  room.take(blocks + 1, sizeof(PayloadView));
  room.take(std::size_t{decode.at_once} * decode.scale_count + 1, 4);
  room.take(decode.at_once + std::size_t{1}, kBodyBytes);  // where codes begin, and a reciprocal
  return room.take_warps().bytes();
}

// `limit`: the most that are kept; k with exact=on, else min(elements, 2k + 64).
constexpr std::size_t topk_encode_room(std::size_t elements, std::size_t limit) noexcept {
  return sums_room(elements, 64, true).take_warps().take(limit + 1, 4).bytes();
}

constexpr std::size_t lossless_encode_room(std::size_t elements) noexcept {
  const std::size_t coded = elements == 0 ? 0 : elements - 1;
  SharedRoom room;
  room.take((elements + 1 + 15) / 16 * 16, 1).take(coded / 4 + 2, 4);
  room.take(256, 4).take(256, 4).take_warps().take(1, 4);
  // The code: weights, symbols, depths, parents, two lists, leaves of eleven levels, lengths, codes.
  room.take(256, 4).take(256, 1).take(512, 1).take(512, 2).take(512, 4).take(512, 4);
  return room.take(std::size_t{11} * 512, 1).take(256, 1).take(256, 2).bytes();
}

}  // namespace tern::codec::device
