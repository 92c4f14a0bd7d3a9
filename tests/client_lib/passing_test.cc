// Sends and recvs: what the entry says and on which lane, what is refused, and what a recv is told.
// The fake daemon holds the ops.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "shm/sharding.h"
#include "tests/client_lib/fixture.h"

namespace tern::testing {
namespace {

using Submit = tern_status (*)(tern_group*, const tern_op*, tern_ticket*);

// Rank 1 of three, on two lanes.
class Passing : public ClientTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(connection.status, TERN_OK) << tern_error_detail();
    ASSERT_TERN_OK(tern_group_mint(connection.client, &id_));
    join();
    client = connection.client;
    daemon.set_ops(Ops::hold);
  }
  void join() {
    tern_join_options options = TERN_JOIN_OPTIONS_INIT;
    options.rank = 1;
    options.size = 3;
    ASSERT_TERN_OK(tern_group_join(connection.client, &id_, &options, &group));
  }

  static tern_op u8_op(const void* input, void* output, std::uint64_t count) {
    tern_op op = TERN_OP_INIT;
    op.dtype = TERN_U8;
    op.input = input;
    op.output = output;
    op.count = count;
    op.tag = 7;
    return op;
  }
  Seen submit(Submit function, const tern_op& op) {
    EXPECT_EQ(function(group, &op, &ticket_), TERN_OK) << tern_error_detail();
    daemon.await_entries(++submitted_);
    return daemon.seen().back();
  }
  std::string refusal(Submit function, const tern_op& op) {
    tern_ticket ticket = 0;
    EXPECT_EQ(function(group, &op, &ticket), TERN_ERR_INVALID_ARGUMENT);
    return tern_error_detail();
  }
  // The recv ends: so many elements have come from the rank.
  void complete(const Seen& recv, std::uint32_t source, std::uint64_t elements) {
    shm::CompletionEntry entry{};
    entry.ticket = recv.entry.ticket;
    entry.source = source;
    entry.elements = elements;
    daemon.inject(recv.lane, entry);
  }

  tern_group_id id_{};
  tern_ticket ticket_ = 0;
  std::size_t submitted_ = 0;
};

TEST_F(Passing, TheEntryNamesPeerAndTagOnTheLaneOfBoth) {
  char values[4] = {};
  for (std::uint32_t tag = 0; tag < 20; ++tag) {
    tern_op op = u8_op(values, nullptr, 4);
    op.peer = 2;
    op.tag = tag;
    const Seen send = submit(tern_send, op);
    EXPECT_EQ(send.entry.kind, static_cast<std::uint16_t>(shm::OpKind::send));
    EXPECT_EQ(send.entry.root, 2u);
    EXPECT_EQ(send.entry.sequence, tag);
    EXPECT_EQ(send.lane, shm::lane_of_tag(2, tag, 2));
    op = u8_op(nullptr, values, 4);
    op.peer = TERN_ANY_SOURCE;
    op.tag = tag;
    const Seen recv = submit(tern_recv, op);
    EXPECT_EQ(recv.entry.kind, static_cast<std::uint16_t>(shm::OpKind::recv));
    EXPECT_EQ(recv.entry.root, shm::kAnySource);
    EXPECT_EQ(recv.lane, shm::lane_of_tag(1, tag, 2));
  }
}

TEST_F(Passing, TheEntryHasTheRecipeOfEachSide) {
  char values[4] = {};
  for (const Submit function : {tern_send, tern_recv}) {
    tern_op op = u8_op(values, values, 4);
    op.recipe = "none(int:bits=8)";
    EXPECT_STREQ(submit(function, op).entry.recipe, "none(int:bits=8)");
  }
  tern_op op = u8_op(values, nullptr, 4);
  op.recipe = "";
  tern_ticket ticket = 0;
  EXPECT_EQ(tern_send(group, &op, &ticket), TERN_ERR_BAD_RECIPE);
  EXPECT_STREQ(tern_error_detail(), "an operation's recipe must have 1..47 bytes");
}

