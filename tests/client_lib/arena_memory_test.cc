#include "client_lib/arena_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <vector>

#include "shm/segment.h"

namespace tern::client_lib {
namespace {

constexpr std::uint64_t kArenaBytes = 4096;

class ArenaMemoryTest : public ::testing::Test {
 protected:
  // An op whose input and output have so many bytes.
  Status place(const void* input, void* output, std::uint64_t input_bytes,
               std::uint64_t output_bytes) {
    OpRequest request;
    request.input = input;
    request.output = output;
    op = Op{};
    op.extents = {{0, input_bytes / sizeof(float)}, {0, output_bytes / sizeof(float)}};
    op.input_bytes = input_bytes;
    op.output_bytes = output_bytes;
    memory.begin_submission();
    return memory.place_copies(request, op);
  }

  alignas(64) std::array<std::byte, kArenaBytes> arena{};
  ArenaMemory memory{arena};
  std::vector<float> outside = std::vector<float>(1024);
  Op op;
};

TEST_F(ArenaMemoryTest, KnowsWhatLiesInside) {
  EXPECT_EQ(memory.offset_of(arena.data() + 64, 128, DType::f32), 64u);
  EXPECT_EQ(memory.offset_of(arena.data() + kArenaBytes - 4, 4, DType::f32), kArenaBytes - 4);
  EXPECT_FALSE(memory.offset_of(arena.data() + kArenaBytes - 4, 8, DType::f32)) << "over its end";
  EXPECT_FALSE(memory.offset_of(arena.data() + 2, 4, DType::f32)) << "not aligned";
  EXPECT_FALSE(memory.offset_of(outside.data(), 4, DType::f32));
}

TEST_F(ArenaMemoryTest, FreesOnlyWhatItGave) {
  void* const piece = *memory.allocate(100);
  EXPECT_EQ(piece, arena.data());
  EXPECT_EQ(memory.free(outside.data()).error().code, Errc::invalid_argument);
  EXPECT_EQ(memory.free(arena.data() + 64).error().code, Errc::invalid_argument);
  EXPECT_TRUE(memory.free(piece));
  EXPECT_EQ(memory.free(piece).error().code, Errc::invalid_argument) << "twice";
}

TEST_F(ArenaMemoryTest, WhatLiesInsideIsNotCopied) {
  ASSERT_TRUE(place(arena.data(), arena.data() + 64, 64, 64));
  EXPECT_EQ(op.input_copy, kNoOffset);
  EXPECT_EQ(op.output_copy, kNoOffset);
  EXPECT_EQ(op.input_at.offset, 0u);
  EXPECT_EQ(op.output_at.offset, 64u);
}

TEST_F(ArenaMemoryTest, WhatIsCopiedIsWhereItsCopyIs) {
  ASSERT_TRUE(memory.allocate(64));
  ASSERT_TRUE(place(outside.data(), arena.data(), 128, 64));
  EXPECT_EQ(op.input_at.region, 0u);
  EXPECT_EQ(op.input_at.offset, 64u);
  EXPECT_EQ(op.output_at.offset, 0u);
}

TEST_F(ArenaMemoryTest, OneCopyServesInputAndOutput) {
  ASSERT_TRUE(place(outside.data(), outside.data(), kArenaBytes, kArenaBytes));
  EXPECT_EQ(op.input_copy, op.output_copy);
  EXPECT_EQ(op.output, outside.data());
  memory.free_copies(op);
  EXPECT_EQ(op.input_copy, kNoOffset);
  EXPECT_TRUE(memory.allocate(kArenaBytes)) << "it was given back";
}

TEST_F(ArenaMemoryTest, AnInputThatNobodyReadsNeedsNoRoom) {
  ASSERT_TRUE(place(outside.data(), arena.data(), 0, 64));
  EXPECT_EQ(op.input_copy, kNoOffset);
}

TEST_F(ArenaMemoryTest, TheLongerOfInputAndOutputDecides) {
  ASSERT_TRUE(place(outside.data(), outside.data(), 64, kArenaBytes));
  EXPECT_FALSE(memory.allocate(1));
  memory.free_copies(op);
  ASSERT_TRUE(place(outside.data(), outside.data(), kArenaBytes, 64));
  EXPECT_FALSE(memory.allocate(1));
}

TEST_F(ArenaMemoryTest, WithoutRoomItIsWorthWaitingForOtherCopiesOnly) {
  void* const all = *memory.allocate(kArenaBytes);
  EXPECT_EQ(place(outside.data(), outside.data(), 64, 64).error().code, Errc::out_of_memory);
  ASSERT_TRUE(memory.free(all));
  ASSERT_TRUE(place(outside.data(), outside.data(), kArenaBytes, kArenaBytes));
  Op first = op;
  EXPECT_EQ(place(outside.data(), outside.data(), 64, 64).error().code, Errc::would_block);
  memory.free_copies(first);
  EXPECT_TRUE(place(outside.data(), outside.data(), 64, 64));
}

TEST_F(ArenaMemoryTest, CopiesOfTheSameSubmissionAreNotWorthWaitingFor) {
  ASSERT_TRUE(place(outside.data(), outside.data(), kArenaBytes, kArenaBytes));
  OpRequest second;
  second.input = second.output = outside.data();
  Op another;
  another.extents = {{0, 16}, {0, 16}};
  another.input_bytes = another.output_bytes = 64;
  const Status placed = memory.place_copies(second, another);
  ASSERT_FALSE(placed);
  EXPECT_EQ(placed.error().code, Errc::out_of_memory) << placed.error().text;
}

TEST_F(ArenaMemoryTest, ProgressHasItsOwnPlaceOrNone) {
  ASSERT_TRUE(place(outside.data(), outside.data(), 1024, 1024));
  memory.place_progress({2, 4}, op);
  ASSERT_TRUE(op.progress.exists());
  EXPECT_EQ(op.progress_copy % 64, 0u);
  EXPECT_EQ(op.progress.input_bytes(), 0u);
  memory.free_copies(op);
  EXPECT_EQ(op.progress_copy, kNoOffset);
  ASSERT_TRUE(place(outside.data(), outside.data(), kArenaBytes, kArenaBytes));
  memory.place_progress({2, 4}, op);
  EXPECT_FALSE(op.progress.exists()) << "the copies fill the arena";
}

// Where pages have memory behind them, mincore(2) finds them.
std::size_t resident_pages(const shm::Segment& segment) {
  constexpr std::size_t kPage = 4096;
  std::vector<unsigned char> pages(segment.arena_bytes() / kPage);
  EXPECT_EQ(::mincore(segment.arena().data(), segment.arena_bytes(), pages.data()), 0);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1U; }));
}

TEST(ArenaMemoryPages, AreFoundByWhoeverIsGivenThem) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const auto segment = shm::Segment::create(1, 8 * kMiB, 0);
  ASSERT_TRUE(segment) << segment.error().text;
  ArenaMemory memory(segment->arena());
  EXPECT_EQ(resident_pages(*segment), 0u);
  const auto first = memory.allocate(kMiB + 64);
  ASSERT_TRUE(first);
  const std::size_t after_first = resident_pages(*segment);
  EXPECT_GE(after_first, kMiB / 4096 + 1);
  EXPECT_LT(after_first, 2 * kMiB / 4096);
  // What has memory is not asked for again.
  EXPECT_TRUE(memory.free(*first));
  ASSERT_TRUE(memory.allocate(kMiB));
  EXPECT_EQ(resident_pages(*segment), after_first);
}

}  // namespace
}  // namespace tern::client_lib
