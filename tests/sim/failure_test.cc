// What ranks hear when something is wrong: mismatches, cancelled ops, lost parties, damaged memory.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cluster.h"
#include "tests/daemon/control/all_rows.h"

namespace tern::sim {
namespace {

constexpr std::uint64_t kChunksCount = 20'011;
// Of simulated time, for what follows the end of a timeout.
constexpr std::uint64_t kSlackNs = kSecond / 2;

TensorSpec weight(std::uint64_t count = kChunksCount) {
  TensorSpec spec;
  spec.name = "w";
  spec.count = count;
  return spec;
}

// Rank 2 submits `other`; all the rest `request`.
Cluster::Pending submit_differently(Cluster& cluster, const OpRequest& request,
                                    const OpRequest& other) {
  Cluster::Pending pending;
  pending.request = request;
  for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
    OpRequest mine = rank == 2 ? other : request;
    mine.input = mine.output = cluster.ranks[rank]->allocate(200'000);
    pending.tickets.push_back(cluster.ranks[rank]->submit(mine));
  }
  return pending;
}

TEST(Failure, MismatchOfAnonymousOpsSaysWhoSaidWhat) {
  DaemonShape shape;
  shape.lanes = 3;
  Cluster cluster({2, 1, 1}, shape);
  cluster.join();
  const OpRequest plain = all_reduce(DType::f32, kChunksCount);
  OpRequest root = plain;
  root.kind = shm::OpKind::broadcast;
  const std::vector<std::pair<OpRequest, std::string>> others = {
      {all_reduce(DType::f32, kChunksCount - 1), std::to_string(kChunksCount - 1)},
      {all_reduce(DType::f32, 3), "3 f32"},  // another number of lanes, and eager
      {all_reduce(DType::i32, kChunksCount), "i32"},
      {all_reduce(DType::f32, kChunksCount, Reduction::min), "min"},
      {root, "broadcast"}};
  for (const auto& [other, word] : others) {
    const auto pending = submit_differently(cluster, plain, other);
    cluster.finish(pending);
    cluster.expect_all(pending, Errc::mismatch, "rank 2 says");
    cluster.expect_all(pending, Errc::mismatch, word);
    cluster.forget_arenas();
  }
  // The group goes on.
  cluster.reduce(plain, inputs_of(DType::f32, kChunksCount, 4));
  cluster.leave_all();
}

// The daemon's mapping of a client's memory: the other one of the same file.
std::byte* arena_in_daemon(Client& client) {
  const auto own = reinterpret_cast<std::uintptr_t>(client.at(0));
  struct Mapping {
    std::uintptr_t begin, end;
    unsigned long inode;
  };
  std::vector<Mapping> all;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    Mapping one{};
    if (line.find("tern-segment") == std::string::npos) continue;
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %*s %*s %lu", &one.begin, &one.end, &one.inode) == 3)
      all.push_back(one);
  }
  const auto mine = std::find_if(all.begin(), all.end(), [&](const Mapping& one) {
    return own >= one.begin && own < one.end;
  });
  for (const Mapping& one : all) {
    if (mine == all.end() || one.inode != mine->inode || one.begin == mine->begin) continue;
    return reinterpret_cast<std::byte*>(one.begin + (own - mine->begin));
  }
  return nullptr;
}

// As where the kernel has no memory for the pages: nobody is told of success for what was read.
TEST(Failure, AnOpWhoseInputHasLostPagesFailsOnAllNodes) {
  for (const std::uint64_t count : {std::uint64_t{1000}, std::uint64_t{kChunksCount}}) {
    for (const std::uint32_t loser : {0u, 1u, 2u}) {
      Cluster cluster({1, 1, 1});
      cluster.join();
      const OpRequest request = all_reduce(DType::f32, count);
      cluster.reduce(request, inputs_of(DType::f32, count, 3));
      const auto pending = cluster.submit(request, inputs_of(DType::f32, count, 3));
      std::byte* const arena = arena_in_daemon(*cluster.ranks[loser]);
      ASSERT_NE(arena, nullptr);
      const Fd empty(::memfd_create("empty", MFD_CLOEXEC));
      ASSERT_NE(
          ::mmap(arena, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, empty.get(), 0),
          MAP_FAILED);
      for (std::uint32_t rank = 0; rank < 3; ++rank) {
        if (rank == loser) continue;
        ASSERT_TRUE(cluster.world.run_until(
            [&] { return cluster.ranks[rank]->done(pending.tickets[rank]); }));
        EXPECT_EQ(cluster.result(pending, rank).status, Errc::rank_lost)
            << count << " values, rank " << rank << " beside " << loser;
      }
      EXPECT_TRUE(cluster.world.run_until([&] { return cluster.ranks[loser]->lost(); }));
    }
  }
}

TEST(Failure, MismatchOfARoleBetweenNodes) {
  Cluster cluster({1, 1});
  cluster.join();
  std::vector<Tensor*> tensors;
  for (Client* client : cluster.ranks) {
    TensorSpec spec = weight();
    spec.role = client == cluster.ranks[0] ? Role::gradient : Role::weights;
    tensors.push_back(client->adopt_declare(client->declare(spec), spec));
  }
  const auto pending = cluster.submit(all_reduce(DType::f32, kChunksCount),
                                      inputs_of(DType::f32, kChunksCount, 2), tensors);
  cluster.finish(pending);
  cluster.expect_all(pending, Errc::mismatch, "gradient");
  cluster.expect_all(pending, Errc::mismatch, "weights");
}

TEST(Failure, MismatchOfADeclarationOnOneNodeIsRefused) {
  Cluster cluster({2});
  cluster.join();
  const TensorSpec spec = weight();
  cluster.ranks[0]->declare(spec);
  const auto request = cluster.ranks[1]->declare(weight(5));
  const OpResult refused = cluster.ranks[1]->status_of(request);
  EXPECT_EQ(refused.status, Errc::mismatch);
  EXPECT_EQ(refused.detail,
            "w: rank 0 says 20011 f32 (exact, recipe none(raw)), rank 1 says 5 f32 (exact, recipe "
            "none(raw))");
  const auto counters = cluster.world.daemon(0).conductor->reports().counters();
  EXPECT_EQ(counters["declarations_refused"]["value"], 1u);
}

TEST(Failure, CancelFailsTheOpOnAllRanksAndOnAllLanes) {
  DaemonShape shape;
  shape.lanes = 3;
  Cluster cluster({2, 1}, shape);
  cluster.join();
  for (int round = 0; round < 300; ++round) {
    // More often than there are slots for ops: nothing may be remembered for good.
    std::vector<std::uint64_t> tickets;
    const auto request = all_reduce(DType::u8, round % 2 == 0 ? 100'000 : 100);
    for (const std::uint32_t rank : {0u, 1u})
      tickets.push_back(cluster.ranks[rank]->submit(request));
    cluster.world.run_for(1'000'000);
    cluster.ranks[0]->cancel(tickets[0]);
    // A lane may sleep through some of its timers.
    cluster.world.run_for(kSecond);
    tickets.push_back(cluster.ranks[2]->submit(request));
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(cluster.world.run_until([&] { return cluster.ranks[rank]->done(tickets[rank]); }))
          << "rank " << rank << " round " << round;
      ASSERT_EQ(cluster.ranks[rank]->result(tickets[rank]).status, Errc::cancelled)
          << "rank " << rank << " round " << round;
      EXPECT_EQ(cluster.ranks[rank]->result(tickets[rank]).detail, "cancelled by rank 0");
    }
  }
  cluster.reduce(all_reduce(DType::u8, 100'000), inputs_of(DType::u8, 100'000, 3));
  cluster.leave_all();
}

nlohmann::json tensors_of(VirtualDaemon& node) {
  return daemon::all_rows(node.conductor->reports().tensors(daemon::Scope::of_all()));
}

// As of a step that is given up: rank 1 has not come to the op, and never will.
TEST(Failure, OpsThatARankNeverSubmitsGoWithTheirTensor) {
  DaemonShape shape;
  shape.lanes = 2;
  Cluster cluster({2, 1}, shape);
  cluster.join();
  const TensorSpec spec = weight();
  const OpRequest request = all_reduce(DType::f32, spec.count);
  const auto ask_all = [&cluster](auto ask) {
    std::vector<std::uint64_t> requests;
    for (Client* client : cluster.ranks) requests.push_back(ask(*client));
    for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
      ASSERT_TRUE(cluster.await(*cluster.ranks[rank], requests[rank]));
      ASSERT_EQ(cluster.ranks[rank]->status_of(requests[rank]).status, Errc::ok);
    }
  };
  for (std::uint32_t round = 0; round < 3 * shape.max_ops; ++round) {
    std::vector<Tensor*> tensors;
    for (Client* client : cluster.ranks) {
      const std::uint64_t declared = client->declare(spec);
      ASSERT_TRUE(cluster.await(*client, declared));
      tensors.push_back(client->adopt_declare(declared, spec));
      ASSERT_NE(tensors.back(), nullptr) << "round " << round;
    }
    for (Client* client : cluster.ranks) client->forget_arena();
    const std::uint64_t first = cluster.ranks[0]->submit(request, tensors[0]);
    const std::uint64_t last = cluster.ranks[2]->submit(request, tensors[2]);
    cluster.world.run_for(1'000'000);
    cluster.ranks[0]->cancel(first);
    ASSERT_TRUE(cluster.world.run_until(
        [&] { return cluster.ranks[0]->done(first) && cluster.ranks[2]->done(last); }));
    ASSERT_EQ(cluster.ranks[0]->result(first).status, Errc::cancelled) << "round " << round;
    ASSERT_EQ(cluster.ranks[2]->result(last).status, Errc::cancelled);
    ask_all([&](Client& client) { return client.release(tensors[0]->id); });
    // In an epoch a tensor that is declared again is another: the last one is gone by then.
    ASSERT_TRUE(cluster.world.run_until([&] {
      return tensors_of(cluster.world.daemon(0)).empty();
    })) << "round "
        << round;
  }
  cluster.reduce(request, inputs_of(DType::f32, spec.count, 3));
  cluster.leave_all();
}

