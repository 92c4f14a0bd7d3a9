#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "codec/entropy/entropy.h"

// Compression of floats in their own type, bit for bit. Owns no memory, allocates nothing, keeps to
// its spans.
namespace tern::codec::lossless {

// True for f32, f16 and bf16.
constexpr bool supports(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

// Working memory of a call: bytes, and the entropy coder's.
struct Work {
  std::span<std::byte> bytes;
  entropy::Scratch& entropy;
};

// A stream of arrays of one type and length, at one of its ends.
struct Stream {
  DType dtype;
  std::span<std::byte> last;  // the array as it was when it was last sent
};

// Bytes that both directions of split and xor_delta need of `work.bytes`, for an array of that many
// bytes.
std::size_t work_bytes(DType dtype, std::size_t bytes) noexcept;

// Exponents apart from signs and mantissas, the exponents Huffman-coded. `in` may change meanwhile
// (then the block decodes to values nobody asked for). The coded bytes, or 0: they do not fit.
std::size_t split_encode(DType dtype, std::span<const std::byte> in, std::span<std::byte> out,
                         const Work& work) noexcept;
bool split_decode(DType dtype, std::span<const std::byte> in, std::span<std::byte> out,
                  const Work& work) noexcept;

// The difference (exclusive or) to `stream.last`: runs of unchanged elements and gaps are coded,
// changed elements follow. On success `last` becomes the new values, on both sides the same bytes;
// when it does not fit (0), or fails, `last` is as it was.
std::size_t xor_encode(const Stream& stream, std::span<const std::byte> in,
                       std::span<std::byte> out, const Work& work) noexcept;
bool xor_decode(const Stream& stream, std::span<const std::byte> in, std::span<std::byte> out,
                const Work& work) noexcept;

}  // namespace tern::codec::lossless
