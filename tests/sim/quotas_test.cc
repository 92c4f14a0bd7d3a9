// What one user may take, and what that does to others.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cluster.h"
#include "tests/daemon/control/all_rows.h"

namespace tern::sim {
namespace {

using daemon::ConductorSettings;
using daemon::Scope;

constexpr std::uint32_t kAlice = 1001, kBob = 1002;

// Daemons, and clients of two users.
class Quotas : public ::testing::Test {
 protected:
  void add_daemon(std::function<void(ConductorSettings&)> adjust = {}) {
    DaemonShape shape;
    shape.adjust = std::move(adjust);
    world.add_daemon(shape);
  }
  Client& connect(std::size_t node, std::uint32_t user) {
    Client& client = world.connect(node, "job", 1 << 20, user);
    EXPECT_TRUE(world.run_until([&] { return client.ready(); }));
    return client;
  }
  std::string mint(Client& client) {
    const std::uint64_t request = client.mint();
    EXPECT_TRUE(world.run_until([&] { return client.answered(request); }));
    return client.answer<shm::GroupMintedPacket>(request)->id;
  }
  OpResult await(Client& client, std::uint64_t request) {
    EXPECT_TRUE(world.run_until([&] { return client.answered(request); }));
    return client.status_of(request);
  }
  // What each rank was told, in their order.
  std::vector<OpResult> join(const std::vector<Client*>& ranks, const std::string& id) {
    const auto size = static_cast<std::uint32_t>(ranks.size());
    std::vector<std::uint64_t> requests;
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      requests.push_back(ranks[rank]->join(id, rank, size));
    }
    std::vector<OpResult> results;
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      results.push_back(await(*ranks[rank], requests[rank]));
      if (results.back().status == Errc::ok) ranks[rank]->adopt_join(requests[rank], rank);
    }
    return results;
  }
  std::vector<OpResult> join(const std::vector<Client*>& ranks) {
    return join(ranks, mint(*ranks[0]));
  }
  OpResult declare(Client& client, const std::string& name) {
    TensorSpec spec;
    spec.name = name;
    spec.count = 100;
    return await(client, client.declare(spec));
  }
  // One op of a group of both, with the sum that it must have.
  void expect_works(Client& a, Client& b) {
    const std::vector<Bytes> inputs = inputs_of(DType::f32, 1000, 2);
    std::vector<std::uint64_t> tickets, outputs;
    for (Client* client : {&a, &b}) {
      OpRequest request = all_reduce(DType::f32, 1000);
      const Bytes& input = inputs[client == &a ? 0 : 1];
      request.input = client->allocate(input.size());
      request.output = client->allocate(input.size());
      std::copy(input.begin(), input.end(), client->at(request.input));
      outputs.push_back(request.output);
      tickets.push_back(client->submit(request));
    }
    ASSERT_TRUE(world.run_until([&] {
      a.poll();
      b.poll();
      return a.done(tickets[0]) && b.done(tickets[1]);
    }));
    EXPECT_EQ(a.result(tickets[0]).status, Errc::ok) << a.result(tickets[0]).detail;
    const auto floats = [](const std::byte* at) {
      std::vector<float> values(1000);
      std::memcpy(values.data(), at, values.size() * sizeof(float));
      return values;
    };
    const auto mine = floats(inputs[0].data()), theirs = floats(inputs[1].data());
    const auto sum = floats(a.at(outputs[0]));
    for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], mine[i] + theirs[i]) << i;
    EXPECT_EQ(sum, floats(b.at(outputs[1])));
  }
  std::uint64_t refusals(std::size_t node) {
    return world.daemon(node).conductor->reports().counters()["quota_refusals"]["value"];
  }
  static void expect_quota(const OpResult& result, const std::string& limit) {
    EXPECT_EQ(result.status, Errc::quota_exceeded) << result.detail;
    EXPECT_TRUE(contains(result.detail, limit)) << result.detail;
  }

  World world{1};
};