TEST(Failure, OpTimeoutNamesWhoIsMissingAndTheGroupLivesOn) {
  Cluster cluster({1, 2, 1});
  JoinOptions options;
  options.op_timeout_ms = 5000;
  cluster.join(options);
  std::vector<std::uint64_t> tickets;
  for (const std::uint32_t rank : {0u, 1u})
    tickets.push_back(cluster.ranks[rank]->submit(all_reduce(DType::f32, kChunksCount)));
  const auto ended = [&] {
    return cluster.ranks[0]->done(tickets[0]) && cluster.ranks[1]->done(tickets[1]);
  };
  const std::uint64_t timeout_ns = 5 * kSecond;  // of the options
  EXPECT_FALSE(cluster.world.run_until(ended, timeout_ns - kSlackNs)) << "too early";
  ASSERT_TRUE(cluster.world.run_until(ended, 2 * kSlackNs)) << "too late";
  for (const std::uint32_t rank : {0u, 1u}) {
    EXPECT_EQ(cluster.ranks[rank]->result(tickets[rank]).status, Errc::op_timeout);
    EXPECT_EQ(cluster.ranks[rank]->result(tickets[rank]).detail,
              "after 5000 ms not submitted by rank 2, 3");
  }
  for (const std::uint32_t rank : {2u, 3u}) {
    const auto late = cluster.ranks[rank]->submit(all_reduce(DType::f32, kChunksCount));
    ASSERT_TRUE(cluster.world.run_until([&] { return cluster.ranks[rank]->done(late); }));
    EXPECT_EQ(cluster.ranks[rank]->result(late).status, Errc::op_timeout);
  }
  cluster.reduce(all_reduce(DType::f32, kChunksCount), inputs_of(DType::f32, kChunksCount, 4));
  cluster.leave_all();
}

