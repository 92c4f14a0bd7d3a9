// The memories of recipes between whole daemons: what they refuse, and streams that survive a
// failed operation. Where descents end is convergence_test.cc's.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "cluster.h"

namespace tern::sim {
namespace {

constexpr std::uint64_t kElements = 4096;
DaemonShape small_ops() {
  DaemonShape shape;
  shape.eager_bytes = 64;
  return shape;
}

TensorSpec tensor(const std::string& recipe, Role role, DType dtype = DType::f32) {
  TensorSpec spec;
  spec.name = "t";
  spec.count = kElements;
  spec.dtype = dtype;
  spec.role = role;
  spec.recipe = recipe;
  return spec;
}

TEST(Lossless, AllReduceGivesTheSameBitsInFewerBytes) {
  for (const std::string recipe : {"lossless", "xordelta"}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      Cluster cluster({1, 2, 1}, small_ops());
      cluster.join();
      const auto tensors = cluster.declare(tensor(recipe, Role::weights, dtype));
      for (std::uint64_t step = 0; step < 3; ++step) {
        const auto inputs = inputs_of(dtype, kElements, 4, step + 1);
        const auto request = all_reduce(dtype, kElements);
        const auto pending = cluster.submit(request, inputs, tensors);
        cluster.finish(pending);
        cluster.expect_all(pending, Errc::ok);
        EXPECT_EQ(cluster.output(pending, 3) ==
                      cluster.reference->all_reduce(request, tensors[0], step, inputs),
                  true)
            << recipe << " " << dtype_name(dtype) << " step " << step;
        cluster.forget_arenas();
      }
      cluster.leave_all();
    }
  }
}

// What overflows in the type of the tensor travels raw and leaves no infinity in the residual.
TEST(Memories, ASumThatOverflowsF16LeavesTheResidualUnhurt) {
  for (const std::string recipe : {"ef(int:bits=4)", "ef(lloyd:bits=2)", "ef(topk:p=0.1)"}) {
    Cluster cluster({1, 1}, small_ops());
    cluster.join();
    const auto tensors = cluster.declare(tensor(recipe, Role::gradient, DType::f16));
    const std::vector<float> large(kElements, 40000.0f);
    const std::vector<Bytes> inputs(2, bytes_of(DType::f16, large));
    const auto sums =
        floats_of(DType::f16, cluster.reduce(all_reduce(DType::f16, kElements), inputs, tensors));
    EXPECT_TRUE(std::any_of(sums.begin(), sums.end(), [](float v) { return std::isinf(v); }));
    cluster.forget_arenas();
    const auto normal = inputs_of(DType::f16, kElements, 2, 3);
    const auto pending = cluster.submit(all_reduce(DType::f16, kElements), normal, tensors);
    cluster.finish(pending);
    cluster.expect_all(pending, Errc::ok);
    EXPECT_LT(cluster.result(pending, 0).bytes_sent, 2 * kElements * 2 / 3) << recipe;
    for (const float value : floats_of(DType::f16, cluster.output(pending, 0))) {
      ASSERT_TRUE(std::isfinite(value)) << recipe;
    }
  }
}

// The role decides whether there is state: an operation cannot claim another one.
TEST(Memories, AnOperationsRoleIsThatOfItsTensor) {
  Cluster cluster({1, 1}, small_ops());
  cluster.join();
  const auto tensors = cluster.declare(tensor("ef21(topk:p=0.1)", Role::exact));
  for (Tensor* lying : tensors) lying->spec.role = Role::gradient;
  const auto pending = cluster.submit(all_reduce(DType::f32, kElements),
                                      inputs_of(DType::f32, kElements, 2), tensors);
  cluster.finish(pending);
  cluster.expect_all(pending, Errc::invalid_argument, "role");
}

OpRequest broadcast_from(std::uint32_t root) {
  OpRequest request = all_reduce(DType::f32, kElements);
  request.kind = shm::OpKind::broadcast;
  request.root = root;
  return request;
}

// Weights that hardly change: what they were is known on both sides.
TEST(Lossless, XorDeltaSendsWhatHasChanged) {
  Cluster cluster({1, 1, 1}, small_ops());
  cluster.join();
  const auto tensors = cluster.declare(tensor("xordelta", Role::weights));
  auto weights = values_of(kElements, 3);
  std::vector<std::uint64_t> sent;
  for (std::uint64_t step = 0; step < 6; ++step) {
    const std::uint32_t root = step == 4 ? 1 : 0;  // another root has a stream of its own
    for (std::uint64_t i = step; i < kElements; i += 50) weights[i] += 1.0f;
    const std::vector<Bytes> inputs(3, bytes_of(DType::f32, weights));
    const auto pending = cluster.submit(broadcast_from(root), inputs, tensors);
    cluster.finish(pending);
    cluster.expect_all(pending, Errc::ok);
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(cluster.output(pending, rank) == inputs[0], true) << "step " << step;
    }
    sent.push_back(cluster.result(pending, root).bytes_sent);
    cluster.forget_arenas();
  }
  EXPECT_LT(sent[1], kElements * 4 * 2 / 8);  // two receivers; two in a hundred have changed
  EXPECT_LT(sent[5], kElements * 4 * 2 / 8);
}

