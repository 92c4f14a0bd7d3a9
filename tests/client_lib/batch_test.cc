#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/include/tern/tern.hpp"
#include "tests/client_lib/fixture.h"

namespace tern::testing {
namespace batch_test {
namespace {

class Batches : public ClientTest {
 protected:
  explicit Batches(FakeOptions options = {}) : ClientTest(std::move(options)) {}

  // An all_reduce in place on arena memory of its own, of one chunk.
  void add(std::uint64_t count = 16) {
    float* values = connection.allocate<float>(count);
    ops.push_back(f32_op(values, values, count));
    kinds.push_back(TERN_OP_ALL_REDUCE);
  }

  tern_status submit(tern_ticket* one, tern_ticket* tickets = nullptr) {
    list.clear();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      list.push_back({kinds[i], 0, kinds[i] == TERN_OP_BARRIER ? nullptr : &ops[i]});
    }
    return submit_list(one, tickets);
  }
  tern_status submit_list(tern_ticket* one, tern_ticket* tickets = nullptr) {
    tern_batch batch = TERN_BATCH_INIT;
    batch.ops = list.data();
    batch.count = list.size();
    batch.tickets = tickets;
    return tern_submit_batch(group, &batch, one);
  }

  // Nothing has come to the daemon, and no sequence was used up.
  void expect_nothing_submitted() {
    EXPECT_EQ(daemon.seen().size(), 0u);
    tern_wait(client, submit_any(), TERN_FOREVER);
    ASSERT_EQ(daemon.seen().size(), 1u);
    EXPECT_EQ(daemon.seen()[0].entry.sequence, 0u);
  }

  std::vector<tern_op> ops;
  std::vector<tern_op_kind> kinds;
  std::vector<tern_batch_op> list;
  tern_ticket ticket = 0;
};

TEST_F(Batches, EveryOpOfTheListRunsInItsOrder) {
  std::vector<float> outside{1, 2, 3, 4};
  std::vector<float> copied(4);
  add();
  ops.push_back(f32_op(outside.data(), copied.data(), 4));
  kinds.push_back(TERN_OP_BROADCAST);
  ops.push_back({});
  kinds.push_back(TERN_OP_BARRIER);
  add(5000);
  ASSERT_TERN_OK(submit(&ticket));
  ASSERT_TERN_OK(tern_wait(client, ticket, TERN_FOREVER));
  EXPECT_EQ(copied, outside);
  EXPECT_EQ(tern_test(client, ticket), TERN_ERR_UNKNOWN_TICKET);
  std::vector<std::vector<int>> lanes(2);
  for (const Seen& seen : daemon.seen()) {
    lanes[seen.lane].push_back(static_cast<int>(seen.entry.sequence) * 100 + seen.entry.kind);
  }
  EXPECT_EQ(lanes[0], (std::vector<int>{1, 203, 301}));
  EXPECT_EQ(lanes[1], (std::vector<int>{102, 301}));
}

TEST_F(Batches, OneTicketEndsWithTheLastOp) {
  daemon.set_ops(Ops::hold);
  for (int i = 0; i < 4; ++i) add();
  ASSERT_TERN_OK(submit(&ticket));
  daemon.await_entries(4);
  daemon.complete_held_on_lane(1, Errc::ok, "");
  EXPECT_EQ(tern_wait(client, ticket, 1), TERN_ERR_TIMEOUT);
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK);
}

TEST_F(Batches, TheFirstFailureOfTheListIsTold) {
  daemon.set_ops(Ops::hold);
  for (int i = 0; i < 4; ++i) add();
  ASSERT_TERN_OK(submit(&ticket));
  daemon.await_entries(4);
  daemon.complete_held_on_lane(1, Errc::mismatch, "rank 1 said f16");
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_ERR_MISMATCH);
  EXPECT_STREQ(tern_error_detail(), "operation 1 of the batch: rank 1 said f16");
}

TEST_F(Batches, AnOpThatSucceedsGivesItsOutputBesideOneThatFails) {
  daemon.set_ops(Ops::hold);
  std::vector<float> input{5, 6};
  std::vector<float> outputs[2] = {std::vector<float>(2), std::vector<float>(2)};
  for (auto& output : outputs) {
    ops.push_back(f32_op(input.data(), output.data(), 2));
    kinds.push_back(TERN_OP_ALL_REDUCE);
  }
  ASSERT_TERN_OK(submit(&ticket));
  daemon.await_entries(2);
  daemon.complete_held_on_lane(0, Errc::mismatch, "no");
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_ERR_MISMATCH);
  EXPECT_EQ(outputs[0], std::vector<float>(2));
  EXPECT_EQ(outputs[1], input);
}