TEST_F(Quotas, LinksBeyondAUsersAreRefusedOnEveryNode) {
  add_daemon();
  add_daemon([](auto& settings) { settings.limits.max_links_per_user = 1; });
  Client &a0 = connect(0, kAlice), &a1 = connect(1, kAlice);
  for (const OpResult& result : join({&a0, &a1})) ASSERT_EQ(result.status, Errc::ok);
  // The node that has room hears from the one that has not, whichever coordinates.
  Client &b0 = connect(0, kAlice), &b1 = connect(1, kAlice);
  for (const auto& ranks : {std::vector<Client*>{&b0, &b1}, std::vector<Client*>{&b1, &b0}}) {
    for (const OpResult& result : join(ranks)) {
      expect_quota(result, "max_links_per_user = 1");
      EXPECT_TRUE(contains(result.detail, "node1")) << result.detail;
      EXPECT_TRUE(contains(result.detail, "user 1001 has 1 links")) << result.detail;
    }
  }
  EXPECT_EQ(refusals(0), 0u);
  EXPECT_EQ(refusals(1), 2u);
  // Nobody else is touched: another user, a group on one node, the group that there is.
  Client &c0 = connect(0, kBob), &c1 = connect(1, kBob);
  for (const OpResult& result : join({&c0, &c1})) EXPECT_EQ(result.status, Errc::ok);
  Client& alone = connect(1, kAlice);
  EXPECT_EQ(join({&alone})[0].status, Errc::ok);
  expect_works(a0, a1);
  expect_works(c0, c1);
  // And what is given back can be had.
  await(a0, a0.leave());
  await(a1, a1.leave());
  EXPECT_TRUE(world.run_until([&] {
    return world.daemon(1).conductor->reports().group_count(Scope::of_user(kAlice)) == 1;
  }));
  for (const OpResult& result : join({&b0, &b1}))
    EXPECT_EQ(result.status, Errc::ok) << result.detail;
  expect_works(b0, b1);
}

TEST_F(Quotas, OpsInFlightAreReservedAtTheJoin) {
  add_daemon([](auto& settings) {
    settings.limits.max_ops_in_flight_per_user = 32;
  });  // 16 for each group
  Client &first = connect(0, kAlice), &second = connect(0, kAlice), &third = connect(0, kAlice);
  ASSERT_EQ(join({&first})[0].status, Errc::ok);
  // One that waits for others has reserved its share too, once for all its ranks here.
  const std::string id = mint(second);
  second.join(id, 0, 3);
  third.join(id, 1, 3);
  world.run_for(kSecond);
  Client& fourth = connect(0, kAlice);
  expect_quota(join({&fourth})[0], "max_ops_in_flight_per_user = 32");
  EXPECT_EQ(refusals(0), 1u);
  Client& other = connect(0, kBob);
  EXPECT_EQ(join({&other})[0].status, Errc::ok);
  await(first, first.leave());
  EXPECT_TRUE(world.run_until([&] {
    return world.daemon(0).conductor->reports().group_count(Scope::of_user(kAlice)) == 0;
  }));
  EXPECT_EQ(join({&fourth})[0].status, Errc::ok);
}

TEST_F(Quotas, AGroupCountsAgainWhatItHasAgreedOn) {
  add_daemon([](auto& settings) { settings.limits.max_ops_in_flight_per_user = 20; });
  add_daemon([](auto& settings) { settings.ops.max_ops_in_flight = 4; });
  Client &a0 = connect(0, kAlice), &a1 = connect(1, kAlice);
  for (const OpResult& result : join({&a0, &a1})) ASSERT_EQ(result.status, Errc::ok);
  ASSERT_EQ(a0.group.max_ops_in_flight, 4u);
  Client& more = connect(0, kAlice);  // 4 and 16
  EXPECT_EQ(join({&more})[0].status, Errc::ok);
}

TEST_F(Quotas, GroupsOfAUserAreBoundedAndARejoinIsNoSecondOne) {
  add_daemon([](auto& settings) { settings.limits.max_groups_per_user = 1; });
  add_daemon();
  Client &a0 = connect(0, kAlice), &a1 = connect(0, kAlice);
  Client* a2 = &connect(1, kAlice);
  const std::string id = mint(a0);
  for (const OpResult& result : join({&a0, &a1, a2}, id)) ASSERT_EQ(result.status, Errc::ok);
  Client& more = connect(0, kAlice);
  expect_quota(join({&more})[0], "max_groups_per_user = 1");
  Client& other = connect(0, kBob);
  EXPECT_EQ(join({&other})[0].status, Errc::ok);
  // The epoch fails; one rank is back before the other has left.
  world.close(*a2);
  EXPECT_TRUE(world.run_until([&] {
    const auto groups =
        daemon::all_rows(world.daemon(0).conductor->reports().groups(Scope::of_user(kAlice)));
    return groups.size() == 1 && groups[0]["state"] == "failed";
  }));
  await(a0, a0.leave());
  const std::uint64_t again = a0.join(id, 0, 3);
  world.run_for(kSecond);
  EXPECT_FALSE(a0.answered(again)) << a0.status_of(again).detail;
  await(a1, a1.leave());
  a2 = &connect(1, kAlice);
  const std::uint64_t second = a1.join(id, 1, 3), third = a2->join(id, 2, 3);
  EXPECT_EQ(await(a0, again).status, Errc::ok);
  EXPECT_EQ(await(a1, second).status, Errc::ok);
  EXPECT_EQ(await(*a2, third).status, Errc::ok);
}

