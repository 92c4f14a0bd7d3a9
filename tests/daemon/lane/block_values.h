#pragma once

// Values and blocks of them, for tests of what makes and reads blocks.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "daemon/lane/operand.h"
#include "wire/block.h"

namespace tern::daemon::group_test {

inline codec::Recipe recipe_of(const std::string& text) {
  return codec::parse_recipe(text).value();
}

// A first value and a step, so that no two elements are alike.
inline std::vector<float> ramp(std::size_t count, float first, float step) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i) * step;
  return values;
}

// Memory that operands lie in.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes), region_{bytes_.data(), bytes} {}
  template <typename T>
  explicit Memory(const std::vector<T>& values) : Memory(values.size() * sizeof(T)) {
    std::memcpy(bytes_.data(), values.data(), bytes_.size());
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Operand operand() const { return {&region_, 0, region_.bytes}; }
  std::span<std::byte> bytes() { return bytes_; }
  template <typename T>
  std::vector<T> as() const {
    std::vector<T> values(bytes_.size() / sizeof(T));
    std::memcpy(values.data(), bytes_.data(), values.size() * sizeof(T));
    return values;
  }

 private:
  std::vector<std::byte> bytes_;
  Region region_;
};

// A block as it comes in a frame: a header, then the payload.
inline std::vector<std::byte> block_of(wire::BlockHeader header,
                                       std::span<const std::byte> payload) {
  std::vector<std::byte> block(wire::kBlockHeaderBytes + payload.size());
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  wire::write_block_header(header, std::span(block).first<wire::kBlockHeaderBytes>());
  std::copy(payload.begin(), payload.end(), block.begin() + wire::kBlockHeaderBytes);
  return block;
}
template <typename T>
std::vector<std::byte> raw_block(DType dtype, const std::vector<T>& values) {
  const auto elements = static_cast<std::uint32_t>(values.size());
  return block_of(codec::raw_block_header(dtype, elements, false, 1),
                  std::as_bytes(std::span(values)));
}
// What the recipe makes of the values as the first use of a tensor. `state` is as long as they are,
// or null where the recipe has no memory.
inline std::vector<std::byte> lossy_block(const std::string& recipe,
                                          const std::vector<float>& values,
                                          float* state = nullptr) {
  codec::Workspace workspace;
  codec::EncodeRequest request;
  request.input = values;
  request.state = state;
  request.stream_step = 1;
  wire::BlockHeader header;
  std::vector<std::byte> payload(codec::encode_bound(recipe_of(recipe), values.size()));
  payload.resize(
      codec::encode(recipe_of(recipe), request, {payload, header}, workspace).payload_bytes);
  return block_of(header, payload);
}
inline std::vector<float> decoded(std::span<const std::byte> block, std::size_t elements) {
  codec::Workspace workspace;
  wire::BlockHeader header;
  EXPECT_EQ(wire::parse_block_header(block, header), wire::BlockError::none);
  std::vector<float> values(elements);
  EXPECT_EQ(codec::decode({header, block.subspan(wire::kBlockHeaderBytes)}, values, workspace),
            codec::DecodeStatus::ok);
  return values;
}

}  // namespace tern::daemon::group_test