// An operation that fails may have moved one end of a stream and not the other.
TEST(Streams, AFailedOperationIsFollowedByRightOnes) {
  for (const std::string recipe : {"diana(qsgd:levels=4)", "ef21(topk:p=0.1)"}) {
    Cluster cluster({1, 1, 1}, small_ops());
    cluster.join();
    const auto tensors = cluster.declare(tensor(recipe, Role::gradient));
    const auto good = inputs_of(DType::f32, kElements, 3, 9);
    const auto exact =
        floats_of(DType::f32, cluster.reduce(all_reduce(DType::f32, kElements), good, {}));
    cluster.reduce(all_reduce(DType::f32, kElements), good, tensors);
    // A wrong count on one rank alone is refused at its submission; a cancel fails the op
    // everywhere.
    const auto doomed = cluster.submit(all_reduce(DType::f32, kElements), good, tensors);
    cluster.ranks[1]->cancel(doomed.tickets[1]);
    cluster.finish(doomed);
    double error = 1;
    for (int step = 0; step < 60; ++step) {
      const auto pending = cluster.submit(all_reduce(DType::f32, kElements), good, tensors);
      cluster.finish(pending);
      const bool ok = cluster.result(pending, 0).status == Errc::ok;
      // What failed has left the ends apart, and the announcement of the next op mends it.
      cluster.expect_all(pending, Errc::ok);
      if (ok) {
        const auto got = floats_of(DType::f32, cluster.output(pending, 0));
        double above = 0, below = 0;
        for (std::uint64_t i = 0; i < kElements; ++i) {
          above += std::pow(static_cast<double>(got[i] - exact[i]), 2);
          below += std::pow(static_cast<double>(exact[i]), 2);
        }
        error = above / below;
      }
      cluster.forget_arenas();
    }
    EXPECT_LT(error, 1e-6) << recipe;  // the shifts have learnt the constant input
    cluster.leave_all();
  }
}

// An op that is cancelled may end well on some ranks and not on others, and streams move on some
// nodes only. Whoever is told that an op went well has its values, and the next op goes well.
constexpr std::uint64_t kCancelSeeds = 8;

// Returns how many ops ended well on some ranks and not on others.
int cancel_broadcasts(std::uint64_t seed) {
  int split = 0;
  Cluster cluster({1, 1, 1}, small_ops(), seed);
  cluster.join();
  Random random(seed);
  const auto tensors = cluster.declare(tensor("xordelta", Role::weights));
  auto weights = values_of(kElements, 3);
  for (int step = 0; step < 60; ++step) {
    // One or two ops under way; the first of them may be cancelled.
    std::vector<Cluster::Pending> pending;
    const std::uint64_t ops = 1 + random.below(2);
    for (std::uint64_t op = 0; op < ops; ++op) {
      for (std::uint64_t i = random.below(50); i < kElements; i += 50) weights[i] += 1.0f;
      const std::vector<Bytes> inputs(3, bytes_of(DType::f32, weights));
      pending.push_back(cluster.submit(broadcast_from(0), inputs, tensors));
    }
    const bool cancels = random.one_in(2);
    if (cancels) {
      const auto rank = static_cast<std::uint32_t>(random.below(3));
      const std::uint64_t after = random.below(150);
      for (std::uint64_t i = 0; i < after; ++i) cluster.world.step();
      cluster.ranks[rank]->cancel(pending[0].tickets[rank]);
    }
    for (const auto& op : pending) {
      cluster.finish(op);
      if (!cancels) cluster.expect_all(op, Errc::ok);
      std::size_t good = 0;
      for (std::uint32_t rank = 0; rank < 3; ++rank) {
        if (cluster.result(op, rank).status != Errc::ok) continue;
        ++good;
        EXPECT_TRUE(cluster.output(op, rank) == op.inputs[0])
            << "seed " << seed << ", step " << step << ": rank " << rank
            << " has the values of another step";
      }
      split += good > 0 && good < 3 ? 1 : 0;
    }
    cluster.forget_arenas();
  }
  cluster.leave_all();
  return split;
}

