#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "codec/codec.h"
#include "codec/target/target.h"
#include "tests/codec/gaussian.h"
#include "tests/rounds.h"

namespace tern::codec {

inline Workspace& workspace() {
  static thread_local Workspace memory;
  return memory;
}

// The targets that tests of this program have forced.
inline std::set<std::string, std::less<>>& covered_targets() {
  static std::set<std::string, std::less<>> names;
  return names;
}

// Restores the best target when a test ends, whatever happened in it.
class ForcedTarget {
 public:
  explicit ForcedTarget(std::string_view name) {
    const bool forced = target::force(name);
    EXPECT_TRUE(forced) << name;
    if (forced) covered_targets().emplace(name);
  }
  ~ForcedTarget() { target::force("auto"); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
};

// An array with `shift` elements before it and guard elements on both sides that must not change.
template <typename T>
class Guarded {
 public:
  explicit Guarded(std::size_t count, std::size_t shift = 0, T guard = T{})
      : count_(count),
        begin_(kGuard + shift),
        guard_(guard),
        storage_(begin_ + count + kGuard, guard) {}
  T* data() { return storage_.data() + begin_; }
  std::span<T> span() { return {data(), count_}; }
  bool intact() const {
    const std::span<const T> all(storage_);
    return are_guards(all.first(begin_)) && are_guards(all.subspan(begin_ + count_));
  }

 private:
  static constexpr std::size_t kGuard = 128;

  // By their bits: a guard may be a NaN, and zeros differ.
  bool are_guards(std::span<const T> elements) const {
    const auto guard = std::as_bytes(std::span(&guard_, 1));
    return std::ranges::all_of(elements, [guard](const T& element) {
      return std::ranges::equal(std::as_bytes(std::span(&element, 1)), guard);
    });
  }

  std::size_t count_;
  std::size_t begin_;
  T guard_;
  std::vector<T> storage_;
};

inline std::vector<float> gaussian(std::size_t count, std::uint64_t seed, float sigma = 1.0f) {
  std::mt19937_64 engine(seed);
  Gaussian normal(sigma);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

inline std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

struct EncodedBlock {
  wire::BlockHeader header;
  std::vector<std::byte> payload;
  EncodeResult result;

  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> out(payload.size());
    if (!out.empty()) std::memcpy(out.data(), payload.data(), out.size());
    return out;
  }
};

// What else a test asks of a block's encoding.
struct EncodeCase {
  EncodeCase(EncodeRequest with = {}, std::size_t by = 0) : request(with), shift(by) {}
  EncodeRequest request;
  std::size_t shift;  // elements before each buffer, so that it is not aligned
};

// Encodes into a buffer of exactly the bound, between guards. `residual` may be empty for memory
// none.
inline EncodedBlock encode_block(const Recipe& recipe, std::span<const float> input,
                                 std::vector<float>& residual, const EncodeCase& how = {}) {
  EncodeRequest request = how.request;
  const std::size_t shift = how.shift;
  EncodedBlock block;
  Guarded<float> shifted_input(input.size(), shift);
  Guarded<float> shifted_residual(residual.size(), shift);
  std::copy(input.begin(), input.end(), shifted_input.data());
  std::copy(residual.begin(), residual.end(), shifted_residual.data());
  request.input = shifted_input.span();
  request.state = residual.empty() ? nullptr : shifted_residual.data();
  const std::size_t room = request.exact ? sizeof(float) * input.size() : 0;
  Guarded<std::byte> out(std::max(room, encode_bound(recipe, input.size())), shift,
                         std::byte{0xa5});
  block.result = encode(recipe, request, {out.span(), block.header}, workspace());
  EXPECT_TRUE(out.intact());
  EXPECT_TRUE(shifted_residual.intact());
  EXPECT_LE(block.result.payload_bytes, out.span().size());
  block.payload.assign(out.data(), out.data() + block.result.payload_bytes);
  std::copy_n(shifted_residual.data(), residual.size(), residual.begin());
  return block;
}

inline std::vector<float> decode_block(const EncodedBlock& block, std::size_t shift = 0) {
  Guarded<float> out(block.header.elements, shift, 7.0f);
  EXPECT_EQ(decode_status_name(decode({block.header, block.payload}, out.span(), workspace())),
            "ok");
  EXPECT_TRUE(out.intact());
  return {out.data(), out.data() + block.header.elements};
}

inline Recipe recipe_of(std::string_view text) {
  const Result<Recipe> recipe = parse_recipe(text);
  EXPECT_TRUE(recipe.has_value()) << text;
  return recipe.value_or(Recipe{});
}

// All, or the widest and the narrowest vectors and none: the scalar one is the last.
inline std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const std::string_view name : target::supported()) names.emplace_back(name);
  if (tests::abridged() && names.size() > 3) names.erase(names.begin() + 1, names.end() - 2);
  return names;
}

}  // namespace tern::codec