TEST_F(Batches, TicketsAreForEachWhereTheyAreAskedFor) {
  daemon.set_ops(Ops::hold);
  for (int i = 0; i < 3; ++i) add();
  tern_ticket tickets[3] = {};
  ASSERT_TERN_OK(submit(nullptr, tickets));
  daemon.await_entries(3);
  daemon.complete_held_on_lane(1, Errc::ok, "");
  std::size_t index = 9;
  EXPECT_EQ(tern_wait_any(client, tickets, 3, TERN_FOREVER, &index), TERN_OK);
  EXPECT_EQ(index, 1u);
  EXPECT_EQ(tern_test(client, tickets[0]), TERN_ERR_TIMEOUT);
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, tickets[2], TERN_FOREVER), TERN_OK);
  EXPECT_EQ(tern_wait(client, tickets[0], TERN_FOREVER), TERN_OK);
}

TEST_F(Batches, OpsOfOneTicketHaveNoneThatAProgramCouldUse) {
  daemon.set_ops(Ops::hold);
  for (int i = 0; i < 2; ++i) add();
  ASSERT_TERN_OK(submit(&ticket));
  daemon.await_entries(2);
  const std::uint64_t other = daemon.seen()[0].entry.ticket == ticket
                                  ? daemon.seen()[1].entry.ticket
                                  : daemon.seen()[0].entry.ticket;
  EXPECT_EQ(tern_test(client, other), TERN_ERR_UNKNOWN_TICKET);
  EXPECT_EQ(tern_cancel(client, other), TERN_ERR_UNKNOWN_TICKET);
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK);
}

TEST_F(Batches, CancelIsForAllThatRun) {
  daemon.set_ops(Ops::hold);
  for (int i = 0; i < 4; ++i) add();
  ASSERT_TERN_OK(submit(&ticket));
  daemon.await_entries(4);
  daemon.complete_held_on_lane(0, Errc::ok, "");
  EXPECT_EQ(tern_cancel(client, ticket), TERN_OK);
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_ERR_CANCELLED);
  EXPECT_EQ(daemon.seen().size(), 6u) << "four ops, and the two that ran were cancelled";
}

TEST_F(Batches, OneBadOpRefusesAll) {
  add();
  add();
  kinds[1] = TERN_OP_REDUCE;
  ops[1].root = 7;
  EXPECT_EQ(submit(&ticket), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_STREQ(tern_error_detail(), "operation 1 of the batch (reduce): root must be 0..size-1");
  EXPECT_EQ(ticket, 0u);
  expect_nothing_submitted();
}

TEST_F(Batches, OneThatNeedsTooMuchMemoryRefusesAll) {
  std::vector<float> large(kTestArenaBytes / 4 + 1);
  add();
  ops.push_back(f32_op(large.data(), large.data(), large.size()));
  kinds.push_back(TERN_OP_ALL_REDUCE);
  daemon.set_answers(Answers::refuse);
  EXPECT_EQ(submit(&ticket), TERN_ERR_OUT_OF_MEMORY);
  EXPECT_EQ(std::string(tern_error_detail()).find("operation 1 of the batch (all_reduce): no room"),
            0u);
  expect_nothing_submitted();
}

TEST_F(Batches, WhatHasNoMeaningIsRefused) {
  add();
  const tern_batch_op good{TERN_OP_ALL_REDUCE, 0, ops.data()};
  const auto refused = [&](tern_batch_op op, const std::string& why) {
    list = {good, op};
    EXPECT_EQ(submit_list(&ticket), TERN_ERR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(tern_error_detail()).find(why), std::string::npos) << tern_error_detail();
  };
  for (const std::uint32_t kind : {0u, 4u, 16u, 0x10001u, ~0u}) {
    tern_batch_op op = good;
    std::memcpy(&op.kind, &kind, sizeof kind);
    refused(op, "is not one of tern_op_kind");
  }
  refused({TERN_OP_ALL_REDUCE, 0, nullptr}, "op is NULL");
  refused({TERN_OP_BARRIER, 0, ops.data()}, "op must be NULL");
  refused({TERN_OP_ALL_REDUCE, 1, ops.data()}, "reserved must be 0");
  list.clear();
  EXPECT_EQ(submit_list(&ticket), TERN_ERR_INVALID_ARGUMENT);
  list = {good};
  EXPECT_EQ(submit_list(nullptr), TERN_ERR_INVALID_ARGUMENT);
  tern_batch batch = TERN_BATCH_INIT;
  batch.struct_size = 8;
  EXPECT_EQ(tern_submit_batch(group, &batch, &ticket), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_submit_batch(group, nullptr, &ticket), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_submit_batch(nullptr, &batch, &ticket), TERN_ERR_INVALID_ARGUMENT);
  expect_nothing_submitted();
}

TEST_F(Batches, OutputsDoNotOverlap) {
  float* values = connection.allocate<float>(64);
  const auto both = [&](const tern_op& first, const tern_op& second) {
    ops = {first, second};
    kinds.assign(2, TERN_OP_ALL_REDUCE);
    const tern_status status = submit(&ticket);
    if (status == TERN_OK) (void)tern_wait(client, ticket, TERN_FOREVER);
    return status;
  };
  EXPECT_EQ(both(f32_op(values, values, 16), f32_op(values + 15, values + 15, 16)),
            TERN_ERR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tern_error_detail()).find("of operation 0 overlap"), std::string::npos);
  EXPECT_EQ(both(f32_op(values, values + 16, 16), f32_op(values + 16, values + 32, 16)),
            TERN_ERR_INVALID_ARGUMENT)
      << "the second reads what the first writes";
  EXPECT_EQ(both(f32_op(values, values + 16, 16), f32_op(values, values + 32, 16)), TERN_OK)
      << "both may read the same";
  EXPECT_EQ(both(f32_op(values, values, 16), f32_op(values + 16, values + 16, 16)), TERN_OK);
}