// docs/architecture.md, "Why grants", through whole daemons with the least memory there can be.
TEST(Failure, UnlikeOrdersDoNotDeadlockWithMinimalMemory) {
  DaemonShape shape;
  shape.receive_slabs = 2;
  shape.send_slabs = shape.result_slabs = shape.active_chunks = 1;
  Cluster cluster({1, 1, 1}, shape);
  cluster.join();
  const auto x = cluster.declare(weight());
  TensorSpec other = weight();
  other.name = "y";
  const auto y = cluster.declare(other);
  const auto request = all_reduce(DType::f32, kChunksCount);
  std::vector<std::uint64_t> first(3), second(3);
  for (const std::uint32_t rank : {0u, 1u}) {
    first[rank] = cluster.ranks[rank]->submit(request, x[rank]);
    second[rank] = cluster.ranks[rank]->submit(request, y[rank]);
  }
  second[2] = cluster.ranks[2]->submit(request, y[2]);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(cluster.world.run_until([&] { return cluster.ranks[rank]->done(second[rank]); }));
  }
  EXPECT_FALSE(cluster.ranks[0]->done(first[0]));
  first[2] = cluster.ranks[2]->submit(request, x[2]);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(cluster.world.run_until([&] { return cluster.ranks[rank]->done(first[rank]); }));
  }
  cluster.leave_all();
}