TEST_F(Passing, RefusesWhatHasNoMeaning) {
  char values[4] = {};
  const auto refused = [&](Submit function, auto change) {
    tern_op op = u8_op(values, values, 4);
    change(op);
    return refusal(function, op);
  };
  const std::string send_peer = "the peer of a send must be 0..size-1";
  EXPECT_EQ(refused(tern_send, [](tern_op& op) { op.peer = 3; }), send_peer);
  EXPECT_EQ(refused(tern_send, [](tern_op& op) { op.peer = TERN_ANY_SOURCE; }), send_peer);
  EXPECT_EQ(refused(tern_recv, [](tern_op& op) { op.peer = 3; }),
            "the peer of a recv must be 0..size-1, or any source");
  EXPECT_EQ(refused(tern_send, [](tern_op& op) { op.input = nullptr; }),
            "the input of a send is NULL");
  EXPECT_EQ(refused(tern_recv, [](tern_op& op) { op.output = nullptr; }),
            "the output of a recv is NULL");
  EXPECT_EQ(refused(tern_send, [](tern_op& op) { op.prescale = 2.0f; }),
            "prescale is for reductions only");
  tern_received received = TERN_RECEIVED_INIT;
  EXPECT_EQ(refused(tern_send, [&](tern_op& op) { op.received = &received; }),
            "received is for an operation that receives from one rank");
  EXPECT_EQ(refused(tern_all_reduce, [&](tern_op& op) { op.received = &received; }),
            "received is for an operation that receives from one rank");
  received.struct_size = 3;
  EXPECT_NE(refused(tern_recv, [&](tern_op& op) { op.received = &received; })
                .find("received.struct_size is 3"),
            std::string::npos);
  tern_op op = u8_op(values, values, 0);
  op.tensor = declare("w", 4);
  EXPECT_EQ(refusal(tern_send, op), "the operation takes no tensor");
}

TEST_F(Passing, ARecvIsToldWhoSentAndWhatCameAndKeepsTheRest) {
  std::vector<char> outside(100, 'o');
  tern_received received = TERN_RECEIVED_INIT;
  tern_op op = u8_op(nullptr, outside.data(), outside.size());
  op.peer = TERN_ANY_SOURCE;
  op.received = &received;
  const Seen recv = submit(tern_recv, op);
  EXPECT_EQ(tern_test(client, ticket_), TERN_ERR_TIMEOUT);
  EXPECT_EQ(received.count, 0u);
  complete(recv, 2, 60);
  ASSERT_EQ(tern_wait(client, ticket_, TERN_FOREVER), TERN_OK);
  EXPECT_EQ(received.source, 2);
  EXPECT_EQ(received.count, 60u);
  EXPECT_EQ(outside[59], '\0') << "what the arena had";
  EXPECT_EQ(outside[60], 'o') << "nothing has come for it";
  EXPECT_EQ(outside[99], 'o');
}

TEST_F(Passing, ADaemonThatClaimsMoreThanThereIsRoomForWritesNothingBeyond) {
  std::vector<char> outside(100, 'o');
  tern_op op = u8_op(nullptr, outside.data(), 50);
  complete(submit(tern_recv, op), 0, ~std::uint64_t{0});
  ASSERT_EQ(tern_wait(client, ticket_, TERN_FOREVER), TERN_OK);
  EXPECT_EQ(outside[50], 'o');
}

TEST_F(Passing, SoManyAreInFlightBesideTheOpsOfTheGroup) {
  tern_op op = u8_op(connection.allocate<char>(4), nullptr, 4);
  for (std::uint32_t i = 0; i < plan::kMaxPassing; ++i) {
    ASSERT_EQ(tern_send(group, &op, &ticket_), TERN_OK) << tern_error_detail();
    daemon.await_entries(++submitted_);
  }
  EXPECT_EQ(tern_send(group, &op, &ticket_), TERN_ERR_WOULD_BLOCK);
  EXPECT_STREQ(tern_error_detail(), "256 sends and recvs of the group are in flight");
  const tern_ticket reduced = submit_any();
  daemon.await_entries(++submitted_);
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, reduced, TERN_FOREVER), TERN_OK);
  EXPECT_EQ(tern_send(group, &op, &ticket_), TERN_OK);
}

TEST_F(Passing, TheyAreNoOpsOfTheGroup) {
  tern_op op = u8_op(connection.allocate<char>(4), nullptr, 4);
  (void)submit(tern_send, op);
  const tern_ticket send = ticket_;
  const tern_ticket first = submit_any();
  daemon.await_entries(++submitted_);
  EXPECT_EQ(daemon.seen().back().entry.sequence, 0u) << "sends are not counted";
  daemon.complete_held_on_lane(0, Errc::ok, "");
  daemon.complete_held_on_lane(1, Errc::ok, "");
  EXPECT_EQ(tern_wait(client, send, TERN_FOREVER), TERN_OK);
  EXPECT_EQ(tern_wait(client, first, TERN_FOREVER), TERN_OK);
  (void)submit(tern_send, op);
  daemon.set_ops(Ops::complete);
  ASSERT_TERN_OK(tern_group_leave(group));
  join();
  EXPECT_EQ(daemon.last_join().completed_ops, 1u) << "the all_reduce alone";
}

}  // namespace
}  // namespace tern::testing
