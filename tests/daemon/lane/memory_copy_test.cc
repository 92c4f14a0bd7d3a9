#include "daemon/lane/memory_copy.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tern::daemon {
namespace memory_copy_test {
namespace {

constexpr std::uint64_t kBytes = 4'000'000;
constexpr std::uint64_t kMs = 1'000'000;

class MemoryCopyTest : public ::testing::Test {
 protected:
  static shm::SubmitEntry entry(std::uint8_t flags = shm::kEntryHasProgress) {
    shm::SubmitEntry entry{};
    entry.flags = flags;
    return entry;
  }
  bool look(std::uint64_t now_ns = 0) {
    MemoryCopy::Problem problem;
    const bool moved = copy.look(kBytes, now_ns, problem);
    text = problem.text();
    return moved;
  }

  static constexpr shm::CopyProgress::Shape kShape{2, 3};
  alignas(64) std::array<std::byte, kShape.bytes()> block{};
  shm::CopyProgress client{block.data(), kShape};
  ClientMemory memory;
  MemoryCopy copy{entry(), client, memory, 0};
  std::string text;
};

TEST_F(MemoryCopyTest, WithoutOneTheMemoryIsUsedWhereItIs) {
  MemoryCopy none;
  EXPECT_FALSE(none.exists());
  EXPECT_FALSE(none.deliver(0, {0, 1 << 20}));
  EXPECT_TRUE(copy.exists());
}

TEST_F(MemoryCopyTest, KnowsWhatItHasLastRead) {
  EXPECT_FALSE(look());
  client.raise_input(1000);
  EXPECT_EQ(copy.input_bytes(), 0u);
  EXPECT_TRUE(look());
  EXPECT_EQ(copy.input_bytes(), 1000u);
  EXPECT_FALSE(look()) << "it has not moved";
  client.raise_input(kBytes);
  EXPECT_TRUE(look());
  EXPECT_EQ(copy.input_bytes(), kBytes);
  EXPECT_EQ(text, "");
}

TEST_F(MemoryCopyTest, AWatermarkThatSaysMoreThanThereIsIsAProblem) {
  client.raise_input(kBytes + 1);
  EXPECT_TRUE(look());
  EXPECT_EQ(text, "the watermark of its input says 4000001 of 4000000 bytes, after 0");
  EXPECT_EQ(copy.input_bytes(), 0u) << "it is not believed";
}

TEST_F(MemoryCopyTest, AWatermarkThatFallsIsAProblem) {
  client.raise_input(2000);
  look();
  client.raise_input(1999);
  EXPECT_TRUE(look());
  EXPECT_EQ(text, "the watermark of its input says 1999 of 4000000 bytes, after 2000");
  EXPECT_EQ(copy.input_bytes(), 2000u);
}

TEST_F(MemoryCopyTest, AWatermarkThatStandsStillIsAProblemAfterSoLong) {
  client.raise_input(2000);
  look(5 * kMs);
  EXPECT_FALSE(copy.stall(kBytes, 14 * kMs, 10 * kMs));
  const MemoryCopy::Problem problem = copy.stall(kBytes, 15 * kMs, 10 * kMs);
  ASSERT_TRUE(problem);
  EXPECT_STREQ(problem.text(), "for 10 ms its input has stopped at 2000 of 4000000 bytes");
}

TEST_F(MemoryCopyTest, OneThatHasNotBegunWaitsForTheOthersOfItsClient) {
  alignas(64) std::array<std::byte, kShape.bytes()> other_block{};
  shm::CopyProgress others{other_block.data(), kShape};
  MemoryCopy other{entry(), others, memory, 0};
  others.raise_input(1);
  MemoryCopy::Problem problem;
  EXPECT_TRUE(other.look(kBytes, 8 * kMs, problem));
  EXPECT_FALSE(copy.stall(kBytes, 17 * kMs, 10 * kMs)) << "the client copied at 8 ms";
  EXPECT_TRUE(copy.stall(kBytes, 18 * kMs, 10 * kMs));
  copy.begin_next(12 * kMs);
  EXPECT_FALSE(copy.stall(kBytes, 21 * kMs, 10 * kMs)) << "its turn began at 12 ms";
  client.raise_input(1);
  look(13 * kMs);
  copy.begin_next(20 * kMs);
  EXPECT_TRUE(copy.stall(kBytes, 23 * kMs, 10 * kMs)) << "it has begun: nobody else's turn counts";
}

TEST_F(MemoryCopyTest, ItsSharesMayComeFromTheLastOn) {
  EXPECT_FALSE(copy.shares_down());
  const std::uint8_t flags = shm::kEntryHasProgress | shm::kEntrySharesDown;
  EXPECT_TRUE((MemoryCopy{entry(flags), client, memory, 0}).shares_down());
}

TEST_F(MemoryCopyTest, PiecesOfTheOutputAreListedInTheLanesOwnList) {
  copy.deliver(1, {0, 100});
  copy.deliver(1, {100, 50});
  EXPECT_EQ(client.delivered_records(0), 0u);
  ASSERT_EQ(client.delivered_records(1), 2u);
  EXPECT_EQ(client.record(1, 1).offset, 100u);
  EXPECT_EQ(client.record(1, 1).bytes, 50u);
}

TEST_F(MemoryCopyTest, AListHasRoomForSoManyPieces) {
  for (std::uint64_t i = 0; i < 5; ++i) copy.deliver(0, {i, 1});
  EXPECT_EQ(client.delivered_records(0), 3u) << "the client copies the rest at the end";
  EXPECT_EQ(client.record(0, 2).offset, 2u);
}

TEST_F(MemoryCopyTest, AnEmptyPieceIsNotListed) {
  EXPECT_FALSE(copy.deliver(0, {7, 0}));
  EXPECT_EQ(client.delivered_records(0), 0u);
}

TEST_F(MemoryCopyTest, TheClientIsWokenForSoMuchAtATime) {
  EXPECT_FALSE(copy.deliver(0, {0, 300 << 10}));
  EXPECT_TRUE(copy.deliver(0, {300 << 10, 300 << 10})) << "600 KiB since the last time";
  EXPECT_FALSE(copy.deliver(0, {600 << 10, 300 << 10}));
}

}  // namespace
}  // namespace memory_copy_test
}  // namespace tern::daemon