TEST(Failure, ADeadDaemonIsNamedAndTheRestCanStartAgain) {
  Cluster cluster({1, 1, 1});
  cluster.join();
  std::vector<std::uint64_t> tickets;
  for (const std::uint32_t rank : {0u, 1u})
    tickets.push_back(cluster.ranks[rank]->submit(all_reduce(DType::f32, kChunksCount)));
  cluster.world.run_for(1'000'000);
  cluster.world.kill(2);
  // What the links allow a peer that says nothing, and no more.
  const net::LinkSettings link;
  const std::uint64_t limit = link.peer_timeout_ns + link.resume_timeout_ns + kSlackNs;
  for (const std::uint32_t rank : {0u, 1u}) {
    ASSERT_TRUE(
        cluster.world.run_until([&] { return cluster.ranks[rank]->done(tickets[rank]); }, limit))
        << "the dead daemon was not noticed in time";
    const OpResult& result = cluster.ranks[rank]->result(tickets[rank]);
    EXPECT_EQ(result.status, Errc::peer_lost);
    EXPECT_TRUE(contains(result.detail, "node2:7000")) << result.detail;
  }
  cluster.world.restart(2);
  cluster.ranks[2] = &cluster.world.connect(2, "job", 8 << 20);
  ASSERT_TRUE(cluster.world.run_until([&] { return cluster.ranks[2]->ready(); }));
  for (const std::uint32_t rank : {0u, 1u}) {
    ASSERT_TRUE(cluster.await(*cluster.ranks[rank], cluster.ranks[rank]->leave()));
  }
  cluster.join();
  EXPECT_EQ(cluster.ranks[0]->group.epoch, 2u);
  cluster.reduce(all_reduce(DType::f32, kChunksCount), inputs_of(DType::f32, kChunksCount, 3));
  cluster.leave_all();
}

TEST(Failure, ADeadClientIsNamed) {
  Cluster cluster({2, 1});
  cluster.join();
  std::vector<std::uint64_t> tickets;
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    tickets.push_back(cluster.ranks[rank]->submit(all_reduce(DType::f32, 200'000)));
  cluster.world.close(*cluster.ranks[1]);
  cluster.ranks.erase(cluster.ranks.begin() + 1);
  tickets.erase(tickets.begin() + 1);
  // Nothing has to time out for this: the kernel tells of a process that ends.
  for (std::uint32_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(
        cluster.world.run_until([&] { return cluster.ranks[i]->done(tickets[i]); }, kSlackNs));
    EXPECT_EQ(cluster.ranks[i]->result(tickets[i]).status, Errc::rank_lost);
    EXPECT_TRUE(contains(cluster.ranks[i]->result(tickets[i]).detail, "lost rank 1"));
  }
  cluster.leave_all();
}

TEST(Failure, VerifyNamesTheRankThatDiffers) {
  constexpr std::uint64_t kCount = 200'000;
  Cluster cluster({1, 1, 1});
  JoinOptions options;
  options.verify = true;
  cluster.join(options);
  const auto inputs = inputs_of(DType::f32, kCount, 3);
  cluster.reduce(all_reduce(DType::f32, kCount), inputs);
  cluster.forget_arenas();
  const auto pending = cluster.submit(all_reduce(DType::f32, kCount), inputs);
  // Rank 1's memory is overwritten all the time, so also between a delivery and the checksum.
  bool flip = false;
  ASSERT_TRUE(cluster.world.run_until([&] {
    flip = !flip;
    for (std::uint64_t chunk = 0; chunk < kCount * 4; chunk += cluster.view.chunk_bytes) {
      *cluster.ranks[1]->at(pending.outputs[1] + chunk) = flip ? std::byte{0x77} : std::byte{0x78};
    }
    return cluster.ranks[0]->done(pending.tickets[0]);
  }));
  cluster.finish(pending);
  cluster.expect_all(pending, Errc::result_mismatch, "on rank 1");
  cluster.forget_arenas();
  cluster.reduce(all_reduce(DType::f32, kCount), inputs);
  cluster.leave_all();
}

TEST(Failure, NonsenseEntriesHurtOnlyTheirSender) {
  Cluster cluster({1, 1});
  cluster.join();
  const auto expect_refused = [&](const OpRequest& request, std::uint64_t tensor, Errc code) {
    const auto ticket = cluster.ranks[0]->submit_as(request, tensor, 1000, false);
    ASSERT_TRUE(cluster.world.run_until([&] { return cluster.ranks[0]->done(ticket); }));
    EXPECT_EQ(cluster.ranks[0]->result(ticket).status, code)
        << cluster.ranks[0]->result(ticket).detail;
  };
  OpRequest request = all_reduce(DType::f32, 100);
  request.input = 8 << 20;
  expect_refused(request, 0, Errc::invalid_argument);
  request.input = ~std::uint64_t{0} - 3;
  expect_refused(request, 0, Errc::invalid_argument);
  request.input = 2;
  expect_refused(request, 0, Errc::invalid_argument);
  expect_refused(all_reduce(DType::f32, 100), 12345, Errc::unknown_tensor);
  request = all_reduce(DType::f32, 100);
  for (const int reserved : {0, 8, 10, 15, 16, 17}) {
    request.kind = static_cast<shm::OpKind>(reserved);
    expect_refused(request, 0, Errc::invalid_argument);
  }
  request.kind = shm::OpKind::broadcast;
  request.root = 2;
  expect_refused(request, 0, Errc::invalid_argument);
  cluster.reduce(all_reduce(DType::f32, 100), inputs_of(DType::f32, 100, 2));
  cluster.leave_all();
}

}  // namespace
}  // namespace tern::sim
