// Joining, leaving, rejoining: what the ranks are told.

#include <gtest/gtest.h>

#include "checkpoint.h"
#include "cluster.h"

namespace tern::sim {
namespace {

TEST(Membership, JoinAgreesOnTheLeastOfWhatTheNodesHave) {
  Cluster cluster({1});
  DaemonShape larger;
  larger.lanes = 3;
  larger.chunk_bytes = 64 << 10;
  larger.eager_bytes = 0;
  larger.max_ops = 5;
  const std::size_t second = cluster.world.add_daemon(larger);
  cluster.ranks.push_back(&cluster.world.connect(second));
  ASSERT_TRUE(cluster.world.run_until([&] { return cluster.ranks[1]->ready(); }));
  cluster.join();
  for (const Client* client : cluster.ranks) {
    EXPECT_EQ(client->group.lane_count, 1u);
    EXPECT_EQ(client->group.chunk_bytes, 16u << 10);
    EXPECT_EQ(client->group.eager_bytes, 0u);
    EXPECT_EQ(client->group.max_ops_in_flight, 5u);
    EXPECT_EQ(client->group.epoch, 1u);
  }
  cluster.leave_all();
}

TEST(Membership, AWrongSecretIsRefused) {
  Cluster cluster({1, 1});
  const std::string id = cluster.mint();
  std::string wrong = id;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  const auto request = cluster.ranks[1]->join(wrong, 1, 2);
  ASSERT_TRUE(cluster.await(*cluster.ranks[1], request));
  EXPECT_EQ(cluster.ranks[1]->status_of(request).status, Errc::bad_secret);
  cluster.id = id;
  cluster.join();  // it did no harm
}

TEST(Membership, ATakenRankIsRefusedOnItsNodeAndElsewhere) {
  Cluster cluster({2, 1, 1});
  const std::string id = cluster.mint();
  cluster.ranks[0]->join(id, 0, 4);
  cluster.world.run_for(kSecond);
  for (const std::size_t other : {1u, 2u}) {
    const auto request = cluster.ranks[other]->join(id, 0, 4);
    ASSERT_TRUE(cluster.await(*cluster.ranks[other], request));
    EXPECT_EQ(cluster.ranks[other]->status_of(request).status, Errc::rank_taken);
  }
}

TEST(Membership, AnotherSizeIsRefusedAndSaysWhoSaidWhat) {
  Cluster cluster({1, 1});
  const std::string id = cluster.mint();
  cluster.ranks[0]->join(id, 0, 2);
  cluster.world.run_for(kSecond);
  const auto request = cluster.ranks[1]->join(id, 1, 3);
  ASSERT_TRUE(cluster.await(*cluster.ranks[1], request));
  const OpResult refusal = cluster.ranks[1]->status_of(request);
  EXPECT_EQ(refusal.status, Errc::wrong_size);
  EXPECT_TRUE(contains(refusal.detail, "rank 1 says size 3, rank 0 says 2")) << refusal.detail;
}

TEST(Membership, AJoinThatTimesOutNamesTheMissingRanks) {
  Cluster cluster({2, 1});
  const std::string id = cluster.mint();
  JoinOptions options;
  options.timeout_ms = 3000;
  const auto first = cluster.ranks[0]->join(id, 0, 5, options);
  const auto second = cluster.ranks[2]->join(id, 2, 5, options);
  const std::vector<std::pair<Client*, std::uint64_t>> waiting = {{cluster.ranks[0], first},
                                                                  {cluster.ranks[2], second}};
  for (const auto& [client, request] : waiting) {
    ASSERT_TRUE(cluster.await(*client, request));
    EXPECT_EQ(client->status_of(request).status, Errc::timeout);
    EXPECT_TRUE(contains(client->status_of(request).detail, "1,3,4"))
        << client->status_of(request).detail;
  }
  // Both places are free again, also for another size.
  cluster.id = id;
  cluster.join();
}

TEST(Membership, AnUnknownGroupAndAnAbsentCoordinatorAreToldApart) {
  Cluster cluster({1, 1});
  const std::string id = cluster.mint();
  JoinOptions options;
  options.timeout_ms = 2000;
  cluster.world.kill(0);
  auto request = cluster.ranks[1]->join(id, 1, 2, options);
  ASSERT_TRUE(cluster.await(*cluster.ranks[1], request));
  EXPECT_EQ(cluster.ranks[1]->status_of(request).status, Errc::unreachable);
  cluster.world.restart(0);
  request = cluster.ranks[1]->join(id, 1, 2, options);
  ASSERT_TRUE(cluster.await(*cluster.ranks[1], request));
  EXPECT_EQ(cluster.ranks[1]->status_of(request).status, Errc::unknown_group);
}

TEST(Membership, ARejoinGetsTheNextEpochAndTheLastCommonOp) {
  Cluster cluster({1, 2});
  cluster.join();
  const auto inputs = inputs_of(DType::f32, 100, 3);
  cluster.reduce(all_reduce(DType::f32, 100), inputs);
  for (Client* client : cluster.ranks) {
    const auto request = client->leave();
    ASSERT_TRUE(cluster.await(*client, request));
    EXPECT_EQ(client->status_of(request).status, Errc::ok);
  }
  std::vector<std::uint64_t> requests;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    JoinOptions options;
    options.completed_ops = 7 + rank;
    requests.push_back(cluster.ranks[rank]->join(cluster.id, rank, 3, options));
  }
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(cluster.await(*cluster.ranks[rank], requests[rank]));
    ASSERT_TRUE(cluster.ranks[rank]->adopt_join(requests[rank], rank));
    EXPECT_EQ(cluster.ranks[rank]->group.epoch, 2u);
    EXPECT_EQ(cluster.ranks[rank]->group.last_common_op, 7u);
  }
  cluster.reduce(all_reduce(DType::f32, 100), inputs);
  cluster.leave_all();
}

