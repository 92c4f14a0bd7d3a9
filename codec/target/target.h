#pragma once

#include <cstdint>
#include <span>
#include <string_view>

// Which instruction set the kernels of codec/ use. The best one that this processor has, unless
// somebody forces another, for a test or to compare.
namespace tern::codec::target {

// Best first; "scalar", the reference, is last.
std::span<const std::string_view> supported() noexcept;

// Those that this build leaves out on purpose, whatever the processor has (TERN_FEW_SIMD_TARGETS).
std::span<const std::string_view> left_out() noexcept;

std::string_view name() noexcept;

// "auto" is the best one. False, and no change, if this processor lacks it. Calls may race with
// kernels that run: each call of a codec uses one target from its begin to its end.
bool force(std::string_view name) noexcept;

struct Active {
  std::int64_t highway = 0;  // one bit of hwy::SupportedTargets(), 0 for scalar
  bool vbmi2 = false;        // the intrinsics of avx512_vbmi2 may be used as well
};
Active active() noexcept;

}  // namespace tern::codec::target
