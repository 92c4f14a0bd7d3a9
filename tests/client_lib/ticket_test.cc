#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <iterator>
#include <thread>

#include "tests/client_lib/fixture.h"

namespace tern::testing {
namespace {

class Tickets : public ClientTest {};

TEST_F(Tickets, AreUnknownBeforeAndAfter) {
  EXPECT_EQ(tern_wait(client, 0, 0), TERN_ERR_UNKNOWN_TICKET);
  EXPECT_EQ(tern_test(client, 12345), TERN_ERR_UNKNOWN_TICKET);
  const tern_ticket ticket = submit_any();
  EXPECT_NE(ticket, 0u);
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK);
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_ERR_UNKNOWN_TICKET);
  EXPECT_EQ(tern_cancel(client, ticket), TERN_ERR_UNKNOWN_TICKET);
  EXPECT_NE(submit_any(), ticket);
}

TEST_F(Tickets, StayWhenAWaitTimesOut) {
  daemon.set_ops(Ops::hold);
  const tern_ticket ticket = submit_any();
  EXPECT_EQ(tern_test(client, ticket), TERN_ERR_TIMEOUT);
  EXPECT_EQ(tern_wait(client, ticket, 1), TERN_ERR_TIMEOUT);
  EXPECT_EQ(tern_wait(client, ticket, -2), TERN_ERR_INVALID_ARGUMENT);
  daemon.await_entries(1);
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK);
}

TEST_F(Tickets, FailWithTheDaemonsReason) {
  daemon.set_ops(Ops::fail);
  EXPECT_EQ(tern_wait(client, submit_any(), TERN_FOREVER), TERN_ERR_MISMATCH);
  EXPECT_STREQ(tern_error_detail(), "rank 1 said f32, rank 0 said f16");
  EXPECT_EQ(tern_test(client, 0), TERN_ERR_UNKNOWN_TICKET);
  EXPECT_STRNE(tern_error_detail(), "rank 1 said f32, rank 0 said f16");
}

TEST_F(Tickets, EndWhenAllLanesHaveAndKeepTheFirstFailure) {
  daemon.set_ops(Ops::hold);
  const tern_ticket ticket = submit_any(3000);
  daemon.await_entries(2);
  daemon.complete_held_on_lane(1, Errc::peer_lost, "node 4 is gone");
  EXPECT_EQ(tern_wait(client, ticket, 1), TERN_ERR_TIMEOUT);
  daemon.complete_held_on_lane(0, Errc::cancelled, "later");
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_ERR_PEER_LOST);
  EXPECT_STREQ(tern_error_detail(), "node 4 is gone");
}

TEST_F(Tickets, IgnoreCompletionsThatAreNotTheirs) {
  daemon.set_ops(Ops::hold);
  const tern_ticket ticket = submit_any(3000);
  daemon.await_entries(2);
  shm::CompletionEntry entry{};
  for (const std::uint64_t number :
       {std::uint64_t{0}, ~std::uint64_t{0}, ticket + 1, ticket + (std::uint64_t{1} << 16)}) {
    entry.ticket = number;
    daemon.inject(0, entry);
  }
  entry.ticket = ticket;
  daemon.inject(0, entry);
  daemon.inject(0, entry);
  EXPECT_EQ(tern_test(client, ticket), TERN_ERR_TIMEOUT);
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK);
}

TEST_F(Tickets, AStrangeStatusIsInternalAndItsTextIsCut) {
  daemon.set_ops(Ops::hold);
  const tern_ticket ticket = submit_any();
  daemon.await_entries(1);
  shm::CompletionEntry entry{};
  entry.ticket = ticket;
  entry.status = 4711;
  std::memset(entry.detail, 'x', sizeof entry.detail);
  daemon.inject(0, entry);
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_ERR_INTERNAL);
  EXPECT_EQ(std::strlen(tern_error_detail()), sizeof entry.detail);
}

TEST_F(Tickets, CancelEndsTheOpOnAllItsLanes) {
  daemon.set_ops(Ops::hold);
  const tern_ticket ticket = submit_any(3000);
  daemon.await_entries(2);
  EXPECT_EQ(tern_cancel(client, ticket), TERN_OK);
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_ERR_CANCELLED);
  EXPECT_STREQ(tern_error_detail(), "cancelled by rank 0");
}

TEST_F(Tickets, CancelOfAnEndedOpChangesNothing) {
  const tern_ticket ticket = submit_any();
  while (tern_cancel(client, ticket) == TERN_OK) {
    if (daemon.seen().size() >= 1) break;
  }
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK);
}

TEST_F(Tickets, WaitAnyTellsWhich) {
  daemon.set_ops(Ops::hold);
  tern_ticket tickets[3] = {submit_any(), submit_any(), submit_any()};
  std::size_t index = 99;
  EXPECT_EQ(tern_wait_any(client, tickets, 3, 1, &index), TERN_ERR_TIMEOUT);
  daemon.await_entries(3);
  EXPECT_EQ(tern_cancel(client, tickets[1]), TERN_OK);
  EXPECT_EQ(tern_wait_any(client, tickets, 3, TERN_FOREVER, &index), TERN_ERR_CANCELLED);
  EXPECT_EQ(index, 1u);
  EXPECT_EQ(tern_wait_any(client, tickets, 3, TERN_FOREVER, &index), TERN_ERR_UNKNOWN_TICKET);
  EXPECT_EQ(index, 1u);
  EXPECT_EQ(tern_wait_any(client, tickets, 0, 0, &index), TERN_ERR_INVALID_ARGUMENT);
}