// The link to the coordinator still stands for the daemon that is gone: whenever the join comes,
// nobody but a daemon hears of that.
TEST(Membership, AJoinSurvivesThatItsCoordinatorWasJustRestarted) {
  for (std::uint64_t moment = 0; moment < 120; moment += 3) {
    Cluster cluster({1, 1}, {}, 1 + moment);
    cluster.join();
    cluster.world.close(*cluster.ranks[1]);
    cluster.ranks[1] = nullptr;
    cluster.world.kill(0);
    cluster.world.restart(0);
    for (std::uint64_t i = 0; i < moment; ++i) cluster.world.step();
    cluster.ranks[0] = &cluster.world.connect(0, "job", 8 << 20);
    cluster.ranks[1] = &cluster.world.connect(1, "job", 8 << 20);
    ASSERT_TRUE(cluster.world.run_until(
        [&] { return cluster.ranks[0]->ready() && cluster.ranks[1]->ready(); }));
    cluster.join();
    ASSERT_FALSE(HasFatalFailure()) << "moment " << moment;
    cluster.reduce(all_reduce(DType::f32, 100), inputs_of(DType::f32, 100, 2));
    cluster.leave_all();
  }
}

TEST(Membership, LeavingFailsWhatTheRankHadNotSubmittedAndOnlyThat) {
  Cluster cluster({1, 1, 1});
  cluster.join();
  const auto inputs = inputs_of(DType::f32, 50'000, 3);
  const auto whole = cluster.submit(all_reduce(DType::f32, 50'000), inputs);
  cluster.finish(whole);
  const auto request = cluster.ranks[2]->leave();
  // The others submit one more.
  std::vector<std::uint64_t> tickets;
  for (const std::uint32_t rank : {0u, 1u})
    tickets.push_back(cluster.ranks[rank]->submit(all_reduce(DType::f32, 10)));
  ASSERT_TRUE(cluster.await(*cluster.ranks[2], request));
  ASSERT_TRUE(cluster.world.run_until(
      [&] { return cluster.ranks[0]->done(tickets[0]) && cluster.ranks[1]->done(tickets[1]); }));
  EXPECT_EQ(cluster.ranks[0]->result(tickets[0]).status, Errc::group_left);
  EXPECT_TRUE(contains(cluster.ranks[1]->result(tickets[1]).detail, "rank 2 has left"));
  cluster.expect_all(whole, Errc::ok);
  cluster.leave_all();
}

// Who has its result may go; the others get theirs all the same.
TEST(Membership, LeavingAtOnceDoesNotHurtThoseWhoStillFinish) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    DaemonShape shape;
    shape.lanes = 2;
    Cluster cluster({1, 2, 1}, shape, seed);
    cluster.join();
    const auto pending =
        cluster.submit(all_reduce(DType::f32, 100'000), inputs_of(DType::f32, 100'000, 4));
    std::vector<bool> left(4, false);
    ASSERT_TRUE(cluster.world.run_until([&] {
      bool all = true;
      for (std::uint32_t rank = 0; rank < 4; ++rank) {
        if (!left[rank] && cluster.ranks[rank]->done(pending.tickets[rank])) {
          cluster.ranks[rank]->leave();
          left[rank] = true;
        }
        all = all && left[rank];
      }
      return all;
    }));
    cluster.expect_all(pending, Errc::ok);
    cluster.leave_all();
  }
}

TEST(Membership, AProcessJoinsAsOneRankOnly) {
  Cluster cluster({2});
  const std::string id = cluster.mint();
  cluster.ranks[0]->join(id, 0, 3);
  const auto request = cluster.ranks[0]->join(id, 1, 3);
  ASSERT_TRUE(cluster.await(*cluster.ranks[0], request));
  EXPECT_EQ(cluster.ranks[0]->status_of(request).status, Errc::invalid_argument);
}

// At whatever moment a joining process dies, the others are answered, and not only when the time
// for the whole join is over.
TEST(Membership, ADeathDuringTheJoinIsToldToTheOthers) {
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    const std::uint32_t moment = seed % 80;
    Cluster cluster({1, 2, 1}, {}, seed);
    const std::string id = cluster.mint();
    std::vector<std::uint64_t> requests;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      requests.push_back(cluster.ranks[rank]->join(id, rank, 4));
    }
    for (std::uint64_t i = 0; i < moment; ++i) cluster.world.step();
    const std::uint32_t victim = seed % 2 == 0 ? 3 : 1 + seed / 2 % 2;
    cluster.world.close(*cluster.ranks[victim]);
    cluster.ranks[victim] = nullptr;
    int answered = 0;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      if (rank == victim || !cluster.await(*cluster.ranks[rank], requests[rank], 10 * kSecond))
        continue;
      ++answered;
      const OpResult status = cluster.ranks[rank]->status_of(requests[rank]);
      EXPECT_TRUE(status.status == Errc::ok || status.status == Errc::rank_lost) << status.detail;
    }
    // Before the epoch has begun they all go on waiting for somebody who takes the place; once it
    // has begun on some node, nobody waits.
    std::size_t begun = 0;
    for (std::size_t node = 0; node < 3; ++node) {
      begun += cluster.world.daemon(node).conductor->reports().group_count();
    }
    EXPECT_TRUE(answered == 3 || (answered == 0 && begun == 0))
        << answered << " answers, seed " << seed;
  }
}

