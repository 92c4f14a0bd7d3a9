// A split block: the lower bytes of all elements (one each, or three of f32), which nothing can
// shorten, then the highest bytes, Huffman-coded.
#include <algorithm>

#include "codec/lossless/lossless.h"
#include "codec/lossless/lossless_kernels.h"
#include "codec/target/highway_table.h"

namespace tern::codec::lossless {
namespace {

constexpr entropy::Params kCoder{entropy::Kind::huffman, {}};

const std::uint8_t* raw(std::span<const std::byte> bytes) noexcept {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

std::uint8_t* raw(std::span<std::byte> bytes) noexcept {
  return reinterpret_cast<std::uint8_t*>(bytes.data());
}

struct Shape {
  std::size_t count;
  std::size_t low_bytes;
};

// False: the array is not one of whole elements.
bool shape_of(DType dtype, std::size_t bytes, Shape& shape) noexcept {
  const std::size_t width = dtype == DType::f32 ? 4 : 2;
  shape = {bytes / width, bytes - bytes / width};
  return supports(dtype) && bytes != 0 && bytes % width == 0;
}

}  // namespace

// Differences as long as the array, and the highest byte of each element.
std::size_t work_bytes(DType dtype, std::size_t bytes) noexcept {
  return bytes + bytes / (dtype == DType::f32 ? 4 : 2);
}

std::size_t split_encode(DType dtype, std::span<const std::byte> in, std::span<std::byte> out,
                         const Work& work) noexcept {
  Shape shape{};
  if (!shape_of(dtype, in.size(), shape)) return 0;
  if (work.bytes.size() < shape.count || out.size() <= shape.low_bytes) return 0;
  const LosslessKernels& kernels = target::choose(lossless_highway, kScalarLossless);
  (dtype == DType::f32 ? kernels.split32 : kernels.split16)(raw(in), shape.count, raw(out),
                                                            raw(work.bytes));
  const std::size_t coded = entropy::encode(kCoder, work.bytes.first(shape.count),
                                            out.subspan(shape.low_bytes), work.entropy);
  return coded == 0 ? 0 : shape.low_bytes + coded;
}

bool split_decode(DType dtype, std::span<const std::byte> in, std::span<std::byte> out,
                  const Work& work) noexcept {
  Shape shape{};
  if (!shape_of(dtype, out.size(), shape)) return false;
  if (work.bytes.size() < shape.count || in.size() <= shape.low_bytes) return false;
  const std::span<std::byte> high = work.bytes.first(shape.count);
  if (entropy::decode(kCoder.kind, in.subspan(shape.low_bytes), high, work.entropy) !=
      entropy::Status::ok) {
    return false;
  }
  const LosslessKernels& kernels = target::choose(lossless_highway, kScalarLossless);
  (dtype == DType::f32 ? kernels.join32 : kernels.join16)(raw(in), raw(high), shape.count,
                                                          raw(out));
  return true;
}

}  // namespace tern::codec::lossless
