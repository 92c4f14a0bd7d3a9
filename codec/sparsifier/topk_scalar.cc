// The scalar target: the plainest form of the topk kernels.
#include "codec/sparsifier/topk_kernels.h"

namespace tern::codec::sparsifier {
namespace {

std::size_t count_at_least(const float* values, std::size_t count,
                           std::uint32_t threshold) noexcept {
  std::size_t found = 0;
  for (std::size_t i = 0; i < count; ++i) found += key_of(values[i]) >= threshold ? 1 : 0;
  return found;
}

std::size_t gather(std::span<const float> values, std::uint32_t threshold,
                   std::span<std::uint32_t> positions) noexcept {
  std::size_t made = 0;
  for (std::size_t i = 0; i < values.size() && made < positions.size(); ++i) {
    if (key_of(values[i]) >= threshold) positions[made++] = static_cast<std::uint32_t>(i);
  }
  return made;
}

}  // namespace

const TopkKernels kTopkScalar = {count_at_least, gather};

}  // namespace tern::codec::sparsifier
