// Every kind of operation over whole daemons: nodes, ranks, lanes, types, reductions, roots, shares
// and places drawn from seeds. TERN_SIM_SEEDS: how many.

#include "every_kind.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <random>

#include "plan/plans.h"

namespace tern::sim {
namespace {

using shm::OpKind;

TEST(EveryKind, DeliversWhatAReferenceDoesWhateverNodesTypesAndShares) {
  const char* const wanted = std::getenv("TERN_SIM_SEEDS");
  const std::uint64_t seeds = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) / 10 : 60;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    std::mt19937_64 random(seed);
    DaemonShape shape;
    shape.lanes = static_cast<std::uint32_t>(random() % 3 + 1);
    Cluster cluster(draw_nodes(random), shape, seed);
    JoinOptions options;
    options.verify = random() % 3 == 0;
    cluster.join(options);
    for (int i = 0; i < 12; ++i) {
      const KindCase c = draw_kind(random, cluster.size());
      SCOPED_TRACE(testing::Message()
                   << "seed " << seed << ", op " << i << ", " << cluster.view.ranks_of_node.size()
                   << " nodes: " << words_of(c));
      expect_kind(cluster, c, seed * 100 + static_cast<std::uint64_t>(i));
      if (HasFatalFailure()) return;
    }
    cluster.leave_all();
  }
}

// What is sent from where it lies is free when its receivers have said that they have it. Where no
// values come back, they say so when they have all of it, and not after the delay of an ack.
TEST(EveryKind, SendersDoNotWaitForTheDelayOfAnAck) {
  DaemonShape shape;
  shape.ack_delay_ns = kSecond;
  Cluster cluster({1, 1, 1}, shape);
  cluster.join();
  for (const OpKind kind : {OpKind::broadcast, OpKind::reduce, OpKind::reduce_scatter,
                            OpKind::all_gather, OpKind::gather, OpKind::scatter}) {
    KindCase c;
    c.kind = kind;
    c.counts.assign(cluster.size(), 5'000);  // a chunk and a part of one, on each rank
    SCOPED_TRACE(words_of(c));
    const std::uint64_t begin = cluster.world.clock.now_ns();
    expect_kind(cluster, c, 1);
    EXPECT_LT(cluster.world.clock.now_ns() - begin, shape.ack_delay_ns);
  }
}

// ---- Lossy contributions of sums that stay with their owners ------------------------------------

class LossySums : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipes, LossySums,
                         testing::Values("3lc:s=1", "3lc:s=1.75", "3lc:s=1,scale=tensor",
                                         "ef(int:bits=4)", "ef(lloyd:bits=3+huffman)",
                                         "ef(topk:p=0.1+int:bits=8)", "none(bf16)"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); },
                               '_');
                           return name;
                         });