TEST_F(Quotas, EpochsThatNobodyLeavesCountAgain) {
  add_daemon([](auto& settings) { settings.limits.max_groups_per_user = 2; });
  add_daemon();
  Client& hoarder = connect(0, kAlice);
  const std::string id = mint(hoarder);
  Errc last = Errc::ok;
  for (int epoch = 0; epoch < 4 && last == Errc::ok; ++epoch) {
    Client& victim = connect(1, kAlice);
    const std::uint64_t joined = hoarder.join(id, 0, 2);
    const std::uint64_t other = victim.join(id, 1, 2);
    last = await(hoarder, joined).status;
    if (last == Errc::ok) await(victim, other);
    world.close(victim);
    world.run_for(kSecond);
  }
  EXPECT_EQ(last, Errc::quota_exceeded);
}

TEST_F(Quotas, OneGroupHasRoomForAllItsRanks) {
  add_daemon([](auto& settings) {
    settings.limits.max_groups = 1;
    settings.limits.max_groups_per_user = 1;
  });
  Client &a = connect(0, kAlice), &b = connect(0, kAlice);
  for (const OpResult& result : join({&a, &b})) EXPECT_EQ(result.status, Errc::ok) << result.detail;
  Client& other = connect(0, kBob);
  expect_quota(join({&other})[0], "max_groups = 1");
}

TEST_F(Quotas, TensorsOfAUserAreBounded) {
  add_daemon([](auto& settings) {
    settings.limits.max_tensors_per_user = 3;
    settings.limits.max_tensors = 6;
  });
  Client &a = connect(0, kAlice), &b = connect(0, kAlice), &more = connect(0, kAlice);
  for (const OpResult& result : join({&a, &b})) ASSERT_EQ(result.status, Errc::ok);
  ASSERT_EQ(join({&more})[0].status, Errc::ok);
  EXPECT_EQ(declare(a, "one").status, Errc::ok);
  EXPECT_EQ(declare(a, "two").status, Errc::ok);
  EXPECT_EQ(declare(more, "one").status, Errc::ok);
  // What another rank has declared is not another tensor.
  EXPECT_EQ(declare(b, "one").status, Errc::ok);
  expect_quota(declare(b, "three"), "max_tensors_per_user = 3");
  expect_quota(declare(more, "two"), "max_tensors_per_user = 3");
  EXPECT_EQ(refusals(0), 2u);
  Client& other = connect(0, kBob);
  ASSERT_EQ(join({&other})[0].status, Errc::ok);
  EXPECT_EQ(declare(other, "one").status, Errc::ok);
  EXPECT_EQ(declare(other, "two").status, Errc::ok);
  expect_quota(declare(other, "three"), "max_tensors = 6");
}

TEST_F(Quotas, ClientsAreThoseThatHaveSaidHello) {
  add_daemon([](auto& settings) {
    settings.limits.max_clients = 3;
    settings.limits.max_clients_per_user = 2;
  });
  connect(0, kAlice);
  connect(0, kAlice);
  Client& third = world.connect(0, "job", 1 << 20, kAlice);
  world.run_for(kSecond / 10);
  EXPECT_FALSE(third.ready());
  EXPECT_TRUE(third.lost());
  connect(0, kBob);
  Client& fourth = world.connect(0, "job", 1 << 20, kBob);
  world.run_for(kSecond / 10);
  EXPECT_TRUE(fourth.lost());
  EXPECT_EQ(refusals(0), 2u);
}

TEST_F(Quotas, ConnectionsThatNeverSayHelloAreBounded) {
  add_daemon([](auto& settings) {
    settings.limits.max_clients = 4;
    settings.limits.max_clients_per_user = 3;
  });
  daemon::Conductor& conductor = *world.daemon(0).conductor;
  std::uint64_t next = 1000;
  // How many of ten connections of the user are kept.
  const auto kept = [&](std::uint32_t user) {
    const std::size_t before = conductor.reports().client_count();
    world.daemon(0).wake_conductor([&](daemon::Conductor& woken) {
      for (int i = 0; i < 10; ++i) {
        shm::PeerCredentials credentials;
        credentials.uid = user;
        woken.on_client_connected(next++, std::move(credentials));
      }
    });
    return conductor.reports().client_count() - before;
  };
  EXPECT_EQ(kept(kAlice), 3u);
  EXPECT_EQ(refusals(0), 7u);
  connect(0, kBob);  // they are no clients, and take the place of none
  EXPECT_EQ(kept(kBob), 3u);
  EXPECT_EQ(kept(kBob + 1), 1u);  // twice max_clients in all
  // They go when their time to say hello is over.
  world.run_for(10 * kSecond);
  EXPECT_EQ(conductor.reports().client_count(), 1u);
  EXPECT_EQ(kept(kAlice), 3u);
}

