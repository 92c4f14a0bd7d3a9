#pragma once

// What every codec promises, on every target. A new compressor is one more line in
// kConformingRecipes.

#include <limits>
#include <tuple>

#include "codec_harness.h"

namespace tern::codec {

inline constexpr const char* kConformingRecipes[] = {"none(raw)",
                                                     "none(bf16)",
                                                     "ef(bf16)",
                                                     "none(3lc)",
                                                     "ef(3lc:s=1,scale=4096)",
                                                     "ef(3lc:s=1.75,scale=64,zrun=off)",
                                                     "ef(3lc:s=1,scale=tensor)",
                                                     "ef(3lc:s=1,scale=128,layout=paper,pad=0)"};

class CodecConformance : public testing::TestWithParam<std::tuple<const char*, std::string>> {
 protected:
  EncodeRequest request_for(std::span<const float> input,
                            const std::vector<float>& residual) const {
    EncodeRequest request;
    request.fixed_scale_max =
        scan_max(input, residual.empty() ? nullptr : residual.data(), 1.0f).max;
    request.stream_step = 42;
    return request;
  }
  std::vector<float> residual_for(std::size_t count) const {
    return needs_residual(recipe_) ? gaussian(count, 99, 0.1f) : std::vector<float>{};
  }

  Recipe recipe_ = recipe_of(std::get<0>(GetParam()));
  ForcedTarget target_{std::get<1>(GetParam())};
};

}  // namespace tern::codec
