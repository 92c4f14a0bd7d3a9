// Ops of more than 2^32 elements: where their chunks lie, who owns them, and on which lane.

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "collective/chunk_map.h"
#include "collective/op_plan.h"
#include "collective/share_tables.h"
#include "plan/cut.h"
#include "plan/plans.h"

namespace tern::collective {
namespace large_counts_test {

constexpr std::uint64_t kGiga = 1'000'000'000;

GroupShape shape_of(std::uint32_t lane, std::uint32_t node = 0) {
  GroupShape shape;
  shape.node = node;
  shape.lane = lane;
  shape.lanes = 2;
  shape.cut = shm::CutVersion::even;
  shape.ranks = {{0}, {1}, {2}};
  return shape;
}

wire::AnnounceBody body_of(const plan::Plan& plan, std::uint64_t count, DType dtype) {
  wire::AnnounceBody body{};
  body.kind = plan.number;
  body.count = count;
  body.dtype = static_cast<std::uint8_t>(dtype);
  return body;
}

// Chunks at random, and the last one, are where they should be; all together are the op.
void expect_whole(const plan::Plan& plan, std::uint64_t count, DType dtype) {
  std::mt19937_64 random(count);
  std::uint64_t chunks = 0, last_end = 0;
  for (std::uint32_t lane = 0; lane < 2; ++lane) {
    const GroupShape shape = shape_of(lane);
    Op op;
    op.key = {77, 3};
    describe(op, body_of(plan, count, dtype), shape);
    ASSERT_FALSE(op.is_eager());
    for (std::uint32_t node = 0; node < 3; ++node) {
      const std::uint32_t owned = op.chunks.owned(node);
      chunks += owned;
      for (int draw = 0; draw < 50 && owned > 0; ++draw) {
        const std::uint32_t index =
            draw == 0 ? owned - 1 : static_cast<std::uint32_t>(random() % owned);
        const std::uint32_t number = op.chunks.chunk(node, index);
        ASSERT_TRUE(op.chunks.has(node, number));
        ASSERT_FALSE(op.chunks.has((node + 1) % 3, number));
        ASSERT_GT(op.chunks.size(number), 0u);
        last_end = std::max(last_end, op.chunks.begin(number) + op.chunks.size(number));
        if (number > 0) {
          ASSERT_EQ(op.chunks.begin(number), op.chunks.begin(number - 1) + op.chunks.size(0));
        }
      }
    }
  }
  EXPECT_EQ(last_end, count);
  const shm::Sharding sharding = shm::make_sharding({.tensor = 77,
                                                     .count = count,
                                                     .dtype = dtype,
                                                     .chunk_bytes = 256 << 10,
                                                     .version = shm::CutVersion::even,
                                                     .nodes = 3,
                                                     .lanes = 2});
  EXPECT_EQ(chunks, sharding.chunk_count);
}

TEST(LargeCounts, AnOpThatIsCutAsAWholeIsCovered) {
  for (const plan::Plan* plan : {&plan::kAllReduce, &plan::kReduce, &plan::kBroadcast}) {
    expect_whole(*plan, 5 * kGiga, DType::u8);
    expect_whole(*plan, (std::uint64_t{1} << 32) + 1, DType::f32);
    expect_whole(*plan, plan::kMaxElements, DType::u8);
  }
}

TEST(LargeCounts, SharesLieOneAfterTheOther) {
  const std::vector<std::uint64_t> counts = {5 * kGiga, 1, 7 * kGiga};
  ShareTables tables(3);
  const std::uint64_t* const begins = tables.take(counts);
  std::uint64_t covered = 0;
  for (std::uint32_t lane = 0; lane < 2; ++lane) {
    const GroupShape shape = shape_of(lane);
    Op op;
    auto body = body_of(plan::kAllGather, 12 * kGiga + 1, DType::u8);
    body.counts_crc = 1;
    op.key = {9, 0};
    describe(op, body, shape);
    op.share_begins = begins;
    cut(op, shape, counts.data());
    const std::uint64_t starts[] = {0, 5 * kGiga, 5 * kGiga + 1};
    for (std::uint32_t node = 0; node < 3; ++node) {
      for (std::uint32_t i = 0; i < op.chunks.owned(node); ++i) {
        const std::uint32_t number = op.chunks.chunk(node, i);
        covered += op.chunks.size(number);
        ASSERT_GE(op.chunks.begin(number), starts[node]);
        ASSERT_LE(op.chunks.begin(number) + op.chunks.size(number), starts[node] + counts[node]);
      }
    }
  }
  EXPECT_EQ(covered, 12 * kGiga + 1);
}

// What rank 0 has for rank 2, as both ends see it.
TEST(LargeCounts, PairsAreAtTheSamePlaceForBothEnds) {
  constexpr std::uint64_t kPair = 5 * kGiga;
  plan::Shape of_op;
  of_op.count = 3 * kPair;
  of_op.dtype = DType::u8;
  of_op.ranks = 3;
  const shm::Sharding sharding =
      plan::cut(plan::kAllToAll, of_op,
                {.chunk_bytes = 256 << 10, .version = shm::CutVersion::even, .nodes = 3});
  GroupShape sends = shape_of(0, 0), gets = shape_of(0, 2);
  sends.lanes = gets.lanes = 1;
  const PairChunks sender(sharding, sends, nullptr), receiver(sharding, gets, nullptr);
  EXPECT_EQ(receiver.received_from(0), sender.owned(0) / 3);
  std::uint64_t covered = 0;
  for (std::uint32_t i = 0; i < sender.owned(0); ++i) {
    const std::uint32_t number = sender.chunk(0, i);
    if (sender.receiver(number) != 2) continue;
    ASSERT_TRUE(receiver.has(0, number));
    const std::uint64_t place = sender.begin(number) - plan::pair_inputs_begin(0) - 2 * kPair;
    ASSERT_EQ(receiver.result_begin(number) - plan::pair_outputs_begin(2), place);
    covered += receiver.size(number);
  }
  EXPECT_EQ(covered, kPair);
}

TEST(LargeCounts, NodesThatSayOtherOnesDoNotAgree) {
  const auto first = body_of(plan::kAllReduce, 5 * kGiga, DType::u8);
  auto other = first;
  EXPECT_TRUE(same_op(first, other));
  other.count += std::uint64_t{1} << 32;  // alike in the lower half
  EXPECT_FALSE(same_op(first, other));
  char text[200];
  write_mismatch(first, other, text);
  EXPECT_NE(std::string(text).find("5000000000 u8"), std::string::npos) << text;
  EXPECT_NE(std::string(text).find("9294967296 u8"), std::string::npos) << text;
}

}  // namespace large_counts_test
}  // namespace tern::collective
