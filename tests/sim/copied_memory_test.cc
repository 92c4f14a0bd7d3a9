// Ops whose memory is copied while lanes work: a lane reads nothing before it is there, lists what
// it has delivered once and for good, and a watermark that lies or stands still harms its own op.
// TERN_SIM_SEEDS: how many seeds, times ten.

#include <gtest/gtest.h>

#include <cstdlib>

#include "every_kind.h"
#include "point_to_point.h"

namespace tern::sim {
namespace {

constexpr std::uint64_t kChunkBytes = 16 << 10;  // of DaemonShape
constexpr std::uint64_t kMillisecond = 1'000'000;

TEST(CopiedMemory, EveryKindIsRightWhileItIsCopied) {
  const char* const wanted = std::getenv("TERN_SIM_SEEDS");
  const std::uint64_t seeds = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) / 10 : 60;
  std::uint64_t listed = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    std::mt19937_64 random(seed);
    DaemonShape shape;
    shape.lanes = static_cast<std::uint32_t>(random() % 3 + 1);
    Cluster cluster(draw_nodes(random), shape, seed);
    JoinOptions options;
    options.verify = random() % 3 == 0;
    cluster.join(options);
    // Some ranks have their memory in the arena.
    for (Client* client : cluster.ranks) {
      if (random() % 3 != 0) client->copying.seed = random() | 1;
    }
    std::vector<KindCase> kinds;
    std::vector<std::vector<SubmittedKind>> submitted;
    for (int i = 0; i < 5; ++i) {
      kinds.push_back(draw_kind(random, cluster.size()));
      submitted.push_back(submit_kind(cluster, kinds.back(), random()));
    }
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << words_of(kinds[i]));
      for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
        Client& client = *cluster.ranks[rank];
        const std::uint64_t ticket = submitted[i][rank].ticket;
        ASSERT_TRUE(cluster.world.run_until([&] { return client.done(ticket); })) << rank;
        ASSERT_EQ(client.result(ticket).status, Errc::ok) << client.result(ticket).detail;
        ASSERT_EQ(wrong_in(cluster, kinds[i], rank, submitted[i][rank]), "");
        ASSERT_EQ(client.copying.wrong_in_lists, "") << "rank " << rank;
      }
    }
    for (const Client* client : cluster.ranks) listed += client->copying.listed_bytes;
    cluster.leave_all();
  }
  EXPECT_GT(listed, 0u) << "lanes have listed nothing";
}

class TwoRanks : public testing::Test {
 protected:
  TwoRanks() : cluster({1, 1}) {}

