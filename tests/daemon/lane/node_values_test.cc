#include "daemon/lane/node_values.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/half.h"
#include "group_rig.h"

namespace tern::daemon::node_values_test {
namespace {

using collective::OpId;
using group_test::kChunk;
using group_test::Memory;
using group_test::OneNode;
using group_test::ramp;

std::vector<float> floats_in(const Memory& memory, std::size_t count) {
  auto values = memory.as<float>();
  values.resize(count);
  return values;
}

class NodeValuesOfOneRank : public OneNode {
 protected:
  const NodeValues& values() { return node.codec.values(); }
};

// Rank 2 is on the other node.
class NodeValuesOfTwoRanks : public OneNode {
 protected:
  NodeValuesOfTwoRanks() : OneNode({.ranks = {{0, 1}, {2}}}) {}
  const NodeValues& values() { return node.codec.values(); }
};

TEST_F(NodeValuesOfOneRank, APlainInputIsReadWhereItLies) {
  const OpId op = node.begin({.count = kChunk + 8});
  node.give(op, ramp(kChunk + 8, 1.0f, 0.5f));
  ASSERT_TRUE(values().is_plain(op));
  const auto floats = values().floats(op, {kChunk, 8});
  EXPECT_EQ(floats.data(), as_floats(host_bytes(node.rank(op).input).data()) + kChunk);
  EXPECT_EQ(floats.size(), 8u);
}

TEST_F(NodeValuesOfOneRank, AScaledInputIsNotPlain) {
  const OpId op = node.begin({});
  node.give(op, std::vector<float>(kChunk, 3.0f));
  node.change_rank(op, [](OpRank& rank) { rank.prescale = 0.5f; });
  EXPECT_FALSE(values().is_plain(op));
  EXPECT_EQ(values().floats(op, {0, 4})[0], 1.5f);
  EXPECT_EQ(as_floats(host_bytes(node.rank(op).input).data())[0], 3.0f);
}

TEST_F(NodeValuesOfOneRank, APlainInputOfHalvesIsWidened) {
  const OpId op = node.begin({.count = 4, .dtype = DType::bf16});
  node.give<std::uint16_t>(op, {f32_to_bf16(1.0f), f32_to_bf16(-2.0f), 0, f32_to_bf16(0.5f)});
  const auto floats = values().floats(op, {1, 3});
  EXPECT_EQ(std::vector<float>(floats.begin(), floats.end()), (std::vector{-2.0f, 0.0f, 0.5f}));
}

TEST_F(NodeValuesOfTwoRanks, AreAddedEachWithItsScale) {
  const OpId op = node.begin({.count = 4});
  EXPECT_FALSE(values().is_plain(op));
  node.give<float>(op, {1, 2, 3, 4}, 0);
  node.give<float>(op, {10, 20, 30, 40}, 1);
  node.change_rank(
      op, [](OpRank& rank) { rank.prescale = 0.5f; }, 1);
  Memory sum(4 * sizeof(float));
  values().sum(op, {1, 2}, sum.bytes().data());
  EXPECT_EQ(floats_in(sum, 2), (std::vector{12.0f, 18.0f}));
  const auto floats = values().floats(op, {0, 4});
  EXPECT_EQ(std::vector<float>(floats.begin(), floats.end()),
            (std::vector{6.0f, 12.0f, 18.0f, 24.0f}));
}

TEST_F(NodeValuesOfTwoRanks, AreReducedAsTheOpSays) {
  const OpId op = node.begin({.count = 3, .dtype = DType::i32, .reduction = Reduction::min});
  node.give<std::int32_t>(op, {1, 5, -7}, 0);
  node.give<std::int32_t>(op, {2, 4, -6}, 1);
  Memory out(3 * sizeof(std::int32_t));
  values().write(op, {0, 3}, out.bytes().data());
  EXPECT_EQ(out.as<std::int32_t>(), (std::vector<std::int32_t>{1, 4, -7}));
}

TEST_F(NodeValuesOfTwoRanks, AreRoundedOnceAfterTheSum) {
  const OpId op = node.begin({.count = 1, .dtype = DType::bf16});
  // Each of them alone is less than half of 1's last place.
  node.give<std::uint16_t>(op, {f32_to_bf16(1.0f)}, 0);
  node.give<std::uint16_t>(op, {f32_to_bf16(0.01f)}, 1);
  node.change_rank(op, [](OpRank& rank) { rank.prescale = 1.003f; });
  Memory out(sizeof(std::uint16_t));
  values().write(op, {0, 1}, out.bytes().data());
  const float rounded_first = bf16_to_f32(f32_to_bf16(1.003f)) + bf16_to_f32(f32_to_bf16(0.01f));
  const float rounded_last = 1.003f + bf16_to_f32(f32_to_bf16(0.01f));
  ASSERT_NE(f32_to_bf16(rounded_first), f32_to_bf16(rounded_last));
  EXPECT_EQ(out.as<std::uint16_t>()[0], f32_to_bf16(rounded_last));
}

TEST_F(NodeValuesOfTwoRanks, ContributeASumToAnAverage) {
  const OpId op = node.begin({.count = 1, .reduction = Reduction::average});
  node.give<float>(op, {4.0f}, 0);
  node.give<float>(op, {6.0f}, 1);
  Memory out(sizeof(float));
  values().write(op, {0, 1}, out.bytes().data());
  EXPECT_EQ(out.as<float>()[0], 10.0f);
}

TEST_F(NodeValuesOfTwoRanks, TheRootsInputIsThatOfItsOwnRank) {
  const OpId op = node.begin({.count = 4, .kind = shm::OpKind::broadcast, .root = 1});
  node.give<float>(op, {1, 2, 3, 4}, 0);
  node.give<float>(op, {5, 6, 7, 8}, 1);
  EXPECT_EQ(*as_floats(values().moved_input(op, {2, 2})), 7.0f);
}

TEST_F(NodeValuesOfTwoRanks, BothGetWhatIsDeliveredAndOnlyThat) {
  const OpId op = node.begin({.count = 4});
  const Memory elements(std::vector<float>{8.0f, 9.0f});
  values().deliver(op, {1, 2}, host_bytes(elements.operand()).data());
  for (const std::uint32_t rank : {0u, 1u}) {
    EXPECT_EQ(node.got(op, rank), (std::vector{0.0f, 8.0f, 9.0f, 0.0f})) << rank;
  }
}

TEST_F(NodeValuesOfTwoRanks, FloatsAreDeliveredInTheTensorsType) {
  const OpId op = node.begin({.count = 2, .dtype = DType::f16});
  const std::vector<float> sums = {1.5f, 65520.0f};
  values().deliver_floats(op, {0, 2}, sums.data());
  for (const std::uint32_t rank : {0u, 1u}) {
    EXPECT_EQ(node.got<std::uint16_t>(op, rank),
              (std::vector<std::uint16_t>{f32_to_f16(1.5f), 0x7c00}));
  }
}

TEST_F(NodeValuesOfTwoRanks, WhatLiesInARanksOutputGoesToTheOther) {
  const OpId op = node.begin({.count = 2});
  const auto second = host_bytes(node.rank(op, 1).output);
  const std::vector<float> values_there = {3.0f, 4.0f};
  std::memcpy(second.data(), values_there.data(), second.size());
  values().deliver(op, {0, 2}, second.data());
  EXPECT_EQ(node.got(op, 0), values_there);
  EXPECT_EQ(node.got(op, 1), values_there);
}

}  // namespace
}  // namespace tern::daemon::node_values_test
