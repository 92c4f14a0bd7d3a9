#include "rdma/held_frames.h"

#include <gtest/gtest.h>

#include <vector>

namespace tern::rdma {
namespace held_frames_test {
namespace {

TEST(HeldFrames, AreReleasedInOrderAndCountedUntilThen) {
  const std::vector<std::byte> memory(100);
  HeldFrames held;
  EXPECT_TRUE(held.empty());
  for (std::size_t i = 1; i <= 3; ++i) {
    held.push({std::span(memory).first(i), std::span(memory).first(10 * i)});
  }
  EXPECT_EQ(held.bytes(), 66u);
  std::vector<std::size_t> heads;
  held.release([&](const net::OutgoingFrame& frame) { heads.push_back(frame.head.size()); });
  EXPECT_EQ(heads, (std::vector<std::size_t>{1, 2, 3}));
  EXPECT_TRUE(held.empty());
  EXPECT_EQ(held.bytes(), 0u);
}

}  // namespace
}  // namespace held_frames_test
}  // namespace tern::rdma
