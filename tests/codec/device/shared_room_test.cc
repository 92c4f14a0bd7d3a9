#include "codec/device/shared_room.h"

#include "codec/device/element_decode.cuh"
#include "codec/device/element_encode.cuh"
#include "codec/device/lossless_encode.cuh"
#include "codec/device/threelc_decode.cuh"
#include "codec/device/threelc_encode.cuh"
#include "codec/device/topk_encode.cuh"
#include "tests/codec/device/kernels_under_test.h"

namespace tern::codec::device {
namespace shared_room_test {

static_assert(kBlockThreads == gpu::Kernels::kThreads);
static_assert(kIntegerGridBytes == sizeof(IntegerFormat<8>::Grid));
static_assert(kFp8GridBytes == sizeof(Fp8E4M3::Grid));
static_assert(kBf16GridBytes == sizeof(Bf16Format::Grid));
constexpr std::size_t kSm80Bytes = std::size_t{163} * 1024;
// The chunks that docs/gpu.md speaks of fit sm_80, whose blocks of threads have 163 KiB.
static_assert(threelc_encode_room(32768, 8, true) <= kSm80Bytes);
static_assert(threelc_encode_room(32768, 512, true) <= kSm80Bytes);
static_assert(threelc_encode_room(65536, 16, false) <= kSm80Bytes);
static_assert(element_encode_room(32768, 512, kIntegerGridBytes) <= kSm80Bytes);
static_assert(lossless_encode_room(65536) <= kSm80Bytes);

constexpr std::size_t kCounts[] = {1, 320, 4097, 10007};

std::size_t taken(const EncodeLaunch& launch, std::span<const float> input, std::size_t bound) {
  EncodeRequest request;
  request.input = input;
  const auto made = encode_on_device(launch, request, bound, options_of(1));
  EXPECT_EQ(made.report.finding, "");
  return made.report.shared_bytes;
}

TEST(SharedRoom, IsWhatTheEncodersTake) {
  for (const std::size_t count : kCounts) {
    SCOPED_TRACE(count);
    const auto input = gaussian(count, count);
    const std::size_t scales = (count + 63) / 64;
    const auto threelc = [](bool on_chip) {
      return launch_of(on_chip ? kThreelcEncode : kThreelcEncodeTwice, {64, 1.0f, true});
    };
    EXPECT_EQ(taken(threelc(true), input, 8 * count), threelc_encode_room(count, scales, true));
    EXPECT_EQ(taken(threelc(false), input, 8 * count), threelc_encode_room(count, scales, false));
    const auto element = [](const StagedKernel<ElementStage, EncodeChunk>& kernel) {
      return launch_of(kernel, ElementStage{64});
    };
    EXPECT_EQ(taken(element(kInt4Encode), input, 8 * count),
              element_encode_room(count, scales, kIntegerGridBytes));
    EXPECT_EQ(taken(element(kFp8E5M2Encode), input, 8 * count),
              element_encode_room(count, scales, kFp8GridBytes));
    EXPECT_EQ(taken(element(kBf16Encode), input, 8 * count),
              element_encode_room(count, scales, kBf16GridBytes));
    const std::uint32_t wanted = 1;
    const Array<std::uint32_t> k(std::span<const std::uint32_t>(&wanted, 1));
    EXPECT_EQ(taken(launch_of(kTopkEncode, TopkStage{k.data(), false}), input, 8 * count + 64),
              topk_encode_room(count, std::min<std::size_t>(count, 66)));
  }
}

TEST(SharedRoom, IsWhatTheDecodersTake) {
  for (const std::size_t count : kCounts) {
    SCOPED_TRACE(count);
    const auto input = gaussian(count, count);
    std::vector<float> none;
    const auto digits = encode_block(recipe_of("none(3lc:scale=64)"), input, none);
    const auto codes = encode_block(recipe_of("none(int:bits=8,block=64)"), input, none);
    const DecodeRoom room{2, wire::block_scale_count(digits.header.elements, 64)};
    DecodeLaunch threelc({digits, digits, digits});
    threelc.at_once = room.at_once;
    EXPECT_EQ(threelc.run(kThreelcAdd, input, options_of(1)).report.shared_bytes,
              threelc_decode_room(count, 3, room));
    DecodeLaunch element({codes, codes, codes});
    element.at_once = room.at_once;
    EXPECT_EQ(element.run(kInt8Add, input, options_of(1)).report.shared_bytes,
              element_decode_room(3, room));
  }
}

TEST(SharedRoom, IsWhatTheLosslessEncoderTakes) {
  for (const std::size_t count : kCounts) {
    const std::vector<std::uint16_t> values(count, 0x3f80);
    const Array<std::uint16_t> input{std::span<const std::uint16_t>(values)};
    const Array<std::byte> out(wire::kBlockHeaderBytes + 2 * count);
    const Array<std::uint32_t> bytes(1);
    const LosslessChunk chunk{
        input.data(), out.data(), bytes.data(), 0, static_cast<std::uint32_t>(count), DType::bf16};
    const Array<LosslessChunk> chunks(std::span<const LosslessChunk>(&chunk, 1));
    const auto report = launch_lossless_encode(chunks, options_of(1));
    EXPECT_EQ(report.finding, "");
    EXPECT_EQ(report.shared_bytes, lossless_encode_room(count));
  }
}

}  // namespace shared_room_test
}  // namespace tern::codec::device
