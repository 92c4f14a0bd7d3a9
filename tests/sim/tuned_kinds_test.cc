// `recipe=auto` on each kind of operation that may lose values.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cluster.h"
#include "every_kind.h"
#include "plan/plans.h"

namespace tern::sim {
namespace tuned_kinds_test {

using shm::OpKind;

constexpr std::uint64_t kCount = 40'000;
constexpr std::uint64_t kRawBytes = kCount * sizeof(float);

// A tensor that the tuner of each daemon chooses for, in ops of one kind after the other.
struct Tuned {
  Cluster cluster;
  std::vector<Tensor*> tensors;
  std::vector<Bytes> inputs;

  explicit Tuned(const std::string& recipe = "auto", Role role = Role::gradient)
      : cluster({1, 2, 1}, with_tuner()) {
    cluster.join();
    tensors = cluster.declare({.name = "g", .count = kCount, .role = role, .recipe = recipe});
    inputs = inputs_of(DType::f32, kCount, 4);
  }

  static DaemonShape with_tuner() {
    DaemonShape shape;
    shape.lanes = 2;
    shape.tuner = true;
    shape.state_ttl_ns = 60 * kSecond;
    return shape;
  }

  struct Outcome {
    std::vector<std::vector<float>> outputs;  // by rank
    std::uint64_t sent = 0;                   // by all nodes
  };
  Outcome step(const KindCase& c) {
    std::vector<OpRequest> requests;
    std::vector<std::uint64_t> tickets;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      Client& client = *cluster.ranks[rank];
      OpRequest& request = requests.emplace_back(request_of(c, rank));
      request.input = client.allocate(kRawBytes);
      request.output = client.allocate(kRawBytes);
      std::copy(inputs[rank].begin(), inputs[rank].end(), client.at(request.input));
      tickets.push_back(client.submit(request, tensors[rank]));
    }
    Outcome outcome;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      Client& client = *cluster.ranks[rank];
      EXPECT_TRUE(cluster.world.run_until([&] { return client.done(tickets[rank]); }));
      const OpResult result = client.result(tickets[rank]);
      EXPECT_EQ(result.status, Errc::ok) << result.detail;
      if (rank != 2) outcome.sent += result.bytes_sent;
      const std::byte* const at = client.at(requests[rank].output);
      outcome.outputs.push_back(
          floats_of(DType::f32, Bytes(at, at + output_of(c, rank).count * sizeof(float))));
    }
    cluster.forget_arenas();
    return outcome;
  }

  nlohmann::json explained(std::size_t node) {
    const auto rows = cluster.world.daemon(node).tuning->explain("g", daemon::Scope::of_all());
    return rows ? rows->at(0) : nlohmann::json(rows.error().text);
  }
};

KindCase case_of(OpKind kind) {
  KindCase c{.kind = kind, .root = 0};
  if (kind == OpKind::reduce_scatter || kind == OpKind::all_gather) {
    c.counts = {10'000, 12'000, 0, 18'000};
  } else {
    c.counts = {kCount, 0, 0, 0};  // their sum counts
  }
  return c;
}

class TunedKind : public testing::TestWithParam<OpKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, TunedKind,
                         testing::Values(OpKind::all_reduce, OpKind::reduce, OpKind::reduce_scatter,
                                         OpKind::all_gather));

