#include "shm/copy_progress.h"

#include <gtest/gtest.h>

#include <array>

namespace tern::shm {
namespace {

constexpr CopyProgress::Shape kShape{3, 5};

TEST(CopyProgress, EveryLaneHasAListOfItsOwn) {
  alignas(64) std::array<std::byte, kShape.bytes()> block{};
  CopyProgress lane(block.data(), kShape), client(block.data(), kShape);
  for (std::uint32_t i = 0; i < kShape.lanes; ++i) {
    for (std::uint32_t record = 0; record < kShape.records; ++record) {
      lane.deliver(i, record, {i * 100 + record, 7});
    }
  }
  client.raise_input(42);
  EXPECT_EQ(lane.input_bytes(), 42u);
  for (std::uint32_t i = 0; i < kShape.lanes; ++i) {
    ASSERT_EQ(client.delivered_records(i), kShape.records);
    for (std::uint32_t record = 0; record < kShape.records; ++record) {
      EXPECT_EQ(client.record(i, record).offset, i * 100 + record);
      EXPECT_EQ(client.record(i, record).bytes, 7u);
    }
  }
}

// docs/shm-layout.md, "Copies that go on".
TEST(CopyProgress, LiesWhereThePageSays) {
  alignas(64) std::array<std::byte, kShape.bytes()> block{};
  EXPECT_EQ(block.size(), 64u + 64 * 3 + 16 * 3 * 5);
  CopyProgress(block.data(), kShape).deliver(2, 4, {0x11, 0x22});
  EXPECT_EQ(block[64 + 64 * 2], std::byte{5});
  EXPECT_EQ(block[64 + 64 * 3 + 16 * (2 * 5 + 4)], std::byte{0x11});
  EXPECT_EQ(block[64 + 64 * 3 + 16 * (2 * 5 + 4) + 8], std::byte{0x22});
}

}  // namespace
}  // namespace tern::shm