TEST(Membership, AClientInTwoGroupsLeavesBothWithItsGoodbye) {
  Cluster cluster({1, 1});
  cluster.join();
  const auto first = cluster.ranks[0]->group;
  cluster.id = cluster.mint();
  cluster.join();
  EXPECT_NE(cluster.ranks[0]->group.group, first.group);
  const auto pending =
      cluster.submit(all_reduce(DType::f32, 40'000), inputs_of(DType::f32, 40'000, 2));
  cluster.finish(pending);
  cluster.ranks[0]->goodbye();
  ASSERT_TRUE(cluster.world.run_until([&] { return cluster.ranks[0]->lost(); }));
  EXPECT_EQ(cluster.world.daemon(0).conductor->reports().counters()["clients_lost"]["value"], 0);
  // The other rank is told that its peer left, not that it was lost.
  const auto ticket = cluster.ranks[1]->submit(all_reduce(DType::f32, 10));
  ASSERT_TRUE(cluster.world.run_until([&] { return cluster.ranks[1]->done(ticket); }));
  EXPECT_EQ(cluster.ranks[1]->result(ticket).status, Errc::group_left)
      << cluster.ranks[1]->result(ticket).detail;
  cluster.leave_all();
}

// A process that comes while another one submits: its arrival must not disturb the lane.
TEST(Membership, ClientsMayConnectWhileOthersSubmitNamedOps) {
  Cluster cluster({1, 1});
  cluster.join();
  TensorSpec spec;
  spec.name = "w";
  spec.count = 10;
  const auto tensors = cluster.declare(spec);
  for (int i = 0; i < 20; ++i) {
    cluster.world.connect(0);
    cluster.reduce(all_reduce(DType::f32, 10), inputs_of(DType::f32, 10, 2), tensors);
  }
}

TEST(Membership, ManyTensorsMayBeDeclaredBeforeALaneLooks) {
  Cluster cluster({1, 1});
  cluster.join();
  std::vector<Tensor*> last;
  for (int i = 0; i < 300; ++i) {
    TensorSpec spec;
    spec.name = "t" + std::to_string(i);
    spec.count = 10;
    last = cluster.declare(spec);
  }
  cluster.reduce(all_reduce(DType::f32, 10), inputs_of(DType::f32, 10, 2), last);
  cluster.leave_all();
}

