// Where the time of a tensor's ops goes: waiting for ranks and grants, on the wire.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cluster.h"
#include "tests/daemon/control/all_rows.h"

namespace tern::sim {
namespace {

constexpr std::uint64_t kWeightCount = 20'011;

double ms(std::uint64_t ns) { return static_cast<double>(ns) / 1e6; }

struct Times {
  double encode = 0, queue = 0, wire = 0, decode = 0, wait = 0;
  double sum() const { return encode + queue + wire + decode + wait; }
};

class TensorTimes : public testing::TestWithParam<std::string> {
 protected:
  static DaemonShape small_chunks() {
    DaemonShape shape;
    shape.eager_bytes = 64;
    return shape;
  }

  TensorTimes() : cluster({1, 1}, small_chunks()) {
    cluster.join();
    TensorSpec spec;
    spec.name = "w";
    spec.count = kWeightCount;
    spec.role = Role::gradient;
    spec.recipe = GetParam();
    tensors = cluster.declare(spec);
  }
  // Rank 1 submits that much later. Returns how long it all took, on the world's clock.
  double run_op(std::uint64_t lateness_ns) {
    const std::uint64_t begin = cluster.world.clock.now_ns();
    std::vector<std::uint64_t> tickets;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      if (rank == 1 && lateness_ns > 0) cluster.world.run_for(lateness_ns);
      OpRequest request = all_reduce(DType::f32, kWeightCount);
      request.input = request.output = cluster.ranks[rank]->allocate(4 * kWeightCount);
      tickets.push_back(cluster.ranks[rank]->submit(request, tensors[rank]));
    }
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(
          cluster.world.run_until([&] { return cluster.ranks[rank]->done(tickets[rank]); }));
      EXPECT_EQ(cluster.ranks[rank]->result(tickets[rank]).status, Errc::ok);
    }
    return ms(cluster.world.clock.now_ns() - begin);
  }
  Times times(std::size_t node) {
    const auto rows = daemon::all_rows(
        cluster.world.daemon(node).conductor->reports().tensors(daemon::Scope::of_all()));
    EXPECT_EQ(rows.size(), 1u);
    const auto& row = rows[0];
    return {row["encode_ms"], row["queue_ms"], row["wire_ms"], row["decode_ms"], row["wait_ms"]};
  }

  Cluster cluster;
  std::vector<Tensor*> tensors;
};
INSTANTIATE_TEST_SUITE_P(Recipes, TensorTimes, testing::Values("raw", "3lc:s=1"));

TEST_P(TensorTimes, OfALateRankAreTheOthersWait) {
  constexpr std::uint64_t kLateNs = 300'000'000;
  const double total = run_op(kLateNs);
  const Times early = times(0), late = times(1);
  EXPECT_GE(early.wait, 0.999 * ms(kLateNs));  // a round of the lanes is not wait
  EXPECT_LT(early.wire + early.queue, ms(kLateNs));
  EXPECT_LT(late.sum(), ms(kLateNs));
  EXPECT_LE(early.sum(), total);
}

// Every frame takes so long: an announcement is waited for, contributions and results are the wire.
TEST_P(TensorTimes, OfASlowLinkAreOnTheWire) {
  constexpr std::uint64_t kDelayNs = 20'000'000;
  net::FaultSettings slow;
  slow.delay = 1'000'000;
  slow.delay_min_ns = slow.delay_max_ns = kDelayNs;
  cluster.world.set_faults(slow);
  const double total = run_op(0);
  for (const std::size_t node : {0u, 1u}) {
    const Times one = times(node);
    EXPECT_GE(one.wire, ms(kDelayNs)) << "node " << node;
    EXPECT_GE(one.wait, ms(kDelayNs)) << "node " << node;
    EXPECT_LE(one.sum(), total) << "node " << node;
  }
}

}  // namespace
}  // namespace tern::sim
