#include "daemon/lane/chunk_table.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

class ChunkTableTest : public ::testing::Test {
 protected:
  ChunkTableTest() : memory(settings()), table(shape()) { table.attach(memory, job); }

  static LaneSettings settings() {
    LaneSettings settings;
    settings.chunk_bytes = 4096;
    settings.receive_slabs = 8;
    settings.result_slabs = 2;
    return settings;
  }
  static collective::GroupShape shape() {
    collective::GroupShape shape;
    shape.node = 1;
    shape.active_chunks = 4;
    shape.ranks = {{0}, {1}, {2}};
    return shape;
  }
  void expect_all_is_free() {
    EXPECT_EQ(memory.accumulators().free_count(), memory.accumulators().count());
    EXPECT_EQ(memory.receive_slabs().free_count(), memory.receive_slabs().count());
    EXPECT_EQ(job.held, LaneJob::Held{});
  }
  static bool nothing_is_filling(std::uint32_t, std::uint32_t) { return false; }

  FrameMemory memory;
  LaneJob job;
  ChunkTable table;
};

TEST_F(ChunkTableTest, AChunkHasASlabForEveryOtherNode) {
  table.reserve(0, 5);
  EXPECT_NE(table.slab(0, 0), SlabPool::kNone);
  EXPECT_EQ(table.slab(0, 1), SlabPool::kNone);
  EXPECT_NE(table.slab(0, 2), SlabPool::kNone);
  EXPECT_EQ(job.held.receive_slabs, 2u);
  EXPECT_EQ(job.held.accumulators, 1u);
  table.release(0, nothing_is_filling);
  expect_all_is_free();
}

TEST_F(ChunkTableTest, ASumIsGivenBackOnceWhetherItHasBegunOrNot) {
  table.reserve(0, 5);
  table.reserve(1, 5);
  const Operand sum = table.begin_sum(1);
  EXPECT_EQ(table.sum(1), sum);
  table.release_all(5, nothing_is_filling);
  expect_all_is_free();
}

TEST_F(ChunkTableTest, ASumThatIsLentStaysWithItsFrame) {
  table.reserve(0, 5);
  table.begin_sum(0);
  const std::uint32_t slab = table.lend_sum(0);
  table.release(0, nothing_is_filling);
  EXPECT_EQ(memory.accumulators().free_count(), memory.accumulators().count() - 1);
  EXPECT_EQ(job.held.accumulators, 1u);
  memory.accumulators().give(slab);
}

TEST_F(ChunkTableTest, AContributionIsAsLongAsItsFrameWas) {
  table.reserve(2, 5);
  table.keep_contribution(2, 0, 100);
  EXPECT_EQ(table.contribution(2, 0).bytes, 100u);
  table.release_contribution(2, 0);
  EXPECT_EQ(table.slab(2, 0), SlabPool::kNone);
  table.release_all(5, nothing_is_filling);
  expect_all_is_free();
}

TEST_F(ChunkTableTest, ASlabThatIsBeingFilledIsLeftToWhoFillsIt) {
  table.reserve(0, 5);
  const std::uint32_t filling = table.slab(0, 2);
  table.release(0, [&](std::uint32_t, std::uint32_t slab) { return slab == filling; });
  EXPECT_EQ(job.held.receive_slabs, 1u);
  table.give_slab(filling);
  expect_all_is_free();
}

TEST_F(ChunkTableTest, OtherOpsKeepTheirChunks) {
  table.reserve(0, 5);
  table.reserve(1, 6);
  table.release_all(5, nothing_is_filling);
  EXPECT_NE(table.slab(1, 0), SlabPool::kNone);
  table.release_all(6, nothing_is_filling);
  expect_all_is_free();
}

}  // namespace
}  // namespace tern::daemon
