#pragma once

#include "codec/sparsifier/sparsifier.h"
#include "tests/codec/codec_harness.h"

namespace tern::codec::sparsifier {

struct Selected {
  Selection selection;
  std::vector<std::byte> section;
  std::vector<float> kept;
  std::vector<std::uint32_t> positions;  // as a reader finds them
};

struct How {
  std::uint64_t key = 1;
  bool unbiased = false;
  std::size_t shift = 0;  // elements before each buffer, so that it is not aligned
};

// Selects into buffers of exactly the bounds, between guards, and reads the section back.
inline Selected select_guarded(const Params& params, std::span<const float> values,
                               const How& how = {}) {
  const std::size_t shift = how.shift;
  Guarded<float> input(values.size(), shift);
  std::copy(values.begin(), values.end(), input.data());
  Guarded<std::byte> section(section_bound(params, values.size()), shift, std::byte{0xa5});
  Guarded<float> kept(kept_bound(params, values.size()), shift, 7.0f);
  Guarded<std::uint32_t> scratch(kept_bound(params, values.size()), shift, 77u);
  Selected result;
  result.selection = select(
      {params, input.span(), how.key, how.unbiased, section.data(), kept.data(), scratch.data()});
  EXPECT_TRUE(section.intact());
  EXPECT_TRUE(kept.intact());
  EXPECT_TRUE(scratch.intact());
  EXPECT_LE(result.selection.kept, kept.span().size());
  EXPECT_LE(result.selection.section_bytes, section.span().size());
  result.section.assign(section.data(), section.data() + result.selection.section_bytes);
  result.kept.assign(kept.data(), kept.data() + result.selection.kept);
  Guarded<std::uint32_t> positions(values.size(), 0, 77u);
  Selection read;
  EXPECT_TRUE(read_section({params.kind, result.section, values.size()}, positions.data(), read));
  EXPECT_TRUE(positions.intact());
  EXPECT_EQ(read.kept, result.selection.kept);
  EXPECT_EQ(read.section_bytes, result.selection.section_bytes);
  result.positions.assign(positions.data(), positions.data() + read.kept);
  return result;
}

inline std::vector<float> scattered(const Selected& selected, std::size_t elements) {
  std::vector<float> out(elements);
  for (std::size_t i = 0; i < selected.positions.size(); ++i) {
    out.at(selected.positions[i]) = selected.kept[i];
  }
  return out;
}

inline void expect_ascending(const Selected& selected, std::size_t elements) {
  for (std::size_t i = 0; i < selected.positions.size(); ++i) {
    EXPECT_LT(selected.positions[i], elements);
    if (i != 0) {
      EXPECT_LT(selected.positions[i - 1], selected.positions[i]);
    }
  }
}

inline double energy(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return sum;
}

}  // namespace tern::codec::sparsifier
