#pragma once

#include <span>
#include <string_view>

// Which instruction set the kernels of this process use. The best one that the processor has is
// taken unless a test, a benchmark or the configuration says otherwise; results are bit-identical.
namespace tern::codec {

// Best first; the last one is always "scalar".
std::span<const std::string_view> supported_targets() noexcept;

std::string_view kernel_target_name() noexcept;

// "auto" returns to the best one. False, and no change, for a name that is not supported here.
// Thread: any, but calls in flight finish with the kernels with which they began.
bool force_target(std::string_view name) noexcept;

}  // namespace tern::codec
