#include "conformance.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "tests/rounds.h"

namespace tern::codec {
namespace conformance_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::size_t kLengths[] = {0, 1, 4, 5, 6, 63, 64, 65, 319, 320, 321, 4096, 4097, 30001};

std::string name_of(const testing::TestParamInfo<std::tuple<const char*, std::string>>& param) {
  std::string name = std::string(std::get<0>(param.param)) + "_" + std::get<1>(param.param);
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, CodecConformance,
                         testing::Combine(testing::ValuesIn(kConformingRecipes),
                                          testing::ValuesIn(target_names())),
                         name_of);

TEST_P(CodecConformance, HeaderDescribesTheBlock) {
  for (const std::size_t count : kLengths) {
    const auto input = gaussian(count, count);
    auto residual = residual_for(count);
    const auto block = encode_block(recipe_, input, residual, request_for(input, residual));
    EXPECT_EQ(wire::check_block_header(block.header), wire::BlockError::none);
    EXPECT_EQ(block.header.elements, count);
    EXPECT_EQ(block.header.payload_bytes, block.payload.size());
    EXPECT_EQ(block.header.stream_step, 42u);
  }
}

TEST_P(CodecConformance, InputIsDecodedPlusResidual) {
  for (const std::size_t count : kLengths) {
    const auto input = gaussian(count, count);
    auto residual = residual_for(count);
    const auto before = residual;
    const auto block = encode_block(recipe_, input, residual, request_for(input, residual));
    const auto decoded = decode_block(block, count % 7);
    for (std::size_t i = 0; i < count; ++i) {
      if (residual.empty()) continue;
      ASSERT_NEAR(decoded[i] + residual[i], input[i] + before[i], 1e-5f);
    }
  }
}

TEST_P(CodecConformance, DecodeAddAddsWhatDecodeGives) {
  for (const std::size_t count : kLengths) {
    const auto input = gaussian(count, count);
    auto residual = residual_for(count);
    const auto block = encode_block(recipe_, input, residual, request_for(input, residual));
    const auto decoded = decode_block(block);
    auto sums = gaussian(count, 1);
    auto expected = sums;
    for (std::size_t i = 0; i < count; ++i) expected[i] += decoded[i];
    EXPECT_EQ(decode_add({block.header, block.payload}, sums, workspace()), DecodeStatus::ok);
    EXPECT_EQ(sums, expected);
  }
}

TEST_P(CodecConformance, DecodeAddFirstIsACopyAndDecodeAdd) {
  for (const std::size_t count : kLengths) {
    const auto input = gaussian(count, count);
    auto residual = residual_for(count);
    const auto block = encode_block(recipe_, input, residual, request_for(input, residual));
    const BlockView view{block.header, block.payload};
    auto own = gaussian(count, 1);
    for (std::size_t i = 0; i < count; i += 3) own[i] = -0.0f;
    auto expected = own;
    ASSERT_EQ(decode_add(view, expected, workspace()), DecodeStatus::ok);
    std::vector<std::byte> unaligned(1 + 4 * count);
    if (count != 0) std::memcpy(unaligned.data() + 1, own.data(), 4 * count);
    std::vector<float> sums(count, kNan);  // what was there before is no part of it
    EXPECT_EQ(decode_add_first(view, unaligned.data() + 1, sums, workspace()), DecodeStatus::ok);
    EXPECT_EQ(bits_of(sums), bits_of(expected)) << count;
  }
}

TEST_P(CodecConformance, AllTargetsGiveTheSameBits) {
  const auto input = gaussian(30001, 8);
  auto residual = residual_for(input.size());
  auto reference_residual = residual;
  const auto request = request_for(input, residual);
  const auto block = encode_block(recipe_, input, residual, {request, 3});
  target::force("scalar");
  const auto reference = encode_block(recipe_, input, reference_residual, request);
  EXPECT_EQ(block.payload, reference.payload);
  EXPECT_EQ(block.header, reference.header);
  EXPECT_EQ(bits_of(residual), bits_of(reference_residual));
}

TEST_P(CodecConformance, NonfiniteInputChangesNothing) {
  for (const float poison : {kNan, kInfinity, -kInfinity}) {
    for (const std::size_t at : {0u, 63u, 4095u, 5000u, 9999u}) {
      auto input = gaussian(10000, 4);
      input[at] = poison;
      auto residual = residual_for(input.size());
      const auto before = bits_of(residual);
      EncodeRequest request;
      request.fixed_scale_max = 5.0f;
      const auto block = encode_block(recipe_, input, residual, request);
      EXPECT_EQ(bits_of(residual), before);
      if (!is_lossy(recipe_)) {
        EXPECT_FALSE(block.result.nonfinite);
        EXPECT_EQ(bits_of(decode_block(block)), bits_of(input));
        continue;
      }
      EXPECT_TRUE(block.result.nonfinite);
      EXPECT_EQ(block.result.payload_bytes, 0u);
      EXPECT_EQ(block.header, wire::BlockHeader{});
    }
  }
}

TEST_P(CodecConformance, SumThatOverflowsTravelsRaw) {
  if (!needs_residual(recipe_)) return;  // without memory nothing is added
  std::vector<float> input(1000, 1.0f);
  std::vector<float> residual(1000, 0.0f);
  input[500] = residual[500] = 3e38f;
  EncodeRequest request;
  request.fixed_scale_max = 5.0f;
  EXPECT_TRUE(encode_block(recipe_, input, residual, request).result.nonfinite);
  EXPECT_EQ(residual[500], 3e38f);
}

// A mixed-precision trainer meets an infinity, skips the step and halves its loss scale: what the
// residual holds is then worth twice as much as it should be.
TEST_P(CodecConformance, OneInfiniteStepThenHalfTheLossScale) {
  if (!needs_residual(recipe_)) return;  // without memory there is no state to scale
  auto input = gaussian(5000, 1);
  auto residual = residual_for(input.size());
  EXPECT_FALSE(
      encode_block(recipe_, input, residual, request_for(input, residual)).result.nonfinite);
  const auto kept = residual;
  input[17] = kInfinity;
  EncodeRequest request;
  request.fixed_scale_max = 5.0f;
  EXPECT_TRUE(encode_block(recipe_, input, residual, request).result.nonfinite);
  EXPECT_EQ(bits_of(residual), bits_of(kept));
  const auto next = gaussian(5000, 2, 0.5f);
  request.state_scale = 0.5f;
  request.fixed_scale_max = scan_max(next, residual.data(), 0.5f).max;
  const auto decoded = decode_block(encode_block(recipe_, next, residual, request));
  for (std::size_t i = 0; i < next.size(); ++i) {
    ASSERT_NEAR(decoded[i] + residual[i], next[i] + 0.5f * kept[i], 1e-5f);
  }
}

// Whatever is finite gives a block of finite values, or is refused and changes nothing; and what a
// residual keeps is all that is missing.
TEST_P(CodecConformance, SpecialValuesGiveBlocksOfFiniteValues) {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  constexpr float kLarge = std::numeric_limits<float>::max();
  for (const float value : {0.0f, -0.0f, kTiny, -3 * kTiny, 0x1p-126f, 1.0f, -0.75f, kLarge}) {
    for (const bool mixed : {false, true}) {
      for (const std::size_t count : {1u, 4u, 5u, 6u, 63u, 64u, 65u, 4097u}) {
        std::vector<float> input(count, value);
        for (std::size_t i = 0; mixed && i < count; i += 3) input[i] = i % 2 == 0 ? -0.0f : -value;
        std::vector<float> residual(needs_residual(recipe_) ? count : 0, 0.0f);
        const auto block =
            encode_block(recipe_, input, residual, {request_for(input, residual), count % 5});
        for (const float kept : residual) ASSERT_TRUE(std::isfinite(kept)) << value;
        if (block.result.nonfinite) {
          EXPECT_GT(std::abs(value), 1.0f);  // a scale that overflows
          EXPECT_EQ(residual, std::vector<float>(residual.size(), 0.0f));
          continue;
        }
        const auto decoded = decode_block(block, count % 3);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_TRUE(std::isfinite(decoded[i])) << value << ' ' << count;
          ASSERT_TRUE(value != 0.0f || decoded[i] == 0.0f) << count;
          if (residual.empty()) continue;
          const double sum = static_cast<double>(decoded[i]) + static_cast<double>(residual[i]);
          ASSERT_NEAR(sum, static_cast<double>(input[i]),
                      0x1p-22 * std::abs(static_cast<double>(value)) + 0x1p-149)
              << value << ' ' << count;
        }
      }
    }
  }
}