  void join(std::int64_t op_timeout_ms = 0) {
    JoinOptions options;
    options.op_timeout_ms = op_timeout_ms;
    cluster.join(options);
  }
  // Of so many chunks; rank 0 copies its memory as the test says.
  Cluster::Pending submit(std::uint64_t chunks = 8) {
    cluster.ranks[0]->copying.seed = 1;
    const std::uint64_t count = chunks * kChunkBytes / sizeof(float);
    auto pending = cluster.submit(all_reduce(DType::f32, count), inputs_of(DType::f32, count, 2));
    cluster.ranks[0]->copying.seed = 0;
    copier(pending).stop();
    return pending;
  }
  Copier& copier(const Cluster::Pending& pending) {
    return cluster.ranks[0]->copier(pending.tickets[0]);
  }
  void expect_sum(const Cluster::Pending& pending) {
    cluster.finish(pending);
    cluster.expect_all(pending, Errc::ok);
    const Bytes sum = cluster.reference->all_reduce(pending.request, nullptr, 0, pending.inputs);
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(cluster.output(pending, rank) == sum, true) << "rank " << rank;
    }
    EXPECT_EQ(cluster.ranks[0]->copying.wrong_in_lists, "");
  }
  // An op in the arena goes through.
  void expect_another_op() {
    const auto inputs = inputs_of(DType::f32, 20'000, 2, 3);
    const auto other = cluster.submit(all_reduce(DType::f32, 20'000), inputs);
    cluster.finish(other);
    cluster.expect_all(other, Errc::ok);
  }

  Cluster cluster;
};

TEST_F(TwoRanks, WhatIsThereIsReducedAndListed) {
  join();
  const auto pending = submit();
  cluster.world.run_for(100 * kMillisecond);
  EXPECT_EQ(copier(pending).taken_bytes(), 0u);
  copier(pending).fill(5 * kChunkBytes - 4);
  cluster.world.run_for(100 * kMillisecond);
  EXPECT_EQ(copier(pending).taken_bytes(), 4 * kChunkBytes) << "the fifth lacks an element";
  EXPECT_FALSE(cluster.ranks[0]->done(pending.tickets[0]));
  copier(pending).fill(8 * kChunkBytes);
  expect_sum(pending);
}

TEST_F(TwoRanks, AnotherOpDoesNotWait) {
  join();
  const auto pending = submit();
  cluster.world.run_for(kMillisecond);
  expect_another_op();
  copier(pending).fill(8 * kChunkBytes);
  expect_sum(pending);
}

TEST_F(TwoRanks, WhatTravelsWithItsAnnouncementWaitsForAllOfIt) {
  join();
  cluster.ranks[0]->copying.seed = 1;
  const auto pending = cluster.submit(all_reduce(DType::f32, 100), inputs_of(DType::f32, 100, 2));
  cluster.ranks[0]->copying.seed = 0;
  copier(pending).stop();
  copier(pending).fill(396);
  cluster.world.run_for(100 * kMillisecond);
  EXPECT_FALSE(cluster.ranks[0]->done(pending.tickets[0]));
  expect_another_op();
  copier(pending).fill(400);
  cluster.finish(pending);
  cluster.expect_all(pending, Errc::ok);
}

TEST_F(TwoRanks, AWatermarkBeyondTheInputFailsItsOp) {
  join();
  const auto pending = submit();
  copier(pending).say(8 * kChunkBytes + 1);
  cluster.finish(pending);
  cluster.expect_all(pending, Errc::invalid_argument,
                     "rank 0: the watermark of its input says 131073 of 131072 bytes, after 0");
  expect_another_op();
  cluster.leave_all();
}

TEST_F(TwoRanks, AWatermarkThatFallsFailsItsOp) {
  join();
  const auto pending = submit();
  copier(pending).fill(kChunkBytes);
  cluster.world.run_for(kMillisecond);
  copier(pending).say(kChunkBytes - 1);
  cluster.finish(pending);
  cluster.expect_all(pending, Errc::invalid_argument,
                     "rank 0: the watermark of its input says 16383 of 131072 bytes, after 16384");
  expect_another_op();
  cluster.leave_all();
}

TEST_F(TwoRanks, AWatermarkThatStandsStillEndsWithTheTimeout) {
  join(2000);
  const auto pending = submit();
  cluster.world.run_for(1500 * kMillisecond);
  copier(pending).fill(kChunkBytes);
  cluster.world.run_for(1500 * kMillisecond);
  EXPECT_FALSE(cluster.ranks[0]->done(pending.tickets[0])) << "it has moved meanwhile";
  cluster.finish(pending);
  cluster.expect_all(pending, Errc::op_timeout,
                     "rank 0: for 2000 ms its input has stopped at 16384 of 131072 bytes");
  expect_another_op();
  cluster.leave_all();
}

TEST_F(TwoRanks, ACancelEndsAnOpWhoseInputIsNotThere) {
  join();
  const auto pending = submit();
  copier(pending).fill(3 * kChunkBytes);
  cluster.world.run_for(kMillisecond);
  cluster.ranks[1]->cancel(pending.tickets[1]);
  cluster.finish(pending);
  cluster.expect_all(pending, Errc::cancelled);
  expect_another_op();
  cluster.leave_all();
}

TEST_F(TwoRanks, AClientThatDiesWhileItCopiesLeavesNothing) {
  join();
  const auto pending = submit();
  copier(pending).fill(3 * kChunkBytes);
  cluster.world.run_for(kMillisecond);
  cluster.world.close(*cluster.ranks[0]);
  cluster.ranks[0] = nullptr;
  ASSERT_TRUE(cluster.world.run_until([&] { return cluster.ranks[1]->done(pending.tickets[1]); }));
  EXPECT_EQ(cluster.result(pending, 1).status, Errc::rank_lost);
  cluster.ranks[1]->goodbye();
  EXPECT_TRUE(
      cluster.world.run_until([this] { return cluster.world.find_leak().empty(); }, 100 * kSecond));
}

// The same ops with and without copies: what a codec remembers is moved once.
TEST(CopiedTensors, LossyOpsHaveTheSameBits) {
  for (const char* recipe : {"3lc:s=1", "ef(3lc:s=1,scale=tensor)", "lossless"}) {
    SCOPED_TRACE(recipe);
    std::vector<Bytes> results[2];
    for (const bool copied : {false, true}) {
      Cluster cluster({1, 2, 1});
      cluster.join();
      const auto tensors =
          cluster.declare({"g", 40'000, DType::f32, Role::gradient, false, recipe});
      if (copied) {
        for (Client* client : cluster.ranks) client->copying.seed = client->id();
      }
      for (std::uint64_t use = 0; use < 4; ++use) {
        const auto inputs = inputs_of(DType::f32, 40'000, 4, use);
        results[copied].push_back(
            cluster.reduce(all_reduce(DType::f32, 40'000), inputs, tensors, use % 2 == 1));
        for (const Client* client : cluster.ranks) EXPECT_EQ(client->copying.wrong_in_lists, "");
        cluster.forget_arenas();
      }
    }
    EXPECT_EQ(results[0] == results[1], true);
  }
}

// Sends of so many pieces, of 16 KiB.
class TwoPassing : public testing::Test {
 protected:
  TwoPassing() : cluster({2, 1}) {}

  void join(std::int64_t op_timeout_ms = 0) {
    JoinOptions options;
    options.op_timeout_ms = op_timeout_ms;
    cluster.join(options);
  }
  // The test says how the rank's memory is copied.
  Passed submit_send(std::uint32_t to, std::uint64_t pieces, const std::string& recipe = "") {
    Client& client = *cluster.ranks[0];
    client.copying.seed = 1;
    OpRequest request =
        pass_request(shm::OpKind::send, {to, 7, pieces * kChunkBytes / 4, DType::f32});
    request.recipe = recipe;
    request.input = request.output = client.allocate(pieces * kChunkBytes + 1);
    for (std::uint64_t i = 0; i < pieces * kChunkBytes; ++i) {
      client.at(request.input)[i] = byte_of(3, i);
    }
    const Passed out{&client, client.submit(request), request.input, request.count};
    client.copying.seed = 0;
    copier(out).stop();
    return out;
  }
  Copier& copier(const Passed& passed) { return passed.client->copier(passed.ticket); }
  Passed submit_recv(std::uint32_t at, std::uint64_t pieces) {
    cluster.ranks[at]->copying.seed = 1;
    const Passed in = recv(cluster, at, {0, 7, pieces * kChunkBytes / 4, DType::f32});
    cluster.ranks[at]->copying.seed = 0;
    return in;
  }

  Cluster cluster;
};

TEST_F(TwoPassing, WhatIsThereIsSentAndListed) {
  join();
  for (const std::uint32_t to : {2u, 1u}) {
    const Passed out = submit_send(to, 8);
    const Passed in = submit_recv(to, 9);
    cluster.world.run_for(100 * kMillisecond);
    EXPECT_EQ(copier(in).taken_bytes(), 0u);
    copier(out).fill(5 * kChunkBytes - 4);
    cluster.world.run_for(100 * kMillisecond);
    EXPECT_EQ(copier(in).taken_bytes(), 4 * kChunkBytes) << "the fifth lacks an element";
    EXPECT_FALSE(out.done());
    copier(out).fill(8 * kChunkBytes);
    await(cluster, out);
    await(cluster, in);
    EXPECT_EQ(out.result().status, Errc::ok) << out.result().detail;
    expect_bytes(in, 3, 8 * kChunkBytes);
    EXPECT_EQ(in.client->copying.wrong_in_lists, "");
  }
  cluster.leave_all();
}

TEST_F(TwoPassing, AWatermarkThatLiesFailsItsSendAndTheRecv) {
  join();
  for (const std::uint32_t to : {2u, 1u}) {
    const Passed out = submit_send(to, 2);
    const Passed in = submit_recv(to, 2);
    cluster.world.run_for(kMillisecond);
    copier(out).say(2 * kChunkBytes + 1);
    await(cluster, out);
    await(cluster, in);
    const std::string text =
        "rank 0: the watermark of its input says 32769 of 32768 bytes, after 0";
    expect_failed(out, Errc::invalid_argument, text);
    expect_failed(in, Errc::invalid_argument, text);
  }
  const Passed next = send(cluster, 0, {2, 7, 100}, 4);
  const Passed next_in = recv(cluster, 2, {0, 7, 100});
  await(cluster, next_in);
  expect_bytes(next_in, 4, 100);
  await(cluster, next);
  cluster.leave_all();
}

TEST_F(TwoPassing, OneThatStandsStillFailsBothAfterTheTimeoutAndNamesTheRank) {
  join(2000);
  const Passed out = submit_send(2, 4);
  const Passed in = submit_recv(2, 4);
  copier(out).fill(kChunkBytes + 8);
  await(cluster, out);
  await(cluster, in);
  EXPECT_EQ(out.result().status, Errc::op_timeout);
  EXPECT_TRUE(contains(out.result().detail, "rank 0")) << out.result().detail;
  EXPECT_EQ(in.result().status, Errc::op_timeout);
  EXPECT_TRUE(contains(in.result().detail, "rank 0")) << in.result().detail;
  cluster.leave_all();
}

// Blocks are cut as they would be if all of it were there.
TEST_F(TwoPassing, WithARecipeTheBitsAreTheSameHoweverItComes) {
  join();
  std::vector<Bytes> got;
  for (const std::uint64_t first : {3 * kChunkBytes + 4, std::uint64_t{8}, 5 * kChunkBytes}) {
    const Passed out = submit_send(2, 6, "none(int:bits=8)");
    OpRequest request = pass_request(shm::OpKind::recv, {0, 7, 6 * kChunkBytes / 4, DType::f32});
    request.recipe = "bf16";
    Client& client = *cluster.ranks[2];
    request.input = request.output = client.allocate(6 * kChunkBytes);
    const Passed in{&client, client.submit(request), request.output, request.count};
    copier(out).fill(first);
    cluster.world.run_for(100 * kMillisecond);
    copier(out).fill(6 * kChunkBytes);
    await(cluster, in);
    await(cluster, out);
    ASSERT_EQ(in.result().status, Errc::ok) << in.result().detail;
    got.emplace_back(client.at(in.at), client.at(in.at) + 6 * kChunkBytes);
  }
  EXPECT_EQ(got[0] == got[1] && got[1] == got[2], true);
  cluster.leave_all();
}

}  // namespace
}  // namespace tern::sim
