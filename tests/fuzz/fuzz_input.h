#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "codec/recipe.h"
#include "codec/workspace.h"

namespace tern::fuzz {

// Takes values off the front of the fuzzer's bytes; zeros when they are used up.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  template <typename T>
  T take() {
    T value{};
    const std::size_t length = std::min(sizeof(T), rest_.size());
    if (length != 0) std::memcpy(&value, rest_.data(), length);
    rest_ = rest_.subspan(length);
    return value;
  }
  std::span<const std::uint8_t> rest() const { return rest_; }

 private:
  std::span<const std::uint8_t> rest_;
};

inline codec::Workspace& workspace() {
  static codec::Workspace memory;
  return memory;
}

// Any recipe that the grammar can say.
inline codec::Recipe take_recipe(Bytes& bytes) {
  static constexpr const char* kStaged[] = {"none(fp16)",
                                            "ef(fp8)",
                                            "ef(fp8:format=e5m2,block=64)",
                                            "ef(mxfp8)",
                                            "ef(mxfp4)",
                                            "ef(int:bits=8)",
                                            "ef(int:bits=4,round=stochastic)",
                                            "none(int:bits=3)",
                                            "none(qsgd)",
                                            "ef(qsgd:levels=1,norm=2)",
                                            "ef(terngrad)",
                                            "none(terngrad:clip=2.5)",
                                            "none(natural)",
                                            "ef(onebit)",
                                            "ef(bitmask:keep=3)",
                                            "none(bitmask:keep=7,round=off)",
                                            "ef(lloyd:bits=4)",
                                            "ef(lloyd:bits=1+huffman)",
                                            "ef(topk:p=0.01)",
                                            "ef(topk:k=5,exact=on+int:bits=8)",
                                            "none(randk:p=0.1)",
                                            "ef(blocksparse:p=0.25,block=64+qsgd)",
                                            "ef(3lc:s=1.5,scale=64+huffman)",
                                            "ef(int:bits=4+zrun)",
                                            "ef(int:bits=8+gzip)",
                                            "ef(int:bits=8+zstd)",
                                            "ef(int:bits=4+lz4)",
                                            "diana(randk:p=0.25+qsgd:levels=4+zrun)",
                                            "ef21(topk:p=0.1)",
                                            "diana(natural+huffman)"};
  const auto choice = bytes.take<std::uint8_t>();
  codec::Recipe recipe;
  if (choice >= 128) {
    const bool known = codec::parse_recipe_quick(kStaged[choice % std::size(kStaged)], recipe);
    return known ? recipe : codec::Recipe{};
  }
  recipe.compressor = choice % 8 == 0 ? codec::Compressor::bf16 : codec::Compressor::threelc;
  recipe.memory = (choice & 8) != 0 ? codec::Memory::ef : codec::Memory::none;
  recipe.layout = (choice & 16) != 0 ? codec::Layout::paper : codec::Layout::tile;
  recipe.zero_run = (choice & 32) == 0;
  recipe.pad_digit = (choice & 64) != 0 ? 0 : 1;
  recipe.scale_elements = 64u * (bytes.take<std::uint8_t>() % 80u);
  recipe.s = 1.0f + static_cast<float>(bytes.take<std::uint8_t>()) / 256.0f;
  return recipe;
}

struct LosslessCase {
  codec::Recipe recipe;
  DType dtype = DType::f32;
};

// Choices of take_recipe that others stand for as well are lossless recipes here.
inline constexpr std::uint8_t kFirstLossless = 254;

inline LosslessCase take_lossless(Bytes& bytes) {
  static constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};
  LosslessCase chosen;
  chosen.recipe.compressor = bytes.take<std::uint8_t>() == kFirstLossless
                                 ? codec::Compressor::lossless
                                 : codec::Compressor::xordelta;
  chosen.dtype = kTypes[bytes.take<std::uint8_t>() % std::size(kTypes)];
  return chosen;
}

// The rest as floats: four bytes each, or, to get long chunks out of short inputs, one byte each.
inline std::vector<float> take_floats(Bytes& bytes) {
  const bool packed = (bytes.take<std::uint8_t>() & 1) != 0;
  std::vector<float> values;
  if (packed) {
    for (const std::uint8_t byte : bytes.rest()) {
      values.push_back(byte < 200 ? 0.0f : static_cast<float>(byte) - 228.0f);
    }
    return values;
  }
  values.resize(bytes.rest().size() / sizeof(float));
  if (!values.empty()) {
    std::memcpy(values.data(), bytes.rest().data(), values.size() * sizeof(float));
  }
  return values;
}

}  // namespace tern::fuzz