TEST_P(CodecConformance, DamagedBlocksAreRefusedOrStayInside) {
  const auto input = gaussian(3000, 6);
  auto residual = residual_for(input.size());
  const auto block = encode_block(recipe_, input, residual, request_for(input, residual));
  Guarded<float> out(3000, 1, 9.0f);
  const auto status_of = [&](const wire::BlockHeader& header, std::span<const std::byte> payload) {
    // Exactly as long as it says, so that a sanitizer sees any byte read beyond it.
    const std::vector<std::byte> copy(payload.begin(), payload.end());
    const auto status = decode({header, copy}, out.span(), workspace());
    EXPECT_EQ(decode_add({header, copy}, out.span(), workspace()), status);
    EXPECT_TRUE(out.intact());
    return status;
  };
  EXPECT_EQ(decode({block.header, block.payload}, out.span().first(2999), workspace()),
            DecodeStatus::wrong_elements);
  for (std::size_t cut = 1; cut <= block.payload.size(); cut += 1 + cut / 4) {
    auto header = block.header;
    const auto part = std::span(block.payload).first(block.payload.size() - cut);
    EXPECT_EQ(status_of(header, part), DecodeStatus::wrong_payload_bytes);
    header.payload_bytes = static_cast<std::uint32_t>(part.size());
    EXPECT_NE(status_of(header, part), DecodeStatus::ok) << "cut " << cut;
  }
  std::mt19937_64 engine(3);
  auto payload = block.payload;
  for (int round = 0; round < tests::rounds(3000); ++round) {
    payload[engine() % payload.size()] = static_cast<std::byte>(engine());
    status_of(block.header, payload);
  }
}

