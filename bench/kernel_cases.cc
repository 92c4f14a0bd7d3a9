#include "bench/kernel_cases.h"

#include "codec/device/shared_room.h"
#include "codec/sparsifier/sparsifier.h"
#include "wire/block.h"

namespace tern::bench {
namespace {

namespace device = codec::device;
using gpu::Kernel;

constexpr auto kEncode = KernelTask::encode;
constexpr auto kDecode = KernelTask::decode;
constexpr auto kAdd = KernelTask::add;

constexpr KernelCase kCases[] = {
    {Kernel::threelc_encode, kEncode, "ef(3lc:s=1,scale=4096)", 1, 70},
    {Kernel::threelc_encode_twice, kEncode, "ef(3lc:s=1,scale=4096)", 1, 60},
    {Kernel::threelc_decode, kDecode, "none(3lc:zrun=off)", 1, 80},
    {Kernel::threelc_decode, kDecode, "none(3lc)", 1, 80},
    {Kernel::threelc_add, kAdd, "none(3lc:zrun=off)", 1, 75},
    {Kernel::threelc_add, kAdd, "none(3lc:zrun=off)", 4, 75},
    {Kernel::threelc_add, kAdd, "none(3lc:zrun=off)", 8, 75},
    {Kernel::threelc_add, kAdd, "none(3lc)", 4, 75},
    {Kernel::int8_encode, kEncode, "ef(int:bits=8)", 1, 70},
    {Kernel::int8_decode, kDecode, "none(int:bits=8)", 1, 0},
    {Kernel::int8_add, kAdd, "none(int:bits=8)", 4, 75},
    {Kernel::int4_encode, kEncode, "ef(int:bits=4)", 1, 70},
    {Kernel::int4_decode, kDecode, "none(int:bits=4)", 1, 0},
    {Kernel::int4_add, kAdd, "none(int:bits=4)", 4, 75},
    {Kernel::fp8_e4m3_encode, kEncode, "none(fp8:format=e4m3)", 1, 80},
    {Kernel::fp8_e4m3_decode, kDecode, "none(fp8:format=e4m3)", 1, 80},
    {Kernel::fp8_e4m3_add, kAdd, "none(fp8:format=e4m3)", 4, 75},
    {Kernel::fp8_e5m2_encode, kEncode, "none(fp8:format=e5m2)", 1, 80},
    {Kernel::fp8_e5m2_decode, kDecode, "none(fp8:format=e5m2)", 1, 80},
    {Kernel::fp8_e5m2_add, kAdd, "none(fp8:format=e5m2)", 4, 75},
    {Kernel::bf16_encode, kEncode, "none(bf16)", 1, 90},
    {Kernel::bf16_decode, kDecode, "none(bf16)", 1, 90},
    {Kernel::bf16_add, kAdd, "none(bf16)", 4, 75},
    {Kernel::topk_encode, kEncode, "ef(topk:p=0.01)", 1, 60},
    {Kernel::lossless_encode, KernelTask::encode_lossless, "none(lossless)", 1, 25},
};

bool is_threelc(const codec::Recipe& recipe) noexcept {
  return recipe.compressor == codec::Compressor::threelc;
}

std::size_t encode_room(const KernelCase& what, const codec::Recipe& recipe,
                        std::uint32_t elements) noexcept {
  const std::uint32_t scales = wire::block_scale_count(elements, scale_elements(recipe));
  switch (what.kernel) {
    case Kernel::threelc_encode:
    case Kernel::threelc_encode_twice:
      return device::threelc_encode_room(elements, scales, !what.reads_twice());
    case Kernel::topk_encode:
      return device::topk_encode_room(elements,
                                      codec::sparsifier::kept_bound(recipe.sparsifier, elements));
    case Kernel::bf16_encode:
      return device::element_encode_room(elements, scales, device::kBf16GridBytes);
    case Kernel::fp8_e4m3_encode:
    case Kernel::fp8_e5m2_encode:
      return device::element_encode_room(elements, scales, device::kFp8GridBytes);
    default:
      return device::element_encode_room(elements, scales, device::kIntegerGridBytes);
  }
}

}  // namespace

std::string_view KernelCase::name() const noexcept {
  return gpu::kKernelNames[static_cast<std::size_t>(kernel)];
}

std::uint32_t KernelCase::chunk_elements(std::size_t chunk_kib) const noexcept {
  return static_cast<std::uint32_t>(chunk_kib << (task == KernelTask::encode_lossless ? 9 : 8));
}

std::span<const KernelCase> kernel_cases() noexcept { return kCases; }

std::uint32_t scale_elements(const codec::Recipe& recipe) noexcept {
  if (is_threelc(recipe)) return recipe.scale_elements;
  return recipe.compressor == codec::Compressor::staged ? recipe.quantizer.block : 0;
}

std::size_t shared_bytes(const KernelCase& what, const codec::Recipe& recipe,
                         std::uint32_t chunk_elements) noexcept {
  if (what.task == KernelTask::encode_lossless) return device::lossless_encode_room(chunk_elements);
  if (what.task == KernelTask::encode) return encode_room(what, recipe, chunk_elements);
  const device::DecodeRoom room{what.blocks,
                                wire::block_scale_count(chunk_elements, scale_elements(recipe))};
  return is_threelc(recipe) ? device::threelc_decode_room(chunk_elements, what.blocks, room)
                            : device::element_decode_room(what.blocks, room);
}

}  // namespace tern::bench
