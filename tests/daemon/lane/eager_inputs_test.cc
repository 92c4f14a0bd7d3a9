#include "daemon/lane/eager_inputs.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

collective::GroupShape shape(std::uint64_t eager_bytes) {
  collective::GroupShape shape;
  shape.eager_bytes = eager_bytes;
  shape.max_ops_in_flight = 2;
  shape.ranks = {{0}, {1}};
  return shape;
}

TEST(EagerInputs, ANodeHasRoomForTwiceItsOpsInFlight) {
  EagerInputs inputs(shape(256), 8);
  for (int i = 0; i < 4; ++i) EXPECT_NE(inputs.take(1), SlabPool::kNone);
  EXPECT_EQ(inputs.take(1), SlabPool::kNone);
  EXPECT_NE(inputs.take(0), SlabPool::kNone);
}

TEST(EagerInputs, WhatIsKeptIsGivenBackWithItsOp) {
  EagerInputs inputs(shape(256), 8);
  for (int round = 0; round < 10; ++round) {
    inputs.keep(3, 1, {inputs.take(1), 8, false});
    EXPECT_TRUE(inputs.kept(3, 0).empty());
    EXPECT_EQ(inputs.kept(3, 1).bytes, 8u);
    inputs.release(3);
    EXPECT_TRUE(inputs.kept(3, 1).empty());
  }
}

TEST(EagerInputs, WithoutEagerOpsThereIsNoRoom) {
  EagerInputs inputs(shape(0), 8);
  EXPECT_EQ(inputs.take(1), SlabPool::kNone);
}

}  // namespace
}  // namespace tern::daemon