// The arena belongs to the client, who may write at any time. The race is the point of this test.
#ifndef TERN_SANITIZES_THREADS
TEST_P(CodecConformance, InputThatChangesMeanwhileGivesAValidBlock) {
  auto input = gaussian(60000, 6);
  auto residual = residual_for(input.size());
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    std::mt19937_64 engine(1);
    const float values[] = {0.0f, 1e30f, kNan, -kInfinity, 1e-40f, -1.0f};
    while (!stop.load(std::memory_order_relaxed)) {
      const std::size_t at = engine() % input.size();
      std::atomic_ref<float>(input[at]).store(values[engine() % 6], std::memory_order_relaxed);
      std::atomic_ref<float>(input[engine() % input.size()]).store(1.0f, std::memory_order_relaxed);
    }
  });
  std::vector<std::byte> out(encode_bound(recipe_, input.size()));
  for (int round = 0; round < tests::rounds(200); ++round) {
    for (std::size_t i = 0; i < input.size(); i += 7) {
      std::atomic_ref<float>(input[i]).store(0.5f, std::memory_order_relaxed);
    }
    EncodeRequest request;
    request.input = input;
    request.state = residual.empty() ? nullptr : residual.data();
    request.fixed_scale_max = 3.0f;
    wire::BlockHeader header;
    const auto result = encode(recipe_, request, {out, header}, workspace());
    if (result.nonfinite) continue;
    std::vector<float> decoded(input.size());
    EXPECT_EQ(decode({header, std::span(out).first(result.payload_bytes)}, decoded, workspace()),
              DecodeStatus::ok);
    if (is_lossy(recipe_) && needs_residual(recipe_)) {
      EXPECT_TRUE(std::all_of(residual.begin(), residual.end(),
                              [](float value) { return std::isfinite(value); }));
    }
  }
  stop = true;
  writer.join();
}
#endif

}  // namespace conformance_test
}  // namespace tern::codec