// What one step leaves out comes later: over many steps the mean is near that of the first, of
// which little is lost because nothing is known when it begins.
TEST_P(TunedKind, IsCompressedAndOwesNothingInTheLongRun) {
  Tuned tuned;
  const KindCase c = case_of(GetParam());
  const Tuned::Outcome first = tuned.step(c);
  std::vector<std::vector<double>> sums;
  for (const auto& output : first.outputs) sums.emplace_back(output.size(), 0.0);
  constexpr int kSteps = 80;
  std::uint64_t sent = 0;
  for (int step = 0; step < kSteps; ++step) {
    const Tuned::Outcome outcome = tuned.step(c);
    sent = outcome.sent;
    for (std::size_t rank = 0; rank < sums.size(); ++rank) {
      for (std::size_t i = 0; i < sums[rank].size(); ++i) sums[rank][i] += outcome.outputs[rank][i];
    }
    if (GetParam() == OpKind::all_gather || GetParam() == OpKind::all_reduce) {
      for (const auto& output : outcome.outputs) EXPECT_EQ(output == outcome.outputs[0], true);
    }
  }
  EXPECT_LT(sent, first.sent / 2) << "it was never compressed";
  double error = 0.0, length = 0.0;
  for (std::size_t rank = 0; rank < sums.size(); ++rank) {
    for (std::size_t i = 0; i < sums[rank].size(); ++i) {
      error += std::pow(sums[rank][i] / kSteps - first.outputs[rank][i], 2);
      length += std::pow(first.outputs[rank][i], 2);
    }
  }
  EXPECT_LT(std::sqrt(error / length), 0.1);
  const nlohmann::json row = tuned.explained(0);
  EXPECT_EQ(row.value("operation", ""), plan::name_of(static_cast<std::uint16_t>(c.kind))) << row;
  EXPECT_NE(row.value("recipe", "raw"), "raw") << row;
  tuned.cluster.leave_all();
}

// The tuner reckons with one kind of operation: others travel as they are.
TEST(TunedKinds, AnotherKindOnTheTensorIsExact) {
  Tuned tuned;
  for (int step = 0; step < 30; ++step) tuned.step(case_of(OpKind::reduce_scatter));
  const Tuned::Outcome gathered = tuned.step(case_of(OpKind::all_gather));
  EXPECT_GE(gathered.sent, 2 * kRawBytes);
  const Tuned::Outcome again = tuned.step(case_of(OpKind::reduce_scatter));
  EXPECT_LT(again.sent, kRawBytes);
  tuned.cluster.leave_all();
}

TEST(TunedKinds, ABroadcastIsExactAndNotTheTuners) {
  Tuned tuned("auto", Role::delta);
  const KindCase c = case_of(OpKind::broadcast);
  for (int step = 0; step < 30; ++step) {
    const Tuned::Outcome outcome = tuned.step(c);
    const auto expected = floats_of(DType::f32, tuned.inputs[0]);
    for (const auto& output : outcome.outputs) EXPECT_EQ(output == expected, true);
  }
  EXPECT_EQ(tuned.explained(0).value("operation", "x"), "");
  tuned.cluster.leave_all();
}

// A lossless level sends what was owed, in full.
TEST(TunedKinds, WhatIsOwedComesWithTheFirstBlockThatLosesNothing) {
  for (const OpKind kind : {OpKind::reduce_scatter, OpKind::all_gather, OpKind::reduce}) {
    Tuned tuned, raw("raw");
    const KindCase c = case_of(kind);
    const Tuned::Outcome first = raw.step(c);
    raw.cluster.leave_all();
    std::vector<std::vector<double>> sums;
    for (const auto& output : first.outputs) sums.emplace_back(output.size(), 0.0);
    constexpr int kSteps = 40;
    for (int step = 0; step < kSteps; ++step) {
      if (step == kSteps - 2) {
        for (std::size_t node = 0; node < 3; ++node) {
          ASSERT_TRUE(tuned.cluster.world.daemon(node).tuning->set_policy("g lossless"));
        }
      }
      const Tuned::Outcome outcome = tuned.step(c);
      for (std::size_t rank = 0; rank < sums.size(); ++rank) {
        for (std::size_t i = 0; i < sums[rank].size(); ++i) {
          sums[rank][i] += outcome.outputs[rank][i];
        }
      }
    }
    double worst = 0.0, most = 0.0;
    for (std::size_t rank = 0; rank < sums.size(); ++rank) {
      for (std::size_t i = 0; i < sums[rank].size(); ++i) {
        worst = std::max(worst, std::abs(sums[rank][i] - kSteps * double{first.outputs[rank][i]}));
        most = std::max(most, std::abs(double{first.outputs[rank][i]}));
      }
    }
    EXPECT_LT(worst, 1e-4 * kSteps * most) << plan::name_of(static_cast<std::uint16_t>(c.kind));
    tuned.cluster.leave_all();
  }
}

}  // namespace tuned_kinds_test
}  // namespace tern::sim
