#include "client_lib/op_table.h"

#include <gtest/gtest.h>

namespace tern::client_lib {
namespace {

Op& running(OpTable& ops, const std::shared_ptr<GroupState>& group) {
  Op& op = *ops.reserve();
  op.state = Op::State::running;
  op.group = group;
  op.group_index = group->submitted++;
  return op;
}

TEST(OpTable, ATicketIsKnownWhileItsOpRunsOrHasEnded) {
  OpTable ops;
  Op& op = *ops.reserve();
  const std::uint64_t ticket = ops.ticket(op);
  EXPECT_EQ(ops.find(ticket), nullptr) << "it is being prepared";
  op.state = Op::State::running;
  EXPECT_EQ(ops.find(ticket), &op);
  ops.release(op);
  EXPECT_EQ(ops.find(ticket), nullptr);
  EXPECT_NE(ops.ticket(*ops.reserve()), ticket) << "the same slot, another ticket";
}

TEST(OpTable, IsFullAtItsBound) {
  OpTable ops;
  Op* last = nullptr;
  for (std::uint32_t i = 0; i < kMaxOps; ++i) ASSERT_NE(last = ops.reserve(), nullptr);
  EXPECT_EQ(ops.reserve(), nullptr);
  ops.release(*last);
  EXPECT_NE(ops.reserve(), nullptr);
}

TEST(OpTable, ThePrefixEndsAtTheFirstOpThatRunsOrFailed) {
  OpTable ops;
  const auto group = std::make_shared<GroupState>();
  const auto other = std::make_shared<GroupState>();
  running(ops, other);
  Op& first = running(ops, group);
  Op& second = running(ops, group);
  running(ops, group);
  EXPECT_EQ(ops.completed_prefix(*group), 0u);
  first.state = Op::State::ended;
  EXPECT_EQ(ops.completed_prefix(*group), 1u);
  second.state = Op::State::ended;
  EXPECT_EQ(ops.completed_prefix(*group), 2u);
  group->first_failed = 1;
  EXPECT_EQ(ops.completed_prefix(*group), 1u);
  EXPECT_EQ(ops.completed_prefix(*other), 0u);
}

TEST(Op, TheFirstFailureCountsAndItsTextIsCutToTheRoomThereIs) {
  Op op;
  op.fail(Errc::timeout, std::string(2 * sizeof(op.detail), 'x'));
  op.fail(Errc::peer_lost, "later");
  EXPECT_EQ(op.status, Errc::timeout);
  EXPECT_EQ(std::string_view(op.detail, sizeof(op.detail)), std::string(sizeof(op.detail), 'x'));
}

}  // namespace
}  // namespace tern::client_lib