TEST_F(Quotas, RanksThatWaitAreBounded) {
  add_daemon([](auto& settings) {
    settings.limits.max_clients = settings.limits.max_clients_per_user = 4096;
    settings.limits.max_groups = 4096;
    settings.limits.max_groups_per_user = 4096;
    settings.limits.max_ops_in_flight_per_user = 1 << 20;
  });
  // Each joins many groups, and none of them will ever be whole.
  std::vector<Client*> ranks;
  ranks.reserve(8);
  for (int i = 0; i < 8; ++i) ranks.push_back(&connect(0, kAlice));
  std::vector<std::pair<Client*, std::uint64_t>> requests;
  for (int group = 0; group < 130; ++group) {
    const std::string id = mint(*ranks[0]);
    for (std::uint32_t rank = 0; rank < 8; ++rank) {
      requests.emplace_back(ranks[rank], ranks[rank]->join(id, rank, 9));
    }
  }
  const auto refused = std::count_if(requests.begin(), requests.end(), [](const auto& one) {
    return one.first->answered(one.second) &&
           one.first->status_of(one.second).status == Errc::quota_exceeded;
  });
  EXPECT_EQ(refused, 130 * 8 - 1024);
  Client& other = connect(0, kBob);
  EXPECT_EQ(join({&other})[0].status, Errc::ok);
}

TEST_F(Quotas, EachUserIsShownWhatIsHis) {
  add_daemon();
  add_daemon();
  Client &a0 = connect(0, kAlice), &a1 = connect(1, kAlice), &b0 = connect(0, kBob);
  for (const OpResult& result : join({&a0, &a1})) ASSERT_EQ(result.status, Errc::ok);
  ASSERT_EQ(join({&b0})[0].status, Errc::ok);
  EXPECT_EQ(declare(a0, "alices").status, Errc::ok);
  EXPECT_EQ(declare(b0, "bobs").status, Errc::ok);
  Client &shared_a = connect(0, kAlice), &shared_b = connect(0, kBob);
  const std::string id = mint(shared_a);
  shared_a.join(id, 0, 3);
  world.run_for(kSecond / 10);
  const daemon::Conductor& conductor = *world.daemon(0).conductor;
  const Scope alice = Scope::of_user(kAlice), bob = Scope::of_user(kBob);
  EXPECT_EQ(daemon::all_rows(conductor.reports().groups(alice)).size(), 2u);
  EXPECT_EQ(daemon::all_rows(conductor.reports().groups(bob)).size(), 1u);
  // A group of two users is of both, from the join on.
  shared_b.join(id, 1, 3);
  world.run_for(kSecond / 10);
  EXPECT_EQ(daemon::all_rows(conductor.reports().groups(bob)).size(), 2u);
  EXPECT_EQ(daemon::all_rows(conductor.reports().groups(Scope::of_all())).size(), 3u);
  EXPECT_EQ(daemon::all_rows(conductor.reports().groups(Scope::of_user(7))).size(), 0u);
  EXPECT_EQ(conductor.reports().clients(alice).size(), 2u);
  EXPECT_EQ(conductor.reports().client_count(alice), 2u);
  EXPECT_EQ(conductor.reports().client_count(), 4u);
  EXPECT_EQ(conductor.reports().group_count(bob), 1u);
  EXPECT_EQ(conductor.reports().peer_count(alice), 1u);
  EXPECT_EQ(conductor.reports().peer_count(bob), 0u);
  const auto bobs = daemon::all_rows(conductor.reports().tensors(bob));
  ASSERT_EQ(bobs.size(), 1u);
  EXPECT_EQ(bobs[0]["name"], "bobs");
  EXPECT_EQ(daemon::all_rows(conductor.reports().tensors(Scope::of_all())).size(), 2u);
  // A failed group stays its owner's.
  world.close(a1);
  EXPECT_TRUE(world.run_until(
      [&] { return daemon::all_rows(conductor.reports().groups(alice))[1]["state"] == "failed"; }));
  EXPECT_EQ(daemon::all_rows(conductor.reports().groups(bob)).size(), 2u);
}

}  // namespace
}  // namespace tern::sim
