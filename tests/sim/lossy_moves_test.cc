// Lossy recipes on what moves, through whole daemons: gathered and broadcast deltas are encoded
// once, with memory, and everybody decodes the same bytes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "moved_deltas.h"

namespace tern::sim {
namespace {

using shm::OpKind;

class MovedRecipe : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(
    Recipes, MovedRecipe,
    testing::Values("3lc:s=1", "3lc:s=1.75", "none(3lc:s=1)", "3lc:s=1.5,layout=paper",
                    "3lc:s=1,scale=tensor", "ef(3lc:s=1+huffman)", "ef(bf16)", "none(bf16)",
                    "ef(int:bits=4)", "ef(lloyd:bits=3+huffman)", "ef(onebit)",
                    "ef(topk:p=0.05+int:bits=8)", "ef(randk:p=0.1)",
                    "none(blocksparse:p=0.25,block=64)", "none(qsgd:levels=4)"),
    [](const auto& one) {
      std::string name = one.param;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
      return name;
    });

TEST_P(MovedRecipe, GatheredDeltasMatchTheReferenceOverManySteps) {
  const std::vector<std::uint64_t> counts{1'000, 9'000, 0, 5'000};
  const std::uint32_t node_of[] = {0, 1, 1, 2};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    DaemonShape shape;
    shape.lanes = 2;
    Cluster cluster({1, 2, 1}, shape);
    JoinOptions options;
    options.verify = true;
    cluster.join(options);
    const auto tensors = cluster.declare(delta(GetParam(), 15'000, dtype));
    std::vector<MovedReference> senders;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      senders.emplace_back(*tensors[0], MovedReference::Sender{node_of[rank], rank, 4, false},
                           counts[rank]);
    }
    for (std::uint64_t step = 0; step < 4; ++step) {
      Move move = gather_of(dtype, counts, step + 1);
      if (step == 2) move.request.state_scale = 0.5f;
      move.in_place = step == 1;
      float node_max[3] = {};
      for (std::uint32_t rank = 0; rank < 4; ++rank) {
        float& max = node_max[node_of[rank]];
        max = std::max(max, senders[rank].largest(move.inputs[rank], move.request.state_scale));
      }
      std::vector<float> expected;
      for (std::uint32_t rank = 0; rank < 4; ++rank) {
        const auto share = senders[rank].deliver(move.inputs[rank], step, move.request.state_scale,
                                                 node_max[node_of[rank]]);
        expected.insert(expected.end(), share.begin(), share.end());
      }
      EXPECT_EQ(run(cluster, move, tensors).values == expected, true)
          << dtype_name(dtype) << " step " << step;
    }
    cluster.leave_all();
  }
}

TEST_P(MovedRecipe, ABroadcastDeltaMatchesTheReferenceOverManySteps) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    DaemonShape shape;
    shape.lanes = 2;
    Cluster cluster({2, 1, 1}, shape);
    cluster.join();
    const auto tensors = cluster.declare(delta(GetParam(), 10'000, dtype));
    MovedReference root(*tensors[0], {0, 0, 1, true, 3}, 10'000);
    for (std::uint64_t step = 0; step < 4; ++step) {
      Move move = broadcast_of(dtype, 10'000, 4, step + 1);
      const auto expected =
          root.deliver(move.inputs[1], step, 1.0f, root.largest(move.inputs[1], 1.0f));
      EXPECT_EQ(run(cluster, move, tensors).values == expected, true)
          << dtype_name(dtype) << " step " << step;
    }
    cluster.leave_all();
  }
}

TEST(LossyMoves, AreTheSameWithAnyNumberOfLanesAndSendFewBytes) {
  const std::vector<std::uint64_t> counts{20'000, 40'001, 7};
  std::vector<std::vector<float>> first;
  for (std::uint32_t lanes = 1; lanes <= 3; ++lanes) {
    DaemonShape shape;
    shape.lanes = lanes;
    Cluster cluster({1, 1, 1}, shape, lanes);
    cluster.join();
    const auto tensors = cluster.declare(delta("3lc:s=1", 60'008));
    for (std::size_t step = 0; step < 3; ++step) {
      const Moved moved = run(cluster, gather_of(DType::f32, counts, step + 1), tensors);
      if (first.size() == step) first.push_back(moved.values);
      EXPECT_EQ(moved.values == first[step], true) << lanes << " lanes, step " << step;
      EXPECT_LT(moved.bytes_sent, 2 * 60'008 * 4 / 8);
    }
    cluster.leave_all();
  }
}

// What has been delivered and what the sender keeps are what was given, to the bit: all values lie
// on a grid on which sums are exact.
TEST(LossyMoves, DeliveredAndKeptAreWhatWasGiven) {
  const std::vector<std::uint64_t> counts{6'000, 0, 2'000, 1'000};
  const std::uint32_t node_of[] = {0, 1, 1, 2};
  DaemonShape shape;
  shape.lanes = 2;
  Cluster cluster({1, 2, 1}, shape);
  cluster.join();
  const auto tensors = cluster.declare(delta("3lc:s=1", 9'000));
  std::vector<MovedReference> senders;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    senders.emplace_back(*tensors[0], MovedReference::Sender{node_of[rank], rank, 4, false},
                         counts[rank]);
  }
  std::vector<float> given(9'000), delivered(9'000);
  for (std::uint64_t step = 0; step < 20; ++step) {
    Move move = gather_of(DType::f32, counts, step + 1);
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      for (float& value : move.inputs[rank]) value = std::round(value * 1024) / 1024;
      senders[rank].deliver(move.inputs[rank], step, 1.0f, 0.0f);
    }
    const auto inputs = plain(move);
    const auto got = run(cluster, move, tensors).values;
    for (std::size_t i = 0; i < 9'000; ++i) {
      given[i] += inputs[i];
      delivered[i] += got[i];
    }
  }
  std::size_t at = 0, kept = 0;
  for (const MovedReference& sender : senders) {
    for (const float residual : sender.residual()) {
      ASSERT_EQ(given[at] - delivered[at], residual) << at;
      kept += residual != 0.0f ? 1 : 0;
      ++at;
    }
  }
  EXPECT_GT(kept, 1'000u) << "nothing was lost, so nothing was compressed";
}

struct Told {
  const char* name;
  OpKind kind;
  Role role;
  std::string recipe;  // of the declaration
  std::string own;     // of the op
  bool lossy;
  bool exempt = false;
  bool tuner = false;
};
void PrintTo(const Told& told, std::ostream* out) { *out << told.name; }
class WhoMayLose : public testing::TestWithParam<Told> {};
INSTANTIATE_TEST_SUITE_P(
    Moves, WhoMayLose,
    testing::Values(
        Told{"gathered_gradient", OpKind::all_gather, Role::gradient, "3lc:s=1", "", true},
        Told{"gathered_exact", OpKind::all_gather, Role::exact, "3lc:s=1", "", false},
        Told{"gathered_weights", OpKind::all_gather, Role::weights, "3lc:s=1", "", false},
        Told{"gathered_exempt", OpKind::all_gather, Role::delta, "3lc:s=1", "", false, true},
        Told{"gathered_raw", OpKind::all_gather, Role::delta, "3lc:s=1", "raw", false},
        Told{"gathered_raw_on_auto", OpKind::all_gather, Role::delta, "auto", "raw", false, false,
             true},
        Told{"broadcast_default", OpKind::broadcast, Role::delta, "", "", false, false, true},
        Told{"broadcast_auto", OpKind::broadcast, Role::delta, "auto", "", false, false, true},
        Told{"broadcast_gradient", OpKind::broadcast, Role::gradient, "3lc:s=1", "", false},
        Told{"broadcast_exact", OpKind::broadcast, Role::exact, "3lc:s=1", "", false},
        Told{"broadcast_weights", OpKind::broadcast, Role::weights, "3lc:s=1", "", false},
        Told{"broadcast_exempt", OpKind::broadcast, Role::delta, "3lc:s=1", "", false, true},
        Told{"broadcast_asks_in_the_op", OpKind::broadcast, Role::delta, "auto", "3lc:s=1", true,
             false, true},
        Told{"broadcast_op_is_auto", OpKind::broadcast, Role::delta, "3lc:s=1", "auto", false}),
    [](const auto& one) { return std::string(one.param.name); });

TEST_P(WhoMayLose, IsAsDeclared) {
  const Told& told = GetParam();
  DaemonShape shape;
  shape.tuner = told.tuner;
  Cluster cluster({1, 1}, shape);
  cluster.join();
  TensorSpec spec = delta(told.recipe, 9'000);
  spec.role = told.role;
  spec.exempt = told.exempt;
  const auto tensors = cluster.declare(spec);
  for (std::uint64_t step = 1; step <= 2; ++step) {
    Move move = told.kind == OpKind::all_gather ? gather_of(DType::f32, {8'000, 1'000}, step)
                                                : broadcast_of(DType::f32, 9'000, 2, step);
    move.request.recipe = told.own;
    EXPECT_EQ(run(cluster, move, tensors).values != plain(move), told.lossy) << "step " << step;
  }
  cluster.leave_all();
}

// What the operator sets for all is no word of the application's.
TEST(LossyMoves, TheDefaultRecipeDoesNotReachABroadcast) {
  DaemonShape shape;
  shape.adjust = [](daemon::ConductorSettings& settings) {
    settings.tensors.default_gradient_recipe = "3lc:s=1";
  };
  Cluster cluster({1, 1}, shape);
  cluster.join();
  const auto tensors = cluster.declare(delta("", 9'000));
  const Move move = broadcast_of(DType::f32, 9'000, 2, 1);
  EXPECT_EQ(run(cluster, move, tensors).values == plain(move), true);
  const Move gather = gather_of(DType::f32, {8'000, 1'000}, 1);
  EXPECT_EQ(run(cluster, gather, tensors).values != plain(gather), true);
}

// ---- Ops that would fit in their announcements --------------------------------------------------

TEST(LossyMoves, OnesThatFitInTheirAnnouncementsAreCompressed) {
  DaemonShape shape;
  shape.eager_bytes = 64 << 10;
  Cluster cluster({1, 2, 1}, shape);
  cluster.join();
  for (const OpKind kind : {OpKind::all_gather, OpKind::broadcast}) {
    TensorSpec spec = delta("3lc:s=1", 4'000);
    spec.name = kind == OpKind::broadcast ? "b" : "g";
    const auto tensors = cluster.declare(spec);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      Move move = kind == OpKind::broadcast
                      ? broadcast_of(DType::f32, 4'000, 4, step)
                      : gather_of(DType::f32, std::vector<std::uint64_t>(4, 1'000), step);
      move.request.counts.clear();
      const Moved moved = run(cluster, move, tensors);
      EXPECT_EQ(moved.values != plain(move), true);
      EXPECT_LT(moved.bytes_sent, 2 * 4'000 * 4 / 4) << "step " << step;
    }
  }
  cluster.leave_all();
}

// One rank's own recipe for the op, without a word to the others.
TEST(LossyMoves, OneNodeThatCompressesMakesNoOpEager) {
  DaemonShape shape;
  shape.eager_bytes = 64 << 10;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Cluster cluster({1, 1, 1}, shape, seed);
    cluster.join();
    const auto tensors = cluster.declare(delta("none(raw)", 3'000));
    for (std::uint32_t compressing = 0; compressing < 3; ++compressing) {
      Move move = gather_of(DType::f32, {1'000, 1'000, 1'000}, seed + compressing);
      move.request.counts.clear();
      move.recipes.resize(3);
      move.recipes[compressing] = "none(bf16)";
      const auto got = run(cluster, move, tensors).values;
      const auto exact = plain(move);
      for (std::uint32_t rank = 0; rank < 3; ++rank) {
        const auto begin = std::ptrdiff_t{1'000} * rank;
        EXPECT_EQ(
            std::equal(got.begin() + begin, got.begin() + begin + 1'000, exact.begin() + begin),
            rank != compressing)
            << "seed " << seed << ", rank " << rank;
      }
    }
    cluster.leave_all();
  }
}

// ---- Memory -------------------------------------------------------------------------------------

// A share that overflowed travels as it is, and the residual is that of the step before.
TEST(LossyMoves, AChunkWithAnInfinityTravelsRawAndLeavesTheResidual) {
  const std::vector<std::uint64_t> counts{6'000, 3'000};
  for (const std::string recipe : {"3lc:s=1", "ef(int:bits=4)"}) {
    Cluster cluster({1, 1});
    cluster.join();
    const auto tensors = cluster.declare(delta(recipe, 9'000));
    std::vector<MovedReference> senders;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      senders.emplace_back(*tensors[0], MovedReference::Sender{rank, rank, 2, false}, counts[rank]);
    }
    for (std::uint64_t step = 0; step < 4; ++step) {
      Move move = gather_of(DType::f32, counts, step + 1);
      if (step == 1) move.inputs[0][4'200] = std::numeric_limits<float>::infinity();
      const std::vector<float> before = senders[0].residual();
      std::vector<float> expected;
      for (std::uint32_t rank = 0; rank < 2; ++rank) {
        const auto share = senders[rank].deliver(move.inputs[rank], step, 1.0f, 0.0f);
        expected.insert(expected.end(), share.begin(), share.end());
      }
      const auto got = run(cluster, move, tensors).values;
      EXPECT_EQ(got == expected, true) << recipe << " step " << step;
      if (step == 1) {
        EXPECT_EQ(
            std::equal(move.inputs[0].begin() + 4'096, move.inputs[0].end(), got.begin() + 4'096),
            true);
        EXPECT_EQ(
            std::equal(before.begin() + 4'096, before.end(), senders[0].residual().begin() + 4'096),
            true);
      }
    }
    cluster.leave_all();
  }
}

TEST(LossyMoves, AResidualIsOfOneKindAndItsCounts) {
  Cluster cluster({1, 1});
  cluster.join();
  const auto tensors = cluster.declare(delta("3lc:s=1", 9'000));
  run(cluster, gather_of(DType::f32, {8'000, 1'000}, 1), tensors);
  expect_refused(cluster, gather_of(DType::f32, {1'000, 8'000}, 2), tensors,
                 "declare a tensor for each");
  expect_refused(cluster, broadcast_of(DType::f32, 9'000, 2, 3), tensors,
                 "declare a tensor for each");
  // What loses nothing needs no residual.
  Move raw = broadcast_of(DType::f32, 9'000, 2, 4);
  raw.request.recipe = "raw";
  EXPECT_EQ(run(cluster, raw, tensors).values == plain(raw), true);
  run(cluster, gather_of(DType::f32, {8'000, 1'000}, 5), tensors);
  cluster.leave_all();
}

TEST(LossyMoves, AShiftIsForAnAllReduce) {
  Cluster cluster({1, 1});
  cluster.join();
  const auto tensors = cluster.declare(delta("diana(qsgd:levels=4)", 9'000));
  expect_refused(cluster, gather_of(DType::f32, {8'000, 1'000}, 1), tensors,
                 "declare the tensor with ef");
  Move raw = gather_of(DType::f32, {8'000, 1'000}, 2);
  raw.request.recipe = "raw";
  EXPECT_EQ(run(cluster, raw, tensors).values == plain(raw), true);
  cluster.leave_all();
}

// Numbers of chunks of shares are no places in what the tuner keeps of a tensor's chunks.
TEST(LossyMoves, AnOwnRecipeOnATunedTensorIsLossyInShares) {
  DaemonShape shape;
  shape.tuner = true;
  Cluster cluster({1, 1}, shape);
  cluster.join();
  const auto tensors = cluster.declare(delta("auto", 9'000));
  Move move = gather_of(DType::f32, {9'000, 0}, 1);
  move.request.recipe = "3lc:s=1";
  EXPECT_EQ(run(cluster, move, tensors).values != plain(move), true);
  cluster.leave_all();
}

}  // namespace
}  // namespace tern::sim
