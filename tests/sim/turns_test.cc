// Every test of the simulator fails by a turn that takes too long, because the world looks at each.
// Here system calls are slow, to show that it does.

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <latch>
#include <nlohmann/json.hpp>
#include <vector>

#include "cluster.h"
#include "daemon/membership/group_id.h"

namespace tern::sim {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

std::uint64_t counter(World& world, const std::string& name) {
  return world.daemon(0).conductor->reports().counters()[name]["value"].get<std::uint64_t>();
}

// A connected client that says goodbye, and is gone.
void lose_client(World& world) {
  Client& client = world.connect(0);
  EXPECT_TRUE(world.run_until([&] { return client.ready(); }));
  client.goodbye();
  EXPECT_TRUE(world.run_until([&] { return client.lost(); }));
}

TEST(Turns, OfAConductorThatClosesASlowSocketAreNamed) {
  World world(1);
  world.add_daemon({});
  world.system_calls.close = [&] { world.clock.advance_ns(25 * kMs); };
  EXPECT_NONFATAL_FAILURE(lose_client(world), "conductor turn of 25 ms in on_client_dropped");
  EXPECT_EQ(counter(world, "conductor_turns_over_budget"), 1u);
  EXPECT_GE(counter(world, "conductor_longest_turn_ns"), 25 * kMs);
  const auto rows = world.daemon(0).conductor->reports().counters();
  EXPECT_EQ(rows["conductor_longest_turn_ns"]["step"], "on_client_dropped");
}

// As the daemon's own client port does it (daemon/client_server.cc): whoever closes may wait for as
// long as the client likes, and the conductor's turns are over meanwhile.
TEST(Turns, OfAConductorThatLeavesASlowSocketToTheDisposalAreShort) {
  std::latch peer_is_gone(1);
  daemon::Disposal disposal;
  {
    World world(1);
    world.add_daemon({});
    world.system_calls.close = [&] {
      disposal.take(0, [&peer_is_gone] {
        peer_is_gone.wait();
        return false;
      });
    };
    lose_client(world);
    EXPECT_EQ(disposal.count(), 1u) << "it is being closed still";
    EXPECT_EQ(counter(world, "conductor_turns_over_budget"), 0u);
  }
  peer_is_gone.count_down();
}

TEST(Turns, WithinTheBudgetAreCountedAndNotTold) {
  World world(1);
  world.add_daemon({});
  world.system_calls.close = [&] { world.clock.advance_ns(15 * kMs); };
  lose_client(world);
  EXPECT_EQ(counter(world, "conductor_turns_20ms"), 1u);
  EXPECT_EQ(counter(world, "conductor_turns_over_budget"), 0u);
}

// What a group of many ranks makes the conductor do is no more than a turn has room for.
TEST(Turns, OfAConductorWithManyRanksHaveFewSlowSystemCalls) {
  Cluster cluster({32, 32});
  cluster.world.system_calls.reply_ns = cluster.world.system_calls.wake_ns = 100'000;
  cluster.join();
  cluster.reduce(all_reduce(DType::f32, 100), inputs_of(DType::f32, 100, 64));
  cluster.leave_all();
  EXPECT_GT(counter(cluster.world, "conductor_longest_turn_ns"), kMs) << "nothing was slow";
}

// Who fills his ring at once keeps nobody waiting who has one entry.
TEST(Turns, OfALaneTakeSoManyEntriesOfAClientAndThoseOfOthers) {
  constexpr std::size_t kEntries = 32;  // of each client
  Cluster cluster({2});
  cluster.join();
  Client& flood = *cluster.ranks[0];
  Client& other = *cluster.ranks[1];
  const OpRequest request = all_reduce(DType::f32, 4);
  constexpr std::uint64_t kUnknownTensor = 77;
  std::vector<std::uint64_t> tickets;
  for (std::uint64_t use = 0; use < 3 * kEntries; ++use) {
    tickets.push_back(flood.submit_as(request, kUnknownTensor, use, false));
  }
  const std::uint64_t ticket = other.submit_as(request, kUnknownTensor, 0, false);
  const auto ended = [&] {
    flood.poll();
    return std::count_if(tickets.begin(), tickets.end(),
                         [&](std::uint64_t one) { return flood.done(one); });
  };
  for (std::size_t turn = 1; turn <= 3; ++turn) {
    cluster.world.daemon(0).step(1);
    EXPECT_EQ(static_cast<std::size_t>(ended()), turn * kEntries);
    other.poll();
    EXPECT_TRUE(other.done(ticket));
  }
}

// What a rank has submitted before it leaves counts, and no more: while others submit without end,
// a lane that took all there is would not come back.
TEST(Turns, OfALaneTakeNoMoreEntriesBecauseARankLeaves) {
  constexpr std::size_t kEntries = 32;  // of each client
  Cluster cluster({3});
  cluster.join();
  Client& flood = *cluster.ranks[0];
  Client& leaving = *cluster.ranks[1];
  const OpRequest request = all_reduce(DType::f32, 4);
  constexpr std::uint64_t kUnknownTensor = 77;
  std::vector<std::uint64_t> of_flood, of_leaving;
  for (std::uint64_t use = 0; use < 3 * kEntries; ++use) {
    of_flood.push_back(flood.submit_as(request, kUnknownTensor, use, false));
    of_leaving.push_back(leaving.submit_as(request, kUnknownTensor, use, false));
  }
  const std::uint64_t left = leaving.leave();
  const auto ended = [](Client& client, const std::vector<std::uint64_t>& tickets) {
    client.poll();
    return static_cast<std::size_t>(std::count_if(
        tickets.begin(), tickets.end(), [&](std::uint64_t one) { return client.done(one); }));
  };
  for (std::size_t turn = 1; turn <= 3; ++turn) {
    EXPECT_FALSE(leaving.answered(left)) << "what it has submitted comes first";
    cluster.world.daemon(0).step(1);
    EXPECT_EQ(ended(flood, of_flood), turn * kEntries);
    EXPECT_EQ(ended(leaving, of_leaving), turn * kEntries);
    cluster.world.daemon(0).step(0);
  }
  EXPECT_TRUE(leaving.answered(left));
  EXPECT_TRUE(leaving.status_of(left).status == Errc::ok);
}

// Another node refuses a thousand joins at once, and to tell a client takes 70 us.
TEST(Turns, OfAConductorWithAThousandJoinsAreShortAndNobodyStarves) {
  World world(1);
  DaemonShape shape;
  shape.adjust = [](daemon::ConductorSettings& settings) {
    settings.limits.max_groups = settings.limits.max_groups_per_user = 4096;
    settings.limits.max_ops_in_flight_per_user = 1 << 20;
  };
  for (int node = 0; node < 3; ++node) world.add_daemon(shape);
  world.system_calls.reply_ns = 70'000;
  constexpr std::uint32_t kClients = 16;
  std::vector<std::pair<Client*, std::uint64_t>> joins;
  for (std::uint32_t i = 0; i < kClients; ++i) {
    Client& client = world.connect(0, "flood", 1 << 20, i + 1);
    ASSERT_TRUE(world.run_until([&] { return client.ready(); }));
    for (int group = 0; group < 63; ++group) {
      const auto id = daemon::mint_group_id("node1", 7000);  // of which it does not know
      joins.emplace_back(&client, client.join(daemon::format_group_id(*id), 0, 2));
    }
  }
  Client& other = world.connect(0, "other", 1 << 20, kClients + 1);
  Client& far = world.connect(2, "other", 1 << 20, kClients + 1);
  ASSERT_TRUE(world.run_until([&] { return other.ready() && far.ready(); }));
  const auto answered = [&] {
    return std::count_if(joins.begin(), joins.end(),
                         [](const auto& one) { return one.first->answered(one.second); });
  };
  ASSERT_TRUE(world.run_until([&] { return answered() > 0; }));
  const auto minted = far.mint();
  ASSERT_TRUE(world.run_until([&] { return far.answered(minted); }));
  const std::string id = far.answer<shm::GroupMintedPacket>(minted)->id;
  const auto mine = other.join(id, 0, 2), yours = far.join(id, 1, 2);
  ASSERT_TRUE(world.run_until([&] { return other.answered(mine) && far.answered(yours); }));
  EXPECT_EQ(other.status_of(mine).status, Errc::ok);
  EXPECT_LT(answered(), 1000) << "it waited for all others";
  ASSERT_TRUE(world.run_until([&] { return answered() == std::ssize(joins); }));
  for (const auto& [client, request] : joins) {
    EXPECT_NE(client->status_of(request).status, Errc::ok);
  }
  EXPECT_EQ(counter(world, "conductor_turns_over_budget"), 0u);
  EXPECT_GT(counter(world, "conductor_longest_turn_ns"), kMs) << "nothing was slow";
}

TEST(Turns, OfALaneWhoseCarrierIsSlowAreNamed) {
  Cluster cluster({1, 1});
  cluster.join();
  bool is_slow = true;
  cluster.world.tap = [&](const net::OutgoingFrame&) {
    if (std::exchange(is_slow, false)) cluster.world.clock.advance_ns(11 * kMs);
  };
  const auto inputs = inputs_of(DType::f32, 100, 2);
  EXPECT_NONFATAL_FAILURE(cluster.reduce(all_reduce(DType::f32, 100), inputs),
                          "lane 0 turn of 11 ms in entries and chunks");
  std::uint64_t too_long = 0;
  for (std::size_t node = 0; node < 2; ++node) {
    const auto rows = cluster.world.daemon(node).conductor->reports().counters();
    too_long += rows["lane_turns_over_budget"]["value"].get<std::uint64_t>();
  }
  EXPECT_EQ(too_long, 1u);
}

}  // namespace
}  // namespace tern::sim
