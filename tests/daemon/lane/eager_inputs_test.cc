#include "daemon/lane/eager_inputs.h"

#include <gtest/gtest.h>

#include "daemon/lane/eager_room.h"

namespace tern::daemon {
namespace {

collective::GroupShape shape(std::uint64_t eager_bytes) {
  collective::GroupShape shape;
  shape.eager_bytes = eager_bytes;
  shape.max_ops_in_flight = 2;
  shape.ranks = {{0}, {1}};
  return shape;
}

class EagerInputsTest : public testing::Test {
 protected:
  EagerRoom room = *EagerRoom::make(shape(256));
  EagerInputs inputs{shape(256), 8, room.announced()};
};

TEST_F(EagerInputsTest, ANodeHasRoomForTwiceItsOpsInFlight) {
  for (int i = 0; i < 4; ++i) EXPECT_NE(inputs.take(1), SlabPool::kNone);
  EXPECT_EQ(inputs.take(1), SlabPool::kNone);
  EXPECT_NE(inputs.take(0), SlabPool::kNone);
}

TEST_F(EagerInputsTest, WhatIsKeptIsGivenBackWithItsOp) {
  for (int round = 0; round < 10; ++round) {
    inputs.keep(3, 1, {inputs.take(1), 8, false});
    EXPECT_TRUE(inputs.kept(3, 0).empty());
    EXPECT_EQ(inputs.kept(3, 1).bytes, 8u);
    inputs.release(3);
    EXPECT_TRUE(inputs.kept(3, 1).empty());
  }
}

TEST_F(EagerInputsTest, WithoutEagerOpsThereIsNoRoom) {
  EagerRoom none = *EagerRoom::make(shape(0));
  EagerInputs empty(shape(0), 8, none.announced());
  EXPECT_EQ(empty.take(1), SlabPool::kNone);
}

}  // namespace
}  // namespace tern::daemon