std::size_t control_links(Cluster& cluster, std::size_t daemon) {
  std::size_t links = 0;
  for (const auto& row : cluster.world.daemon(daemon).conductor->reports().peers()) {
    links += row["lane"] == "control" ? 1 : 0;
  }
  return links;
}

TEST(Membership, ALinkToACoordinatorIsClosedAWhileAfterItsLastGroup) {
  Cluster cluster({1, 1});
  cluster.join();
  EXPECT_EQ(control_links(cluster, 1), 1u);
  for (Client* client : cluster.ranks) {
    const auto leave = client->leave();
    ASSERT_TRUE(cluster.await(*client, leave));
  }
  cluster.world.run_for(5 * kSecond);
  EXPECT_EQ(control_links(cluster, 1), 1u);  // the next join would use it
  cluster.world.run_for(10 * kSecond);
  EXPECT_EQ(control_links(cluster, 1), 0u);
  EXPECT_EQ(control_links(cluster, 0), 0u);
  cluster.leave_all();
}

TEST(Membership, JoinsThatGoNowhereLeaveNoLinks) {
  Cluster cluster({1, 1});
  const std::string id = cluster.mint();
  JoinOptions options;
  options.timeout_ms = 10;
  for (int i = 0; i < 50; ++i) {
    // Another port each time, where nobody listens.
    std::string nowhere = id;
    const auto port = nowhere.find(':', nowhere.find(':') + 1) + 1;
    nowhere.replace(port, nowhere.find(':', port) - port, std::to_string(20'000 + i));
    const auto request = cluster.ranks[1]->join(nowhere, 1, 2, options);
    ASSERT_TRUE(cluster.await(*cluster.ranks[1], request));
    EXPECT_EQ(cluster.ranks[1]->status_of(request).status, Errc::unreachable);
    EXPECT_LE(control_links(cluster, 1), 1u);
  }
  cluster.leave_all();
}

// Its lanes may have let the group go when the last of them says that the rank has left.
TEST(Membership, LeavingAndDyingAtOnceLeavesNothing) {
  DaemonShape shape;
  shape.lanes = 2;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Cluster cluster({1}, shape, seed);
    cluster.join();
    TensorSpec spec;
    spec.name = "a";
    spec.count = 100'000;
    cluster.declare(spec);
    cluster.ranks[0]->leave();
    cluster.world.close(*cluster.ranks[0]);
    cluster.ranks[0] = nullptr;
    ASSERT_TRUE(cluster.world.run_until([&] { return cluster.world.find_leak().empty(); }))
        << "seed " << seed << ": " << cluster.world.find_leak();
  }
}

// Ranks of one node declare and release on their own: a name is the same tensor whichever moment
// another has released it at.
TEST(Membership, ARankDeclaresAtAnyMomentAfterAnotherHasReleased) {
  DaemonShape shape;
  shape.lanes = 3;
  for (std::uint32_t steps = 0; steps < 60; ++steps) {
    Cluster cluster({2, 1}, shape, steps + 1);
    cluster.join();
    const TensorSpec spec = tensor_of("ef(int:bits=8)");
    Client& first = *cluster.ranks[0];
    const Tensor* const done = first.adopt_declare(first.declare(spec), spec);
    ASSERT_NE(done, nullptr);
    const std::uint64_t released = first.release(done->id);
    for (std::uint32_t i = 0; i < steps; ++i) cluster.world.step();
    for (const std::size_t other : {1u, 2u}) {
      Client& client = *cluster.ranks[other];
      const std::uint64_t request = client.declare(spec);
      const Tensor* const tensor = client.adopt_declare(request, spec);
      ASSERT_NE(tensor, nullptr) << "after " << steps
                                 << " steps: " << client.status_of(request).detail;
      EXPECT_EQ(tensor->id, done->id);
      ASSERT_TRUE(cluster.await(client, client.release(tensor->id)));
    }
    ASSERT_TRUE(cluster.await(first, released));
    const auto tensors = cluster.declare(spec);
    cluster.reduce(all_reduce(DType::f32, spec.count, Reduction::sum),
                   inputs_of(DType::f32, spec.count, cluster.size(), 1), tensors);
    cluster.leave_all();
    ASSERT_TRUE(cluster.world.run_until([&] { return cluster.world.find_leak().empty(); }))
        << cluster.world.find_leak();
  }
}
}  // namespace
}  // namespace tern::sim
