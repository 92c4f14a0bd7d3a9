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
                                                     "ef(3lc:s=1,scale=128,layout=paper,pad=0)",
                                                     "none(fp16)",
                                                     "ef(fp8:format=e4m3)",
                                                     "ef(fp8:format=e5m2,block=64)",
                                                     "ef(mxfp8:format=e4m3)",
                                                     "none(mxfp8:format=e5m2)",
                                                     "ef(mxfp4)",
                                                     "ef(int:bits=8)",
                                                     "ef(int:bits=4,round=stochastic)",
                                                     "none(int:bits=3,round=stochastic)",
                                                     "none(qsgd:levels=4)",
                                                     "ef(qsgd:levels=1,norm=2)",
                                                     "ef(terngrad)",
                                                     "none(natural)",
                                                     "ef(onebit)",
                                                     "ef(bitmask:keep=3)",
                                                     "none(bitmask:keep=7,round=off)",
                                                     "ef(lloyd:bits=4)",
                                                     "ef(lloyd:bits=3+huffman)",
                                                     "ef(topk:p=0.01)",
                                                     "ef(topk:k=50,exact=on+int:bits=8)",
                                                     "none(randk:p=0.1)",
                                                     "ef(blocksparse:p=0.25,block=64+qsgd)",
                                                     "ef(3lc:s=1,scale=4096+huffman)",
                                                     "ef(int:bits=4+zrun)",
                                                     "ef(int:bits=8+gzip)",
                                                     "ef(int:bits=8+zstd)",
                                                     "ef(int:bits=4+lz4)",
                                                     "none(raw+zstd)"};

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
