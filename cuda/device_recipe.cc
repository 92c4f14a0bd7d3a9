#include "cuda/device_recipe.h"

#include <string>

#include "codec/device/shared_room.h"

namespace tern::cuda {
namespace {

using codec::quantizer::Kind;
using gpu::Kernel;
namespace device = codec::device;

bool is_quantizer_alone(const codec::Recipe& recipe) noexcept {
  return recipe.compressor == codec::Compressor::staged &&
         recipe.sparsifier.kind == codec::sparsifier::Kind::none &&
         recipe.entropy.kind == codec::entropy::Kind::none;
}

bool has_threelc_kernels(const codec::Recipe& recipe) noexcept {
  return recipe.compressor == codec::Compressor::threelc && recipe.layout == codec::Layout::tile &&
         recipe.pad_digit == 1 && recipe.scale_elements != 0;
}

// A kernel whose chunk is gone through element by element, and the bytes of what a scale becomes.
struct ElementKernel {
  Kernel kernel;
  std::size_t grid_bytes;
};

std::optional<ElementKernel> element_encoder(const codec::Recipe& recipe) noexcept {
  if (recipe.compressor == codec::Compressor::bf16) {
    return ElementKernel{Kernel::bf16_encode, device::kBf16GridBytes};
  }
  if (!is_quantizer_alone(recipe)) return std::nullopt;
  const codec::quantizer::Params& quantizer = recipe.quantizer;
  switch (quantizer.kind) {
    case Kind::integer:
      if (quantizer.stochastic) return std::nullopt;
      if (quantizer.bits == 8) return ElementKernel{Kernel::int8_encode, device::kIntegerGridBytes};
      if (quantizer.bits == 4) return ElementKernel{Kernel::int4_encode, device::kIntegerGridBytes};
      return std::nullopt;
    case Kind::fp8_e4m3:
      return ElementKernel{Kernel::fp8_e4m3_encode, device::kFp8GridBytes};
    case Kind::fp8_e5m2:
      return ElementKernel{Kernel::fp8_e5m2_encode, device::kFp8GridBytes};
    default:
      return std::nullopt;
  }
}

}  // namespace

Result<DeviceRecipe> DeviceRecipe::of(std::string_view text) {
  auto recipe = codec::parse_recipe(text);
  if (!recipe) return tl::unexpected(recipe.error());
  DeviceRecipe made;
  made.recipe_ = *recipe;
  if (recipe->compressor == codec::Compressor::raw) return made;
  if (has_threelc_kernels(*recipe)) {
    made.stage_ = device::ThreelcStage{recipe->scale_elements, recipe->s, recipe->zero_run};
    return made;
  }
  if (element_encoder(*recipe)) {
    const bool has_scales = recipe->compressor == codec::Compressor::staged;
    made.stage_ = device::ElementStage{has_scales ? recipe->quantizer.block : 0};
    return made;
  }
  return fail(Errc::unsupported,
              "there are no kernels for the recipe \"" + std::string(text) +
                  "\": choose 3lc, int:bits=8, int:bits=4, fp8 or bf16, or declare the tensor "
                  "without client_blocks and copy elements through pinned memory of tern_alloc");
}

Result<DeviceRecipe> DeviceRecipe::next_of(const tern_block_layout& layout) {
  auto recipe = of(layout.recipe);
  if (recipe || layout.is_tuned == 0) return recipe;
  return DeviceRecipe();
}

void* DeviceRecipe::stage() noexcept {
  return std::visit([](auto& stage) -> void* { return &stage; }, stage_);
}

Result<KernelChoice> DeviceRecipe::encoder(std::uint32_t elements,
                                           std::uint32_t shared_bytes) const {
  const auto too_large = [&](std::size_t bytes) {
    return fail(Errc::unsupported,
                "chunks of " + std::to_string(elements) + " elements take " +
                    std::to_string(bytes) + " bytes of shared memory and the GPU has " +
                    std::to_string(shared_bytes) +
                    ": give ternd a smaller chunk_bytes, 64KiB for example, on all nodes");
  };
  if (const auto* stage = std::get_if<device::ThreelcStage>(&stage_)) {
    const std::uint32_t scales = wire::block_scale_count(elements, stage->scale_elements);
    const std::size_t once = device::threelc_encode_room(elements, scales, true);
    if (once <= shared_bytes) {
      return KernelChoice{Kernel::threelc_encode, static_cast<std::uint32_t>(once)};
    }
    const std::size_t twice = device::threelc_encode_room(elements, scales, false);
    if (twice > shared_bytes) return too_large(twice);
    return KernelChoice{Kernel::threelc_encode_twice, static_cast<std::uint32_t>(twice)};
  }
  const ElementKernel chosen = *element_encoder(recipe_);
  const std::uint32_t scales =
      wire::block_scale_count(elements, std::get<device::ElementStage>(stage_).block);
  const std::size_t bytes = device::element_encode_room(elements, scales, chosen.grid_bytes);
  if (bytes > shared_bytes) return too_large(bytes);
  return KernelChoice{chosen.kernel, static_cast<std::uint32_t>(bytes)};
}

std::optional<Kernel> decoder_of(const wire::BlockHeader& header) noexcept {
  switch (static_cast<wire::CodecId>(header.codec)) {
    case wire::CodecId::threelc:
      if ((header.flags & (wire::kBlockPaperLayout | wire::kBlockPadZero)) != 0) return {};
      return Kernel::threelc_decode;
    case wire::CodecId::bf16:
      return Kernel::bf16_decode;
    case wire::CodecId::staged:
      break;
    default:
      return {};
  }
  const wire::BlockStages& stages = header.stages;
  if (stages.sparsifier != 0 || stages.entropy != 0 || header.flags != 0) return {};
  switch (static_cast<wire::QuantizerId>(stages.quantizer)) {
    case wire::QuantizerId::integer:
      if (stages.bits == 8) return Kernel::int8_decode;
      if (stages.bits == 4) return Kernel::int4_decode;
      return {};
    case wire::QuantizerId::fp8_e4m3:
      return Kernel::fp8_e4m3_decode;
    case wire::QuantizerId::fp8_e5m2:
      return Kernel::fp8_e5m2_decode;
    default:
      return {};
  }
}

std::uint32_t decoder_shared_bytes(Kernel kernel, std::uint32_t elements,
                                   std::uint32_t scale_count) noexcept {
  const device::DecodeRoom room{1, scale_count};
  const std::size_t bytes = kernel == Kernel::threelc_decode
                                ? device::threelc_decode_room(elements, 1, room)
                                : device::element_decode_room(1, room);
  return static_cast<std::uint32_t>(bytes);
}

}  // namespace tern::cuda
