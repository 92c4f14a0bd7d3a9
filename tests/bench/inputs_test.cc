#include "bench/inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tern::bench {
namespace {

constexpr std::size_t kCount = 1000;

TEST(Inputs, NoGaussianInputIsRepeated) {
  Inputs inputs(kCount, 3, 1);
  std::vector<std::vector<float>> seen;
  for (int i = 0; i < 30; ++i) {
    const auto input = inputs.next(kCount);
    const std::vector<float> values(input.begin(), input.end());
    EXPECT_EQ(std::ranges::find(seen, values), seen.end()) << "input " << i;
    seen.push_back(values);
  }
}

TEST(Inputs, RanksSeeUnlikeStepsOfWhatWasRecordedAndAllOfThem) {
  const std::vector<std::vector<float>> steps = {
      std::vector<float>(7, 1.0f), std::vector<float>(7, 2.0f), std::vector<float>(7, 3.0f)};
  Inputs first(kCount, steps, 4);
  Inputs second(kCount, steps, 5);
  std::vector<float> of_first;
  for (int i = 0; i < 3; ++i) {
    const auto input = first.next(kCount);
    EXPECT_EQ(std::ranges::count(input, input.front()), static_cast<std::ptrdiff_t>(kCount));
    EXPECT_NE(input.front(), second.next(kCount).front()) << "step " << i;
    of_first.push_back(input.front());
  }
  std::ranges::sort(of_first);
  EXPECT_EQ(of_first, (std::vector<float>{1.0f, 2.0f, 3.0f}));
}

TEST(Inputs, ATensorShorterThanTheInputIsRepeatedInOrder) {
  const std::vector<std::vector<float>> steps = {{0.0f, 1.0f, 2.0f, 3.0f, 4.0f}};
  Inputs inputs(kCount, steps, 1);
  const auto input = inputs.next(kCount);
  for (std::size_t i = 1; i < kCount; ++i) {
    const float expected = input[i - 1] == 4.0f ? 0.0f : input[i - 1] + 1.0f;
    ASSERT_EQ(input[i], expected) << "element " << i;
  }
}

}  // namespace
}  // namespace tern::bench