TEST_F(Tickets, RunOutWithWouldBlockAndNothingChanged) {
  daemon.set_ops(Ops::hold);
  float* values = connection.allocate<float>(4);
  tern_op op = f32_op(values, values, 4);
  std::vector<tern_ticket> tickets;
  tern_ticket ticket = 0;
  tern_status status = TERN_OK;
  while ((status = tern_all_reduce(group, &op, &ticket)) == TERN_OK) tickets.push_back(ticket);
  EXPECT_EQ(status, TERN_ERR_WOULD_BLOCK);
  EXPECT_EQ(ticket, 0u);
  EXPECT_EQ(tickets.size(), 512u);
  daemon.await_entries(512);
  daemon.complete_held();
  for (const tern_ticket t : tickets) ASSERT_EQ(tern_wait(client, t, TERN_FOREVER), TERN_OK);
  daemon.set_ops(Ops::complete);
  ASSERT_TERN_OK(tern_all_reduce(group, &op, &ticket));
  ASSERT_TERN_OK(tern_wait(client, ticket, TERN_FOREVER));
  EXPECT_EQ(daemon.seen().back().entry.sequence, 512u);
}

class FewInFlight : public ClientTest {
 protected:
  FewInFlight() : ClientTest({.max_ops_in_flight = 3}) {}
};

TEST_F(FewInFlight, TheGroupsLimitHolds) {
  daemon.set_ops(Ops::hold);
  const tern_ticket first = submit_any();
  submit_any();
  submit_any();
  float values[4] = {};
  tern_op op = f32_op(values, values, 4);
  tern_ticket ticket = 0;
  EXPECT_EQ(tern_all_reduce(group, &op, &ticket), TERN_ERR_WOULD_BLOCK);
  daemon.await_entries(3);
  daemon.complete_held();
  // Ended ops make room before anybody has asked for them.
  EXPECT_EQ(tern_all_reduce(group, &op, &ticket), TERN_OK);
  EXPECT_EQ(tern_wait(client, first, TERN_FOREVER), TERN_OK);
}

TEST_F(Tickets, AFullSubmissionRingIsWouldBlock) {
  daemon.set_ops(Ops::hold);
  const tern_ticket ticket = submit_any();
  daemon.await_entries(1);
  daemon.set_paused(true);
  tern_status status = TERN_OK;
  for (int i = 0; i < 1000 && status == TERN_OK; ++i) status = tern_cancel(client, ticket);
  EXPECT_EQ(status, TERN_ERR_WOULD_BLOCK);
  float values[4] = {};
  tern_op op = f32_op(values, values, 4);
  tern_ticket other = 0;
  // One op of the two goes to the other lane, whose ring has room.
  int blocked = 0;
  for (int i = 0; i < 2; ++i) {
    blocked += tern_all_reduce(group, &op, &other) == TERN_ERR_WOULD_BLOCK ? 1 : 0;
  }
  EXPECT_EQ(blocked, 1);
  daemon.set_paused(false);
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_ERR_CANCELLED);
}

TEST_F(Tickets, TwoThreadsMayWaitForDifferentOnes) {
  daemon.set_ops(Ops::hold);
  const tern_ticket tickets[2] = {submit_any(), submit_any()};
  std::vector<std::thread> threads;
  threads.reserve(std::size(tickets));
  tern_status results[2] = {TERN_ERR_INTERNAL, TERN_ERR_INTERNAL};
  for (std::size_t i = 0; i < std::size(tickets); ++i) {
    threads.emplace_back([&, i] { results[i] = tern_wait(client, tickets[i], TERN_FOREVER); });
  }
  daemon.await_entries(2);
  daemon.complete_held();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results[0], TERN_OK);
  EXPECT_EQ(results[1], TERN_OK);
}

class Spinning : public ClientTest {
 protected:
  Spinning() : ClientTest({.spin_ns = 50'000}) {}
};

TEST_F(Spinning, EndsAlike) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(tern_wait(client, submit_any(), TERN_FOREVER), TERN_OK);
  }
}

class LongSpinning : public ClientTest {
 protected:
  LongSpinning() : ClientTest({.spin_ns = 4'000'000'000}) {}
};

// A thread that spins does not give up its core by itself; one that sleeps does.
TEST_F(LongSpinning, EndsWhenCoresBecomeFew) {
  daemon.set_ops(Ops::hold);
  const tern_ticket ticket = submit_any();
  daemon.set_cores_are_few(true);
  const auto sleeps = [] {
    rusage usage{};
    EXPECT_EQ(::getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_nvcsw;
  };
  const long before = sleeps();
  EXPECT_EQ(tern_wait(client, ticket, 50), TERN_ERR_TIMEOUT);
  EXPECT_GT(sleeps(), before);
  daemon.complete_held();
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK);
}

}  // namespace
}  // namespace tern::testing