class SmallGroups : public Batches {
 protected:
  SmallGroups() : Batches({.max_ops_in_flight = 3}) {}
};

TEST_F(SmallGroups, ALargerBatchNamesTheLimit) {
  for (int i = 0; i < 4; ++i) add();
  EXPECT_EQ(submit(&ticket), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tern_error_detail()).find("max_ops_in_flight is 3"), std::string::npos);
  ops.pop_back();
  EXPECT_EQ(submit(&ticket), TERN_OK);
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK);
}

TEST_F(SmallGroups, ABatchCountsAsItsOps) {
  daemon.set_ops(Ops::hold);
  const tern_ticket single = submit_any();
  for (int i = 0; i < 3; ++i) add();
  EXPECT_EQ(submit(&ticket), TERN_ERR_WOULD_BLOCK);
  daemon.await_entries(1);
  EXPECT_EQ(daemon.seen().size(), 1u);
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, single, TERN_FOREVER), TERN_OK);
  EXPECT_EQ(submit(&ticket), TERN_OK);
  daemon.await_entries(4);
  EXPECT_EQ(daemon.seen()[1].entry.sequence + daemon.seen()[2].entry.sequence +
                daemon.seen()[3].entry.sequence,
            1u + 2u + 3u)
      << "the refused batch used no sequence up";
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK);
}

TEST_F(Batches, AFullRingRefusesAll) {
  daemon.set_paused(true);
  std::vector<tern_ticket> singles;
  singles.reserve(300);
  for (int i = 0; i < 300; ++i) singles.push_back(submit_any(4));
  for (int round = 0; round < 2; ++round) {
    for (const tern_ticket single : singles) ASSERT_EQ(tern_cancel(client, single), TERN_OK);
  }
  for (int i = 0; i < 100; ++i) add(4);
  EXPECT_EQ(submit(&ticket), TERN_ERR_WOULD_BLOCK) << "450 of 512 entries wait in each ring";
  EXPECT_STREQ(tern_error_detail(), "a submission ring is full; ternd is behind");
  daemon.set_paused(false);
  for (const tern_ticket single : singles) (void)tern_wait(client, single, TERN_FOREVER);
  ASSERT_EQ(submit(&ticket), TERN_OK);
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK);
}

TEST_F(Batches, EndWithTheDaemon) {
  daemon.set_ops(Ops::hold);
  for (int i = 0; i < 3; ++i) add();
  ASSERT_TERN_OK(submit(&ticket));
  daemon.await_entries(3);
  daemon.die();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_ERR_DAEMON_LOST);
}

TEST_F(Batches, CppBatchesAreSubmittedAgainAndAgain) {
  tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
  const std::string path = daemon.path();
  options.socket_path = path.c_str();
  options.arena_bytes = 1 << 20;
  tern::Client own(options);
  tern::Group own_group = own.join(own.mint(), 0, 1);
  const std::span<float> values = own.allocate<float>(8);
  tern::Tensor tensor = own_group.declare<float>("t", 8);
  tern::Batch batch;
  batch.add_all_reduce(values.first(4)).add_all_reduce(values.last(4)).add_barrier();
  EXPECT_EQ(batch.size(), 3u);
  for (int i = 0; i < 3; ++i) own_group.submit(batch).wait();
  batch.add_all_reduce(tensor, values);
  EXPECT_THROW((void)own_group.submit(batch), tern::Failure);
  EXPECT_EQ(daemon.seen().size(), 9u);
}

}  // namespace
}  // namespace batch_test
}  // namespace tern::testing
