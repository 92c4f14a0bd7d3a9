#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "codec/recipe.h"
#include "gpu/kernels.h"

// What `tern-bench kernels` measures: every kernel of codec/device with the recipes of the table in
// docs/gpu.md.
namespace tern::bench {

enum class KernelTask : std::uint8_t { encode, encode_lossless, decode, add };

struct KernelCase {
  gpu::Kernel kernel;
  KernelTask task;
  const char* recipe;
  std::uint32_t blocks;  // that are decoded or added for each chunk, or 1 that is written
  // What the kernel was designed for, in percent of the copy bandwidth; 0: nothing was.
  int target_percent;

  std::string_view name() const noexcept;
  // Of elements of the task's own type: two bytes if it is lossless, else four.
  std::uint32_t chunk_elements(std::size_t chunk_kib) const noexcept;
  // The input is read twice, because the sums of a chunk do not fit on the chip.
  bool reads_twice() const noexcept { return kernel == gpu::Kernel::threelc_encode_twice; }
};

std::span<const KernelCase> kernel_cases() noexcept;

// Elements that share a scale in blocks of the recipe, as their headers say it; 0: all.
std::uint32_t scale_elements(const codec::Recipe& recipe) noexcept;

// The shared memory that a launch has to ask for.
std::size_t shared_bytes(const KernelCase& what, const codec::Recipe& recipe,
                         std::uint32_t chunk_elements) noexcept;

}  // namespace tern::bench
