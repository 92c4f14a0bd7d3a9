// The entry points of the kernels, compiled for GPUs. What a launch needs is beside each template.
#include "codec/device/element_decode.cuh"
#include "codec/device/element_encode.cuh"
#include "codec/device/lossless_encode.cuh"
#include "codec/device/shared_room.h"
#include "codec/device/threelc_decode.cuh"
#include "codec/device/threelc_encode.cuh"
#include "codec/device/topk_encode.cuh"

namespace {

constexpr unsigned kThreads = tern::codec::device::simt::kLaunchedThreads;

}  // namespace

// Two blocks on each multiprocessor, if their shared memory allows it: one loads while the other
// computes.
#define TERN_KERNEL extern "C" __global__ void __launch_bounds__(kThreads, 2)

using namespace tern::codec::device;

static_assert(simt::kLaunchedThreads == kBlockThreads);

TERN_KERNEL tern_threelc_encode(ThreelcStage stage, const EncodeChunk* chunks) {
  threelc_encode<true>(stage, chunks);
}
TERN_KERNEL tern_threelc_encode_twice(ThreelcStage stage, const EncodeChunk* chunks) {
  threelc_encode<false>(stage, chunks);
}
TERN_KERNEL tern_threelc_decode(DecodeRoom room, const DecodeChunk* chunks) {
  threelc_decode<false>(room, chunks);
}
TERN_KERNEL tern_threelc_add(DecodeRoom room, const DecodeChunk* chunks) {
  threelc_decode<true>(room, chunks);
}
TERN_KERNEL tern_int8_encode(ElementStage stage, const EncodeChunk* chunks) {
  element_encode<IntegerFormat<8>>(stage, chunks);
}
TERN_KERNEL tern_int4_encode(ElementStage stage, const EncodeChunk* chunks) {
  element_encode<IntegerFormat<4>>(stage, chunks);
}
TERN_KERNEL tern_fp8_e4m3_encode(ElementStage stage, const EncodeChunk* chunks) {
  element_encode<Fp8E4M3>(stage, chunks);
}
TERN_KERNEL tern_fp8_e5m2_encode(ElementStage stage, const EncodeChunk* chunks) {
  element_encode<Fp8E5M2>(stage, chunks);
}
TERN_KERNEL tern_bf16_encode(ElementStage stage, const EncodeChunk* chunks) {
  element_encode<Bf16Format>(stage, chunks);
}
TERN_KERNEL tern_topk_encode(TopkStage stage, const EncodeChunk* chunks) {
  topk_encode(stage, chunks);
}
TERN_KERNEL tern_lossless_encode(const LosslessChunk* chunks) { lossless_encode(chunks); }
TERN_KERNEL tern_int8_decode(DecodeRoom room, const DecodeChunk* chunks) {
  element_decode<IntegerFormat<8>, false>(room, chunks);
}
TERN_KERNEL tern_int8_add(DecodeRoom room, const DecodeChunk* chunks) {
  element_decode<IntegerFormat<8>, true>(room, chunks);
}
TERN_KERNEL tern_int4_decode(DecodeRoom room, const DecodeChunk* chunks) {
  element_decode<IntegerFormat<4>, false>(room, chunks);
}
TERN_KERNEL tern_int4_add(DecodeRoom room, const DecodeChunk* chunks) {
  element_decode<IntegerFormat<4>, true>(room, chunks);
}
TERN_KERNEL tern_fp8_e4m3_decode(DecodeRoom room, const DecodeChunk* chunks) {
  element_decode<Fp8E4M3, false>(room, chunks);
}
TERN_KERNEL tern_fp8_e4m3_add(DecodeRoom room, const DecodeChunk* chunks) {
  element_decode<Fp8E4M3, true>(room, chunks);
}
TERN_KERNEL tern_fp8_e5m2_decode(DecodeRoom room, const DecodeChunk* chunks) {
  element_decode<Fp8E5M2, false>(room, chunks);
}
TERN_KERNEL tern_fp8_e5m2_add(DecodeRoom room, const DecodeChunk* chunks) {
  element_decode<Fp8E5M2, true>(room, chunks);
}
TERN_KERNEL tern_bf16_decode(DecodeRoom room, const DecodeChunk* chunks) {
  element_decode<Bf16Format, false>(room, chunks);
}
TERN_KERNEL tern_bf16_add(DecodeRoom room, const DecodeChunk* chunks) {
  element_decode<Bf16Format, true>(room, chunks);
}