TEST(CancelledStreams, NeverGiveValuesOfAnotherStep) {
  int split = 0;
  for (std::uint64_t seed = 1; seed <= kCancelSeeds; ++seed) split += cancel_broadcasts(seed);
  EXPECT_GT(split, 0) << "no op ended well on one rank and failed on another: nothing was tested";
}

TEST(CancelledStreams, OfShiftsGiveAllRanksTheSameBits) {
  for (std::uint64_t run = 0; run < 2 * kCancelSeeds; ++run) {
    const std::string recipe = run % 2 == 0 ? "diana(qsgd:levels=4)" : "ef21(topk:p=0.1)";
    const std::uint64_t seed = run / 2 + 1;
    Cluster cluster({1, 1, 1}, small_ops(), seed);
    cluster.join();
    Random random(seed);
    const auto tensors = cluster.declare(tensor(recipe, Role::gradient));
    for (std::uint64_t step = 0; step < 30; ++step) {
      const auto op = cluster.submit(all_reduce(DType::f32, kElements),
                                     inputs_of(DType::f32, kElements, 3, step), tensors);
      const bool cancels = random.one_in(2);
      if (cancels) {
        const auto rank = static_cast<std::uint32_t>(random.below(3));
        const std::uint64_t after = random.below(200);
        for (std::uint64_t i = 0; i < after; ++i) cluster.world.step();
        cluster.ranks[rank]->cancel(op.tickets[rank]);
      }
      cluster.finish(op);
      if (!cancels) cluster.expect_all(op, Errc::ok);
      std::optional<Bytes> first;
      for (std::uint32_t rank = 0; rank < 3; ++rank) {
        if (cluster.result(op, rank).status != Errc::ok) continue;
        if (!first) first = cluster.output(op, rank);
        ASSERT_TRUE(cluster.output(op, rank) == *first) << recipe << ", step " << step;
      }
      cluster.forget_arenas();
    }
    cluster.leave_all();
  }
}

std::uint64_t resets(Cluster& cluster) {
  std::uint64_t resets = 0;
  for (std::size_t node = 0; node < 2; ++node) {
    const auto counters = cluster.world.daemon(node).conductor->reports().counters();
    resets += counters["state_resets"]["value"].get<std::uint64_t>();
  }
  return resets;
}

// Sums that wait for one scale for all of them: those of the large tensor take a lane several turns
// to clear, and those of the small one come after them. Every value is its tensor's largest, so
// that nothing is left out of a block, and the next op of zeros is zero if no sum is left either.
// It is submitted while the two are cancelled, at many moments.
TEST(CancelledSums, AreNoPartOfTheTensorsNextOp) {
  DaemonShape shape = small_ops();
  shape.arena_bytes = 48 << 20;
  const std::uint64_t chunk = shape.chunk_bytes / sizeof(float);
  const std::uint64_t large = 300 * chunk, small = 8 * chunk;
  Cluster cluster({1, 1}, shape);
  cluster.join();
  const auto declare = [&cluster](const char* name, std::uint64_t count) {
    TensorSpec spec = tensor("3lc:s=1,scale=tensor", Role::gradient);
    spec.name = name;
    spec.count = count;
    return cluster.declare(spec);
  };
  const auto large_ones = declare("large", large), small_ones = declare("small", small);
  const auto all_of = [](std::uint64_t count, float value) {
    return std::vector<Bytes>(2, bytes_of(DType::f32, std::vector<float>(count, value)));
  };
  std::uint64_t most = 0;  // that the cancelled ops have cleared
  Random random(1);
  for (int round = 0; round < 80; ++round) {
    const std::uint64_t before = resets(cluster);
    const auto step = [&](std::uint64_t bound) {
      for (std::uint64_t i = random.below(bound); i > 0; --i) cluster.world.step();
    };
    const auto first = cluster.submit(all_reduce(DType::f32, large), all_of(large, 3), large_ones);
    step(1600);
    auto urgent = all_reduce(DType::f32, small);
    urgent.priority = 1;
    const auto second = cluster.submit(urgent, all_of(small, 5), small_ones);
    step(40);
    cluster.ranks[1]->cancel(first.tickets[1]);
    cluster.ranks[1]->cancel(second.tickets[1]);
    const auto next = cluster.submit(all_reduce(DType::f32, small), all_of(small, 0), small_ones);
    for (const auto* op : {&first, &second, &next}) cluster.finish(*op);
    most = std::max(most, resets(cluster) - before);
    cluster.expect_all(next, Errc::ok);
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(cluster.output(next, rank) == all_of(small, 0)[0], true) << "round " << round;
    }
    cluster.forget_arenas();
  }
  EXPECT_GT(most, 0u) << "no sum waited when an op was cancelled";
  cluster.leave_all();
}

}  // namespace
}  // namespace tern::sim
