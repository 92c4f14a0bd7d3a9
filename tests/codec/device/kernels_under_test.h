#pragma once

#include "codec/device/element_decode.cuh"
#include "codec/device/element_encode.cuh"
#include "codec/device/lossless_encode.cuh"
#include "codec/device/threelc_decode.cuh"
#include "codec/device/threelc_encode.cuh"
#include "codec/device/topk_encode.cuh"
#include "tests/codec/device/decode_launch.h"

// The kernels as kernels.cu names them.
namespace tern::codec::device {

inline constexpr StagedKernel<ThreelcStage, EncodeChunk> kThreelcEncode{gpu::Kernel::threelc_encode,
                                                                        threelc_encode<true>};
inline constexpr StagedKernel<ThreelcStage, EncodeChunk> kThreelcEncodeTwice{
    gpu::Kernel::threelc_encode_twice, threelc_encode<false>};
inline constexpr StagedKernel<ElementStage, EncodeChunk> kInt8Encode{
    gpu::Kernel::int8_encode, element_encode<IntegerFormat<8>>};
inline constexpr StagedKernel<ElementStage, EncodeChunk> kInt4Encode{
    gpu::Kernel::int4_encode, element_encode<IntegerFormat<4>>};
inline constexpr StagedKernel<ElementStage, EncodeChunk> kFp8E4M3Encode{
    gpu::Kernel::fp8_e4m3_encode, element_encode<Fp8E4M3>};
inline constexpr StagedKernel<ElementStage, EncodeChunk> kFp8E5M2Encode{
    gpu::Kernel::fp8_e5m2_encode, element_encode<Fp8E5M2>};
inline constexpr StagedKernel<ElementStage, EncodeChunk> kBf16Encode{gpu::Kernel::bf16_encode,
                                                                     element_encode<Bf16Format>};
inline constexpr StagedKernel<TopkStage, EncodeChunk> kTopkEncode{gpu::Kernel::topk_encode,
                                                                  topk_encode};

inline constexpr DecodeKernel kThreelcDecode{{gpu::Kernel::threelc_decode, threelc_decode<false>},
                                             false};
inline constexpr DecodeKernel kThreelcAdd{{gpu::Kernel::threelc_add, threelc_decode<true>}, true};
inline constexpr DecodeKernel kInt8Decode{
    {gpu::Kernel::int8_decode, element_decode<IntegerFormat<8>, false>}, false};
inline constexpr DecodeKernel kInt8Add{
    {gpu::Kernel::int8_add, element_decode<IntegerFormat<8>, true>}, true};
inline constexpr DecodeKernel kInt4Decode{
    {gpu::Kernel::int4_decode, element_decode<IntegerFormat<4>, false>}, false};
inline constexpr DecodeKernel kInt4Add{
    {gpu::Kernel::int4_add, element_decode<IntegerFormat<4>, true>}, true};
inline constexpr DecodeKernel kFp8E4M3Decode{
    {gpu::Kernel::fp8_e4m3_decode, element_decode<Fp8E4M3, false>}, false};
inline constexpr DecodeKernel kFp8E4M3Add{
    {gpu::Kernel::fp8_e4m3_add, element_decode<Fp8E4M3, true>}, true};
inline constexpr DecodeKernel kFp8E5M2Decode{
    {gpu::Kernel::fp8_e5m2_decode, element_decode<Fp8E5M2, false>}, false};
inline constexpr DecodeKernel kFp8E5M2Add{
    {gpu::Kernel::fp8_e5m2_add, element_decode<Fp8E5M2, true>}, true};
inline constexpr DecodeKernel kBf16Decode{
    {gpu::Kernel::bf16_decode, element_decode<Bf16Format, false>}, false};
inline constexpr DecodeKernel kBf16Add{{gpu::Kernel::bf16_add, element_decode<Bf16Format, true>},
                                       true};

// The one kernel that has no stage.
inline LaunchReport launch_lossless_encode(const Array<LosslessChunk>& chunks,
                                           const LaunchOptions& options) {
  const LosslessChunk* array = chunks.data();
  void* parameters[] = {static_cast<void*>(&array)};
  return target().launch(
      {gpu::Kernel::lossless_encode, parameters, [array] { lossless_encode(array); }},
      static_cast<std::uint32_t>(chunks.size()), options);
}

}  // namespace tern::codec::device
