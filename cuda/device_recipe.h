#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "client_lib/include/tern/block_layout.h"
#include "codec/device/chunk.h"
#include "codec/recipe.h"
#include "gpu/kernels.h"

// What kernels there are for a recipe, and for a block.
namespace tern::cuda {

struct KernelChoice {
  gpu::Kernel kernel;
  std::uint32_t shared_bytes;
};

class DeviceRecipe {
 public:
  // Raw.
  DeviceRecipe() = default;
  // `text` as a layout has it. Refused: what has no kernels.
  static Result<DeviceRecipe> of(std::string_view text);
  // Of the next operation. What the tuner chooses without a kernel goes raw.
  static Result<DeviceRecipe> next_of(const tern_block_layout& layout);

  const codec::Recipe& recipe() const noexcept { return recipe_; }
  bool encodes() const noexcept { return codec::is_lossy(recipe_); }
  bool has_residual() const noexcept { return encodes() && codec::needs_residual(recipe_); }
  // The first argument of its kernel.
  void* stage() noexcept;

  // For chunks of at most so many elements, on a device with so much shared memory for a block.
  // Refused: chunks that do not fit there. Requires: encodes().
  Result<KernelChoice> encoder(std::uint32_t elements, std::uint32_t shared_bytes) const;

 private:
  codec::Recipe recipe_;
  std::variant<codec::device::ElementStage, codec::device::ThreelcStage> stage_;
};

// What reads a block whose header is checked; none: the processor does.
std::optional<gpu::Kernel> decoder_of(const wire::BlockHeader& header) noexcept;
// The shared memory of one, for one block of a chunk of at most so many elements and scales.
std::uint32_t decoder_shared_bytes(gpu::Kernel kernel, std::uint32_t elements,
                                   std::uint32_t scale_count) noexcept;

}  // namespace tern::cuda
