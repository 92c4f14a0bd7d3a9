#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "codec/recipe.h"

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

// Any recipe that the grammar can say.
inline codec::Recipe take_recipe(Bytes& bytes) {
  const auto choice = bytes.take<std::uint8_t>();
  codec::Recipe recipe;
  recipe.compressor = choice % 8 == 0 ? codec::Compressor::bf16 : codec::Compressor::threelc;
  recipe.memory = (choice & 8) != 0 ? codec::Memory::ef : codec::Memory::none;
  recipe.layout = (choice & 16) != 0 ? codec::Layout::paper : codec::Layout::tile;
  recipe.zero_run = (choice & 32) == 0;
  recipe.pad_digit = (choice & 64) != 0 ? 0 : 1;
  recipe.scale_elements = 64u * (bytes.take<std::uint8_t>() % 80u);
  recipe.s = 1.0f + static_cast<float>(bytes.take<std::uint8_t>()) / 256.0f;
  return recipe;
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