// What contributions leave out is sent later: the sum over many steps stays near the exact one,
// however many there are. Each node's own contribution is exact.
TEST_P(LossySums, StayNearTheExactSumsOverManySteps) {
  constexpr std::uint64_t kCount = 6'000;
  constexpr int kSteps = 60;
  const bool remembers = GetParam().rfind("none", 0) != 0;
  for (const OpKind kind : {OpKind::reduce_scatter, OpKind::reduce}) {
    DaemonShape shape;
    shape.lanes = 2;
    Cluster cluster({1, 2, 1}, shape);
    cluster.join();
    TensorSpec spec{.name = "g", .count = kCount, .role = Role::gradient, .recipe = GetParam()};
    const auto tensors = cluster.declare(spec);
    const auto inputs = inputs_of(DType::f32, kCount, 4);
    KindCase c{.kind = kind, .root = 3, .counts = {1'000, 2'500, 0, 2'500}};
    std::vector<double> sums(kCount), exact(kCount);
    for (const Bytes& input : inputs) {
      const auto values = floats_of(DType::f32, input);
      for (std::uint64_t i = 0; i < kCount; ++i) exact[i] += values[i];
    }
    double worst_early = 0, worst_late = 0;
    std::uint64_t sent = 0;
    for (int step = 1; step <= kSteps; ++step) {
      std::vector<std::uint64_t> tickets;
      std::vector<OpRequest> requests;
      for (std::uint32_t rank = 0; rank < 4; ++rank) {
        Client& client = *cluster.ranks[rank];
        requests.push_back(request_of(c, rank));
        requests[rank].input = client.allocate(kCount * 4);
        requests[rank].output = client.allocate(kCount * 4);
        std::copy(inputs[rank].begin(), inputs[rank].end(), client.at(requests[rank].input));
        tickets.push_back(client.submit(requests[rank], tensors[rank]));
      }
      for (std::uint32_t rank = 0; rank < 4; ++rank) {
        Client& client = *cluster.ranks[rank];
        ASSERT_TRUE(cluster.world.run_until([&] { return client.done(tickets[rank]); }));
        ASSERT_EQ(client.result(tickets[rank]).status, Errc::ok)
            << client.result(tickets[rank]).detail;
        // What the node has sent; ranks 1 and 2 are on one.
        if (rank != 2) sent += client.result(tickets[rank]).bytes_sent;
        const plan::Range out = output_of(c, rank);
        const std::byte* const at = client.at(requests[rank].output);
        const auto got = floats_of(DType::f32, Bytes(at, at + out.count * 4));
        for (std::uint64_t i = 0; i < out.count; ++i) sums[out.begin + i] += got[i];
      }
      cluster.forget_arenas();
      double worst = 0;
      for (std::uint64_t i = 0; i < kCount; ++i) {
        worst = std::max(worst, std::abs(sums[i] - step * exact[i]));
      }
      (step <= kSteps / 2 ? worst_early : worst_late) =
          std::max(step <= kSteps / 2 ? worst_early : worst_late, worst);
    }
    EXPECT_GT(worst_early, 0.0) << "nothing was lost, so nothing was compressed";
    if (remembers) {
      // A method that forgets is off by as much again in the second half.
      EXPECT_LT(worst_late, 1.6 * worst_early) << "the error grows";
    }
    // Raw, every element of a contribution that travels takes four bytes.
    EXPECT_LT(sent, std::uint64_t{kSteps} * 2 * kCount * 4 * 6 / 10);
    cluster.leave_all();
  }
}

TEST(Residuals, AResidualIsOfOneKindOfOperation) {
  Cluster cluster({1, 1});
  cluster.join();
  TensorSpec spec{.name = "g", .count = 4'000, .role = Role::gradient, .recipe = "3lc:s=1"};
  const auto tensors = cluster.declare(spec);
  const auto inputs = inputs_of(DType::f32, 4'000, 2);
  cluster.reduce(all_reduce(DType::f32, 4'000), inputs, tensors);
  cluster.forget_arenas();
  auto request = all_reduce(DType::f32, 4'000);
  request.kind = OpKind::reduce;
  const auto pending = cluster.submit(request, inputs, tensors);
  cluster.finish(pending);
  cluster.expect_all(pending, Errc::bad_recipe, "declare a tensor for each");
}

TEST(Residuals, OtherCountsAreAnotherOperation) {
  Cluster cluster({1, 1});
  cluster.join();
  TensorSpec spec{.name = "g", .count = 4'000, .role = Role::gradient, .recipe = "3lc:s=1"};
  const auto tensors = cluster.declare(spec);
  KindCase c{.kind = OpKind::reduce_scatter, .counts = {1'000, 3'000}};
  const auto ends = [&](Errc code) {
    const auto submitted = submit_kind(cluster, c, 1, tensors);
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      Client& client = *cluster.ranks[rank];
      ASSERT_TRUE(cluster.world.run_until([&] { return client.done(submitted[rank].ticket); }));
      EXPECT_EQ(client.result(submitted[rank].ticket).status, code);
    }
    cluster.forget_arenas();
  };
  ends(Errc::ok);
  c.counts = {3'000, 1'000};
  ends(Errc::bad_recipe);
  c.counts = {1'000, 3'000};
  ends(Errc::ok);
}

// The state is the first's that uses it, not the first's that is submitted.
TEST(Residuals, AMistakenFirstUseTakesNothing) {
  Cluster cluster({1, 1});
  cluster.join();
  TensorSpec spec{.name = "g", .count = 4'000, .role = Role::gradient, .recipe = "3lc:s=1"};
  const auto tensors = cluster.declare(spec);
  const auto inputs = inputs_of(DType::f32, 4'000, 2);
  std::vector<std::uint64_t> tickets;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    auto request = all_reduce(DType::f32, 4'000);
    if (rank == 1) request.kind = OpKind::reduce;
    request.input = request.output = cluster.ranks[rank]->allocate(16'000);
    tickets.push_back(cluster.ranks[rank]->submit(request, tensors[rank]));
  }
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    Client& client = *cluster.ranks[rank];
    ASSERT_TRUE(cluster.world.run_until([&] { return client.done(tickets[rank]); }));
    EXPECT_EQ(client.result(tickets[rank]).status, Errc::mismatch);
  }
  cluster.forget_arenas();
  cluster.reduce(all_reduce(DType::f32, 4'000), inputs, tensors);
}

// Both are admitted, for the residual is nobody's yet. The first block of either takes it, and the
// other operation goes raw.
TEST(Residuals, TwoKindsThatBeginAtOnceBothSucceed) {
  constexpr std::uint64_t kCount = 40'000;
  for (const std::string recipe : {"3lc:s=1", "3lc:s=1,scale=tensor"}) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      Cluster cluster({1, 1}, {}, seed);
      cluster.join();
      TensorSpec spec{.name = "g", .count = kCount, .role = Role::gradient, .recipe = recipe};
      const auto tensors = cluster.declare(spec);
      const auto inputs = inputs_of(DType::f32, kCount, 2);
      const KindCase shares{.kind = OpKind::reduce_scatter, .counts = {15'000, 25'000}};
      std::vector<std::uint64_t> tickets;
      for (std::uint32_t rank = 0; rank < 2; ++rank) {
        Client& client = *cluster.ranks[rank];
        for (OpRequest request : {request_of(shares, rank), all_reduce(DType::f32, kCount)}) {
          request.input = client.allocate(kCount * 4);
          request.output = client.allocate(kCount * 4);
          std::copy(inputs[rank].begin(), inputs[rank].end(), client.at(request.input));
          tickets.push_back(client.submit(request, tensors[rank]));
        }
      }
      for (std::size_t i = 0; i < tickets.size(); ++i) {
        Client& client = *cluster.ranks[i / 2];
        ASSERT_TRUE(cluster.world.run_until([&] { return client.done(tickets[i]); })) << seed;
        EXPECT_EQ(client.result(tickets[i]).status, Errc::ok) << client.result(tickets[i]).detail;
      }
      cluster.leave_all();
    }
  }
}

// Numbers of chunks of shares are no places in what the tuner keeps of a tensor's chunks.
TEST(Residuals, AnOwnRecipeOnATunedTensorIsLossyInShares) {
  DaemonShape shape;
  shape.tuner = true;
  Cluster cluster({1, 1}, shape);
  cluster.join();
  TensorSpec spec{.name = "g", .count = 9'000, .role = Role::gradient, .recipe = "auto"};
  const auto tensors = cluster.declare(spec);
  KindCase c{.kind = OpKind::reduce_scatter, .counts = {9'000, 0}};
  std::vector<std::uint64_t> tickets;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    Client& client = *cluster.ranks[rank];
    OpRequest request = request_of(c, rank);
    request.recipe = "3lc:s=1";
    request.input = client.allocate(36'000);
    request.output = client.allocate(36'000);
    tickets.push_back(client.submit(request, tensors[rank]));
  }
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    Client& client = *cluster.ranks[rank];
    ASSERT_TRUE(cluster.world.run_until([&] { return client.done(tickets[rank]); }));
    EXPECT_EQ(client.result(tickets[rank]).status, Errc::ok) << client.result(tickets[rank]).detail;
  }
  cluster.leave_all();
}

TEST(Residuals, AShiftIsForAnAllReduce) {
  Cluster cluster({1, 1});
  cluster.join();
  TensorSpec spec{
      .name = "g", .count = 4'000, .role = Role::gradient, .recipe = "diana(qsgd:levels=4)"};
  const auto tensors = cluster.declare(spec);
  auto request = all_reduce(DType::f32, 4'000);
  request.kind = OpKind::reduce;
  // Raw too: a peer's block would find no stream of its chunk.
  for (const std::string own : {"", "raw"}) {
    request.recipe = own;
    const auto pending = cluster.submit(request, inputs_of(DType::f32, 4'000, 2), tensors);
    cluster.finish(pending);
    cluster.expect_all(pending, Errc::bad_recipe, "declare the tensor with ef");
    cluster.forget_arenas();
  }
}

// ---- What is wrong is said, and nobody else notices ---------------------------------------------

class BadShares : public testing::Test {
 protected:
  BadShares() : cluster({1, 1, 2}) { cluster.join(); }

  // What every rank hears when rank 1 alone submits something else.
  void expect_all_hear(const KindCase& all, const KindCase& of_one, const std::string& word) {
    std::vector<std::uint64_t> tickets;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      Client& client = *cluster.ranks[rank];
      OpRequest request = request_of(rank == 1 ? of_one : all, rank);
      request.input = client.allocate(4096);
      request.output = client.allocate(4096);
      tickets.push_back(client.submit(request));
    }
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      Client& client = *cluster.ranks[rank];
      ASSERT_TRUE(cluster.world.run_until([&] { return client.done(tickets[rank]); }));
      EXPECT_EQ(client.result(tickets[rank]).status, Errc::mismatch) << rank;
      EXPECT_TRUE(contains(client.result(tickets[rank]).detail, word))
          << client.result(tickets[rank]).detail;
    }
    cluster.forget_arenas();
  }

  Cluster cluster;
};

TEST_F(BadShares, CountsThatDisagreeBetweenNodesAreAMismatch) {
  const KindCase all{.kind = OpKind::all_gather, .counts = {4, 4, 4, 4}};
  KindCase other = all;
  other.counts = {4, 5, 3, 4};
  expect_all_hear(all, other, "counts");
  expect_kind(cluster, all, 1);
}

TEST_F(BadShares, EqualSharesAndCountsThatAreEqualAreNotTheSame) {
  const KindCase all{.kind = OpKind::scatter, .counts = {4, 4, 4, 4}};
  KindCase other = all;
  other.equal = true;
  expect_all_hear(all, other, "counts");
}

TEST_F(BadShares, AnotherKindIsAMismatchThatNamesBoth) {
  const KindCase all{.kind = OpKind::gather, .counts = {1, 1, 1, 1}, .equal = true};
  KindCase other = all;
  other.kind = OpKind::all_gather;
  expect_all_hear(all, other, "says all_gather 4 f32");
}

TEST_F(BadShares, AnotherRootIsAMismatch) {
  const KindCase all{.kind = OpKind::reduce, .counts = {1, 1, 1, 1}};
  KindCase other = all;
  other.root = 3;
  expect_all_hear(all, other, "to 3");
}

// Rank 1 of node 1 against ranks of other nodes and of its own.
TEST_F(BadShares, PairsThatDoNotAgreeAreAMismatchThatNamesARank) {
  KindCase all{.kind = OpKind::all_to_all};
  all.counts.assign(16, 3);
  KindCase other = all;
  other.counts[1 * 4 + 2] = 4;  // for rank 2
  expect_all_hear(all, other, "rank 2 expects 3 elements from rank 1");
  other = all;
  other.counts[0 * 4 + 1] = 5;  // from rank 0
  expect_all_hear(all, other, "rank 1 expects 5 elements from rank 0");
  other = all;
  other.counts[1 * 4 + 1] = 2;  // both of them are its own: nobody else would know
  expect_kind(cluster, all, 2);
}

// Who has heard all announcements begins to send: a receiver must have objected before.
TEST_F(BadShares, PairsAreComparedBeforeAllHaveSubmitted) {
  KindCase all{.kind = OpKind::all_to_all};
  all.counts.assign(16, 3);
  KindCase other = all;
  other.counts[0 * 4 + 1] = 5;  // rank 1 expects more of rank 0
  std::vector<std::uint64_t> tickets;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    Client& client = *cluster.ranks[rank];
    OpRequest request = request_of(rank == 1 ? other : all, rank);
    request.input = client.allocate(4096);
    request.output = client.allocate(4096);
    tickets.push_back(client.submit(request));
  }
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    Client& client = *cluster.ranks[rank];
    ASSERT_TRUE(cluster.world.run_until([&] { return client.done(tickets[rank]); }, kSecond));
    EXPECT_EQ(client.result(tickets[rank]).status, Errc::mismatch);
    EXPECT_TRUE(contains(client.result(tickets[rank]).detail, "rank 1 expects 5 elements"));
  }
}

TEST_F(BadShares, CountsThatAreNoSharesOfTheCountAreRefused) {
  Client& client = *cluster.ranks[0];
  const auto refusal = [&](OpKind kind, std::uint64_t count, std::vector<std::uint64_t> counts) {
    OpRequest request;
    request.kind = kind;
    request.count = count;
    request.counts = std::move(counts);
    const std::uint64_t ticket = client.submit(request);
    EXPECT_TRUE(cluster.world.run_until([&] { return client.done(ticket); }));
    EXPECT_EQ(client.result(ticket).status, Errc::invalid_argument);
    return client.result(ticket).detail;
  };
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  EXPECT_EQ(refusal(OpKind::all_gather, 10, {4, 4, 4, 4}), "the counts add up to more than count");
  EXPECT_EQ(refusal(OpKind::all_gather, 20, {4, 4, 4, 4}), "the counts add up to less than count");
  EXPECT_EQ(refusal(OpKind::reduce_scatter, 10, {kHuge, 5, 5, 1}),
            "the counts add up to more than count");
  EXPECT_EQ(refusal(OpKind::gather, 10, {}),
            "count must be a multiple of the group's size, or give counts");
  EXPECT_EQ(refusal(OpKind::all_reduce, 4, {1, 1, 1, 1}), "the operation takes no counts");
}

}  // namespace
}  // namespace tern::sim
