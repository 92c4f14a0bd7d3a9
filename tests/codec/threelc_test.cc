#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "codec_harness.h"
#include "tests/rounds.h"
#include "threelc_oracle.h"

namespace tern::codec {
namespace threelc_test {

class Threelc : public testing::TestWithParam<std::string> {
 protected:
  ForcedTarget target_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Targets, Threelc, testing::ValuesIn(target_names()),
                         [](const auto& param) { return param.param; });

// Encodes, compares bytes, residual and decoded values with the oracle's; returns the block.
EncodedBlock expect_like_oracle(const Recipe& recipe, const std::vector<float>& input,
                                std::vector<float>& residual, const EncodeCase& how = {}) {
  const EncodeRequest& request = how.request;
  const std::size_t shift = how.shift;
  const float tensor_max = recipe.scale_elements == 0 ? request.fixed_scale_max : -1.0f;
  const oracle::Step step =
      oracle::quantize(input, recipe.memory == Memory::ef ? residual : std::vector<float>{},
                       {recipe.s, recipe.scale_elements, request.state_scale, tensor_max});
  EncodedBlock block = encode_block(recipe, input, residual, how);
  EXPECT_FALSE(block.result.nonfinite);
  const auto expected =
      oracle::payload(step, recipe.layout == Layout::paper, recipe.zero_run, recipe.pad_digit);
  EXPECT_EQ(block.bytes(), expected);
  EXPECT_EQ(wire::check_block_header(block.header), wire::BlockError::none);
  if (recipe.memory == Memory::ef) {
    EXPECT_EQ(bits_of(residual), bits_of(step.residual));
  }
  EXPECT_EQ(bits_of(decode_block(block, shift)), bits_of(step.decoded));

  Guarded<float> sums(input.size(), shift, 3.0f);
  std::vector<float> expected_sums(input.size());
  for (std::size_t i = 0; i < input.size(); ++i) {
    sums.data()[i] = i % 3 == 0 ? -0.0f : static_cast<float>(i % 17);
    expected_sums[i] = step.quantized[i] == 0 ? sums.data()[i] : sums.data()[i] + step.decoded[i];
  }
  EXPECT_EQ(decode_add({block.header, block.payload}, sums.span(), workspace()), DecodeStatus::ok);
  EXPECT_TRUE(sums.intact());
  EXPECT_EQ(bits_of(sums.span()), bits_of(expected_sums));
  return block;
}

const char* const kRecipes[] = {
    "ef(3lc:s=1)",
    "ef(3lc:s=1.75,scale=64)",
    "none(3lc:s=1.5,scale=128)",
    "ef(3lc:s=1.9,scale=4096,zrun=off)",
    "ef(3lc:s=1,scale=192,pad=0)",
    "ef(3lc:s=1,scale=64,layout=paper)",
    "none(3lc:s=1.25,scale=1048576,layout=paper,pad=0)",
    "ef(3lc:s=1.75,scale=512,layout=paper,zrun=off)",
};

TEST_P(Threelc, EveryLengthMatchesTheOracle) {
  const auto values = gaussian(1600, 11);
  const auto kept = gaussian(1600, 12, 0.3f);
  for (const char* const text : kRecipes) {
    const Recipe recipe = recipe_of(text);
    // All short ones, where the tails of vectors and groups of five lie; of the others so many.
    const std::size_t step = 1500 / static_cast<std::size_t>(tests::rounds(1500));
    for (std::size_t count = 0; count <= 1500; count += count < 200 ? 1 : step) {
      const std::vector<float> input(values.begin(),
                                     values.begin() + static_cast<std::ptrdiff_t>(count));
      std::vector<float> residual(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(count));
      expect_like_oracle(recipe, input, residual, {{}, count % 17});
      ASSERT_FALSE(HasFailure()) << text << " n=" << count;
    }
  }
}

TEST_P(Threelc, LongChunksOfEveryDensityMatchTheOracle) {
  std::mt19937_64 engine(5);
  for (const char* const text : kRecipes) {
    const Recipe recipe = recipe_of(text);
    for (const double density : {0.0, 0.0005, 0.003, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0}) {
      const std::size_t count = 1500 + engine() % 100000;
      std::vector<float> input = gaussian(count, engine());
      std::bernoulli_distribution kept(density);
      for (float& value : input) value = kept(engine) ? std::copysign(1.0f, value) : value * 1e-3f;
      if (density > 0) input[count / 2] = 1.0f;
      std::vector<float> residual(count, 0.0f);
      expect_like_oracle(recipe, input, residual, {{}, engine() % 16});
      ASSERT_FALSE(HasFailure()) << text << " n=" << count << " density=" << density;
    }
  }
}

TEST_P(Threelc, ManyStepsOfErrorFeedbackMatchTheOracle) {
  for (const char* const text : {"3lc:s=1", "3lc:s=1.75,scale=16384", "3lc:s=1,layout=paper"}) {
    const Recipe recipe = recipe_of(text);
    std::vector<float> residual(20000, 0.0f);
    for (std::uint64_t step = 0; step < 12; ++step) {
      expect_like_oracle(recipe, gaussian(20000, 100 + step), residual);
      ASSERT_FALSE(HasFailure()) << text << " step " << step;
    }
  }
}

TEST_P(Threelc, SpecialValues) {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  const std::vector<std::vector<float>> inputs = {
      {},
      {0.75f},
      {-0.0f, 0.0f, -0.0f, 0.0f},
      {1, 1, 1, 1, 1},
      {-1, -1, -1, -1, -1, -1},
      {kTiny, -kTiny, 0, 3 * kTiny, -2 * kTiny},
      {1e-41f, -2e-41f, 3e-42f},
      {std::numeric_limits<float>::max(), -1.0f, 1e38f, -3e38f},
      std::vector<float>(1000, 0.5f),
      std::vector<float>(1000, 0.0f),
      std::vector<float>(1000, -0.0f),
  };
  for (const char* const text : {"ef(3lc)", "none(3lc)", "ef(3lc:layout=paper,pad=0)"}) {
    for (const auto& input : inputs) {
      std::vector<float> residual(input.size(), 0.0f);
      expect_like_oracle(recipe_of(text), input, residual);
    }
  }
}

TEST_P(Threelc, ThePublishedVectors) {
  std::ifstream file(TERN_CODEC_TEST_DATA "/vectors_3lc.json");
  ASSERT_TRUE(file.is_open());
  const auto cases = nlohmann::json::parse(file);
  const auto floats = [](const nlohmann::json& words) {
    std::vector<float> values;
    for (const auto& word : words) {
      values.push_back(std::bit_cast<float>(
          static_cast<std::uint32_t>(std::stoul(word.get<std::string>(), nullptr, 16))));
    }
    return values;
  };
  const auto hex = [](std::span<const std::uint8_t> bytes) {
    std::string text;
    for (const std::uint8_t byte : bytes) {
      text += "0123456789abcdef"[byte >> 4];
      text += "0123456789abcdef"[byte & 15];
    }
    return text;
  };
  for (const auto& vector : cases) {
    for (const int pad : {0, 1}) {
      for (const bool zero_run : {false, true}) {
        Recipe recipe = recipe_of("3lc:scale=1048576,layout=paper");
        recipe.s = vector["s"].get<float>();
        recipe.pad_digit = static_cast<std::uint8_t>(pad);
        recipe.zero_run = zero_run;
        const auto name =
            std::string(zero_run ? "zre" : "quartic") + "_part_pad" + std::to_string(pad);
        std::vector<float> residual;
        for (const auto& step : vector["steps"]) {
          SCOPED_TRACE(vector["name"].get<std::string>() + " " + name);
          const auto input = floats(step["g"]);
          if (residual.empty()) residual = floats(step["e_in"]);
          EXPECT_EQ(bits_of(residual), bits_of(floats(step["e_in"])));
          const EncodedBlock block = encode_block(recipe, input, residual);
          EXPECT_EQ(bits_of(residual), bits_of(floats(step["e_out"])));
          const auto scale = floats(nlohmann::json::array({step["M"]}))[0];
          if (scale == 0.0f) {
            EXPECT_TRUE(block.payload.empty());
            continue;
          }
          const auto bytes = block.bytes();
          ASSERT_GE(bytes.size(), 4u);
          float sent;
          std::memcpy(&sent, bytes.data(), 4);
          EXPECT_EQ(std::bit_cast<std::uint32_t>(sent), std::bit_cast<std::uint32_t>(scale));
          EXPECT_EQ(hex(std::span(bytes).subspan(4)), step[name].get<std::string>());
        }
      }
    }
  }
}

TEST_P(Threelc, OneTileIsThePaperLayout) {
  const auto input = gaussian(320, 3);
  std::vector<float> tile_residual(320, 0.0f);
  std::vector<float> paper_residual(320, 0.0f);
  const auto tile = encode_block(recipe_of("3lc:s=1"), input, tile_residual);
  const auto paper = encode_block(recipe_of("3lc:s=1,layout=paper"), input, paper_residual);
  EXPECT_EQ(tile.bytes(), paper.bytes());
  EXPECT_EQ(bits_of(tile_residual), bits_of(paper_residual));
}

TEST_P(Threelc, EveryQuintupleSurvives) {
  constexpr std::size_t kQuintuples = 243;
  std::vector<float> input(5 * kQuintuples);
  for (std::size_t i = 0; i < kQuintuples; ++i) {
    std::size_t rest = i;
    for (std::size_t k = 5; k-- > 0; rest /= 3) {
      input[k * kQuintuples + i] = static_cast<float>(rest % 3) - 1.0f;
    }
  }
  std::vector<float> none;
  const auto block =
      encode_block(recipe_of("none(3lc:scale=1048576,layout=paper,zrun=off)"), input, none);
  const auto bytes = block.bytes();
  ASSERT_EQ(bytes.size(), 4u + 243u);
  for (std::size_t i = 0; i < 243; ++i) EXPECT_EQ(bytes[4 + i], i);
  EXPECT_EQ(decode_block(block), input);
}

// Columns come from one run of a tile: element c of the first run is column c.
TEST_P(Threelc, EveryRunLengthMatchesTheOracle) {
  for (std::size_t length = 1; length <= 200; ++length) {
    for (const std::size_t before : {0u, 1u, 5u, 63u, 64u}) {
      std::vector<float> input(1600, 0.0f);
      for (std::size_t column = 0; column < 320; ++column) {
        const bool in_run = column >= before && column < before + length;
        if (!in_run) input[column / 64 * 320 + column % 64] = 1.0f;
      }
      std::vector<float> residual(input.size(), 0.0f);
      expect_like_oracle(recipe_of("3lc:s=1,scale=1048576"), input, residual);
      ASSERT_FALSE(HasFailure()) << "run " << length << " after " << before;
    }
  }
}

TEST_P(Threelc, ThePaperContractsAtLeastByDelta) {
  for (const float s : {1.0f, 1.5f, 1.75f, 1.9f}) {
    for (const std::size_t d : {5u, 64u, 1000u}) {
      Recipe recipe = recipe_of("none(3lc:scale=1048576)");
      recipe.s = s;
      const double sd = static_cast<double>(s);
      const double delta = (2 / sd - 1) / (1 / (sd * sd) + static_cast<double>(d - 1) / 4);
      const auto ratio_of = [&](const std::vector<float>& input) {
        std::vector<float> none;
        const auto block = encode_block(recipe, input, none);
        const auto decoded = decode_block(block);
        double left = 0;
        double all = 0;
        for (std::size_t i = 0; i < input.size(); ++i) {
          const double value = static_cast<double>(input[i]);
          left += std::pow(value - static_cast<double>(decoded[i]), 2);
          all += value * value;
        }
        EXPECT_NEAR(block.result.residual_energy, left, 1e-4 * all);
        EXPECT_NEAR(block.result.input_energy, all, 1e-4 * all);
        return left / all;
      };
      for (std::uint64_t seed = 0; seed < 20; ++seed) {
        EXPECT_LE(ratio_of(gaussian(d, seed)), 1 - delta + 1e-6);
      }
      // The worst vector: one element at the maximum, the others just not sent.
      const float scale = 8.0f;
      std::vector<float> worst(d, std::nextafter(scale / 2, 0.0f));
      worst[0] = scale / s;
      EXPECT_NEAR(ratio_of(worst), 1 - delta, 1e-5);
    }
  }
}

TEST_P(Threelc, ErrorFeedbackTelescopes) {
  for (const char* const text : {"3lc:s=1", "3lc:s=1.9,scale=64", "ef(bf16)"}) {
    const Recipe recipe = recipe_of(text);
    constexpr std::size_t kCount = 3000;
    constexpr std::size_t kSteps = 50;
    std::vector<float> residual(kCount, 0.0f);
    std::vector<double> sent(kCount, 0.0);
    std::vector<double> fed(kCount, 0.0);
    double largest = 0;
    for (std::size_t step = 0; step < kSteps; ++step) {
      const auto input = gaussian(kCount, step);
      const auto decoded = decode_block(encode_block(recipe, input, residual));
      for (std::size_t i = 0; i < kCount; ++i) {
        fed[i] += static_cast<double>(input[i]);
        sent[i] += static_cast<double>(decoded[i]);
        largest = std::max(largest, std::fabs(static_cast<double>(residual[i])));
      }
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_NEAR(sent[i] + static_cast<double>(residual[i]), fed[i],
                  static_cast<double>(kSteps) * 0x1p-22 * (largest + 8));
    }
  }
}

TEST_P(Threelc, TensorScaleUsesTheGivenMaximum) {
  const auto input = gaussian(5000, 9);
  std::vector<float> residual = gaussian(5000, 10);
  const ScanResult scan = scan_max(input, residual.data(), 0.5f);
  EXPECT_FALSE(scan.nonfinite);
  float largest = 0;
  for (std::size_t i = 0; i < input.size(); ++i) {
    largest = std::max(largest, std::fabs(input[i] + residual[i] * 0.5f));
  }
  EXPECT_EQ(scan.max, largest);
  EncodeRequest request;
  request.state_scale = 0.5f;
  request.fixed_scale_max = 2 * scan.max;
  for (const char* const text : {"3lc:scale=tensor", "3lc:scale=tensor,layout=paper"}) {
    std::vector<float> kept = residual;
    const auto block = expect_like_oracle(recipe_of(text), input, kept, request);
    EXPECT_EQ(block.header.scale_elements, 0u);
  }
}

TEST_P(Threelc, ResidualIsTakenAgainstTheValueAsDelivered) {
  for (const DType delivered : {DType::f16, DType::bf16}) {
    for (const char* const text : {"3lc:s=1.9", "3lc:scale=64,layout=paper", "ef(bf16)"}) {
      const auto input = gaussian(2000, 21);
      std::vector<float> residual(2000, 0.0f);
      EncodeRequest request;
      request.delivered = delivered;
      const auto decoded = decode_block(encode_block(recipe_of(text), input, residual, request));
      for (std::size_t i = 0; i < input.size(); ++i) {
        // Rounded by the compiler's own _Float16 where there is one would prove more; by hand here.
        const float step = delivered == DType::bf16 ? 0x1p-7f : 0x1p-10f;
        const float magnitude = std::fabs(decoded[i]);
        const float unit =
            magnitude == 0 ? 1.0f : std::exp2(std::floor(std::log2(magnitude))) * step;
        const float seen = std::nearbyint(decoded[i] / unit) * unit;
        ASSERT_EQ(residual[i], input[i] - seen) << text << " " << i;
      }
    }
  }
}

TEST_P(Threelc, EnergiesAreTheSameOnEveryTarget) {
  const auto input = gaussian(70001, 77);
  std::vector<float> residual(input.size(), 0.25f);
  std::vector<float> scalar_residual = residual;
  const auto here = encode_block(recipe_of("3lc"), input, residual);
  target::force("scalar");
  const auto scalar = encode_block(recipe_of("3lc"), input, scalar_residual);
  EXPECT_EQ(here.result.input_energy, scalar.result.input_energy);
  EXPECT_EQ(here.result.residual_energy, scalar.result.residual_energy);
}

}  // namespace threelc_test
}  // namespace tern::codec
