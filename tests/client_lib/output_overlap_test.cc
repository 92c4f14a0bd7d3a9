#include "client_lib/output_overlap.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "plan/plans.h"

namespace tern::client_lib {
namespace output_overlap_test {
namespace {

using Pair = std::pair<std::size_t, std::size_t>;

class OutputOverlap : public ::testing::Test {
 protected:
  OutputOverlap() { group->size = 4; }

  // Elements [input, input + count) of the memory to [output, output + count).
  OpRequest op(std::size_t input, std::size_t output, std::uint64_t count,
               const plan::Plan& plan = plan::kAllReduce) {
    OpRequest request;
    request.plan = &plan;
    request.group = group;
    request.input = &memory[input];
    request.output = &memory[output];
    request.count = count;
    return request;
  }
  OpRequest in_place(std::size_t at, std::uint64_t count) { return op(at, at, count); }

  std::shared_ptr<GroupState> group = std::make_shared<GroupState>();
  std::array<float, 128> memory{};
};

TEST_F(OutputOverlap, IsNoneOfOneOpOrNone) {
  EXPECT_EQ(find_output_overlap({}), std::nullopt);
  EXPECT_EQ(find_output_overlap(std::vector{in_place(0, 16)}), std::nullopt);
  EXPECT_EQ(find_output_overlap(std::vector{op(0, 16, 16)}), std::nullopt);
}

TEST_F(OutputOverlap, NeighboursDoNotOverlap) {
  EXPECT_EQ(find_output_overlap(std::vector{in_place(16, 16), in_place(0, 16), in_place(32, 16)}),
            std::nullopt);
}

TEST_F(OutputOverlap, IsOfTwoThatWriteTheSame) {
  EXPECT_EQ(find_output_overlap(std::vector{in_place(0, 16), in_place(15, 16)}), Pair(0, 1));
  EXPECT_EQ(find_output_overlap(std::vector{op(0, 32, 8), op(8, 39, 8)}), Pair(0, 1));
}

TEST_F(OutputOverlap, IsOfOneThatReadsWhatAnotherWrites) {
  EXPECT_EQ(find_output_overlap(std::vector{op(0, 16, 16), op(16, 32, 16)}), Pair(0, 1));
  EXPECT_EQ(find_output_overlap(std::vector{op(16, 32, 16), op(0, 16, 16)}), Pair(0, 1));
}

TEST_F(OutputOverlap, AllMayReadTheSame) {
  EXPECT_EQ(find_output_overlap(std::vector{op(0, 64, 16), op(0, 80, 16), op(8, 96, 16)}),
            std::nullopt);
}

TEST_F(OutputOverlap, IsToldInTheOrderOfTheList) {
  EXPECT_EQ(find_output_overlap(
                std::vector{in_place(64, 8), in_place(40, 8), in_place(0, 8), in_place(36, 8)}),
            Pair(1, 3));
}

// The one between ends before the last begins.
TEST_F(OutputOverlap, IsFoundPastOneThatIsShort) {
  EXPECT_EQ(find_output_overlap(std::vector{in_place(0, 64), op(100, 2, 1), in_place(80, 8)}),
            Pair(0, 1));
  EXPECT_EQ(find_output_overlap(std::vector{op(0, 100, 28), op(2, 64, 1), in_place(20, 4)}),
            Pair(0, 2))
      << "the first still reads there";
}

// Of an all_gather in place the input is a part of the output.
TEST_F(OutputOverlap, AnOpBesideItselfIsNotLookedAt) {
  group->rank = 1;
  EXPECT_EQ(find_output_overlap(std::vector{op(4, 0, 16, plan::kAllGather)}), std::nullopt);
  EXPECT_EQ(find_output_overlap(std::vector{op(4, 0, 16, plan::kAllGather), in_place(15, 4)}),
            Pair(0, 1));
  EXPECT_EQ(find_output_overlap(std::vector{op(4, 0, 16, plan::kAllGather), in_place(16, 4)}),
            std::nullopt);
}

TEST_F(OutputOverlap, WhatTheRankDoesNotReadOrWriteDoesNotCount) {
  group->rank = 1;
  // Rank 0 is the root: this one only writes, or only reads.
  EXPECT_EQ(find_output_overlap(std::vector{op(0, 16, 16, plan::kBroadcast), in_place(0, 16)}),
            std::nullopt);
  EXPECT_EQ(find_output_overlap(std::vector{op(0, 16, 16, plan::kReduce), in_place(16, 16)}),
            std::nullopt);
  EXPECT_EQ(find_output_overlap(std::vector{op(0, 16, 16, plan::kReduce), in_place(0, 16)}),
            Pair(0, 1));
  EXPECT_EQ(find_output_overlap(std::vector{in_place(0, 16), in_place(8, 0)}), std::nullopt)
      << "it has no elements";
}

// As a look at each two of them finds it.
TEST_F(OutputOverlap, AgreesWithALookAtEachPair) {
  struct Places {
    std::size_t input, output, count;
  };
  const auto meet = [](std::size_t a, std::size_t a_count, std::size_t b, std::size_t b_count) {
    return a < b + b_count && b < a + a_count;
  };
  const auto collide = [&](const Places& a, const Places& b) {
    return meet(a.output, a.count, b.output, b.count) ||
           meet(a.output, a.count, b.input, b.count) || meet(a.input, a.count, b.output, b.count);
  };
  std::mt19937_64 random(5);
  int found = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<Places> places;
    std::vector<OpRequest> requests;
    while (places.size() < 2 + random() % 4) {
      const Places one{random() % 112, random() % 112, 1 + random() % 16};
      const bool partly =
          one.input != one.output && meet(one.input, one.count, one.output, one.count);
      if (partly) continue;  // which is refused before
      places.push_back(one);
      requests.push_back(op(one.input, one.output, one.count));
    }
    bool expected = false;
    for (std::size_t i = 0; i < places.size(); ++i) {
      for (std::size_t j = i + 1; j < places.size(); ++j) {
        expected = expected || collide(places[i], places[j]);
      }
    }
    const auto overlap = find_output_overlap(requests);
    ASSERT_EQ(overlap.has_value(), expected) << "round " << round;
    if (!overlap) continue;
    ++found;
    ASSERT_LT(overlap->first, overlap->second) << "round " << round;
    ASSERT_TRUE(collide(places[overlap->first], places[overlap->second])) << "round " << round;
  }
  EXPECT_GT(found, 100);
  EXPECT_LT(found, 1900);
}

}  // namespace
}  // namespace output_overlap_test
}  // namespace tern::client_lib
