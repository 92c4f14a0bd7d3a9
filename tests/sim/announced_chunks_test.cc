// Ops that do not fit whole into their announcements, where each owner's chunk does: the bits of
// results, the frames, what the residuals do, and whose time is counted. What a member breaks is in
// tests/e2e/bad_member_test.cc.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "small_nodes.h"
#include "wire/frame.h"

namespace tern::sim {
namespace announced_chunks_test {

// `old`: which daemon holds the second form, "all" or none.
DaemonShape announcing(const std::string& old = "") {
  return with_old_form(announcing_up_to(32 << 10), 2, old);  // 16 KiB between three nodes
}

// How many frames of each kind, on all links.
struct Frames {
  explicit Frames(World& world) : of(world) {
    world.tap = [this](const net::OutgoingFrame& frame) {
      ++sent[wire::parse_frame_header(frame.head).header.kind];
    };
  }
  ~Frames() { of.tap = nullptr; }
  Frames(const Frames&) = delete;
  Frames& operator=(const Frames&) = delete;
  std::uint64_t count(wire::FrameKind kind) { return sent[static_cast<std::uint8_t>(kind)]; }

  World& of;
  std::map<std::uint8_t, std::uint64_t> sent;
};

class AnnouncedChunks : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipes, AnnouncedChunks, kSmallRecipes);

TEST_P(AnnouncedChunks, GiveTheBitsOfTheTwoLegs) {
  for (const char* old : {"", "node1", "all"}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      const std::uint64_t count = dtype == DType::f32 ? kSmallCount : 2 * kSmallCount;
      for (const Reduction reduction : {Reduction::sum, Reduction::average, Reduction::max}) {
        Cluster cluster(kSmallRanks, announcing(old));
        cluster.join();
        const auto tensors = cluster.declare(small_tensor(GetParam(), dtype, count));
        for (std::uint64_t step = 0; step < 4; ++step) {
          auto request = all_reduce(dtype, count, reduction);
          if (step == 2) request.state_scale = 0.5f;
          const auto inputs = inputs_of(dtype, count, cluster.size(), step + 1);
          const Bytes got = cluster.reduce(request, inputs, tensors);
          EXPECT_EQ(got == cluster.reference->all_reduce(request, tensors[0], step, inputs), true)
              << dtype_name(dtype) << " " << reduction_name(reduction) << " step " << step
              << ", old: " << old;
          cluster.forget_arenas();
        }
      }
    }
  }
}

TEST_P(AnnouncedChunks, TakeNoGrantsUnlessTheirRecipeNeedsTheLegs) {
  const std::string recipe = GetParam();
  const bool needs_legs = recipe == "xordelta" || recipe.find("scale=tensor") != recipe.npos ||
                          recipe.starts_with("diana") || recipe.starts_with("ef21");
  for (const bool old : {false, true}) {
    SmallNodes nodes(recipe, announcing(old ? "all" : ""));
    Frames frames(nodes.cluster.world);
    nodes.step(0);
    EXPECT_EQ(frames.count(wire::FrameKind::announce), 6u);
    EXPECT_EQ(frames.count(wire::FrameKind::result), 6u);
    const bool legs = needs_legs || old;
    EXPECT_EQ(frames.count(wire::FrameKind::grant), legs ? 6u : 0u);
    EXPECT_EQ(frames.count(wire::FrameKind::contribution), legs ? 6u : 0u);
  }
}

TEST(AnnouncedChunksOfAnOp, AreElementsWhereOneIsNotFinite) {
  SmallNodes nodes("3lc:s=1", announcing());
  nodes.step(0);
  auto inputs = nodes.inputs(1);
  auto values = floats_of(DType::f32, inputs[1]);  // of node 1
  values[17] = std::numeric_limits<float>::quiet_NaN();
  inputs[1] = bytes_of(DType::f32, values);
  const OpRequest op = all_reduce(DType::f32, kSmallCount);
  const auto got = floats_of(DType::f32, nodes.cluster.reduce(op, inputs, nodes.tensors));
  EXPECT_TRUE(std::isnan(got[17]));
  EXPECT_TRUE(std::isfinite(got[18]));
}

class AnnouncedChunksThatFail : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipes, AnnouncedChunksThatFail,
                         testing::Values("3lc:s=1", "ef(int:bits=4)", "ef(lloyd:bits=3)"));

// Neither residuals nor levels that are learnt: what comes then is as if it had not been.
TEST_P(AnnouncedChunksThatFail, TakeNothingWithThemBeforeTheyBegin) {
  SmallNodes nodes(GetParam(), announcing());
  const auto expect_step = [&nodes](std::uint64_t step) {
    const Bytes expected = nodes.cluster.reference->all_reduce(
        all_reduce(DType::f32, kSmallCount), nodes.tensors[0], step, nodes.inputs(step));
    EXPECT_EQ(nodes.step(step) == expected, true) << step;
  };
  expect_step(0);
  const std::vector<Bytes> before = nodes.parts();
  nodes.cancel_before_all_announce(1);
  EXPECT_EQ(nodes.parts(), before);
  for (std::uint64_t step = 2; step < 4; ++step) expect_step(step);
}

// A rank that comes late is waited for; neither the wire nor the op took so long.
TEST(AnnouncedChunksOfAnOp, BeginWhenTheLastNodeHasAnnounced) {
  SmallNodes nodes("3lc:s=1", announcing());
  const auto inputs = nodes.inputs(0);
  std::vector<std::uint64_t> tickets;
  for (std::uint32_t rank = 0; rank < nodes.cluster.size(); ++rank) {
    if (rank == 3) nodes.cluster.world.run_until([] { return false; }, kSecond);
    tickets.push_back(nodes.submit(rank, inputs[rank]));
  }
  for (std::uint32_t rank = 0; rank < nodes.cluster.size(); ++rank) {
    Client& client = *nodes.cluster.ranks[rank];
    ASSERT_TRUE(nodes.cluster.world.run_until([&] { return client.done(tickets[rank]); }));
    EXPECT_EQ(client.result(tickets[rank]).status, Errc::ok);
    const std::uint64_t request =
        client.ask_of(shm::PacketKind::tensor_stats, nodes.tensors[rank]->id);
    ASSERT_TRUE(nodes.cluster.await(client, request));
    const auto stats = client.answer<shm::TensorStatsPacket>(request);
    if (rank != 3) {
      EXPECT_GE(stats->wait_ns, kSecond);
    }
    EXPECT_LT(stats->queue_ns + stats->wire_ns, kSecond / 2) << rank;
  }
}

}  // namespace announced_chunks_test
}  // namespace tern::sim
