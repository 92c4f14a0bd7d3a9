// The server invariant of 3LC through libtern and real daemons: copies of the model have the same
// bits on all ranks after every pull, and what the server's model has more than a copy is the
// residual of error feedback, which is computed here by an implementation of its own.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/include/tern/tern.hpp"
#include "tests/codec/threelc_oracle.h"
#include "tests/e2e/cluster.h"

namespace tern::e2e {
namespace {

// A chunk, and so a scale group, of f32 with 16 KiB.
constexpr std::size_t kScaleElements = 4096;
constexpr std::uint64_t kParameters = 30'011;

struct GradientKind {
  // Gradients on a grid of 2^-10, so that no addition rounds; else of any size, with momentum.
  bool on_a_grid = true;
};

float gradient_at(const GradientKind& kind, std::size_t rank, int step, std::uint64_t element) {
  // Numbers that look drawn, cheaply: Knuth's and Murmur's multipliers.
  auto drawn = static_cast<std::uint32_t>(element * 2654435761u + rank * 40503u +
                                          static_cast<std::uint64_t>(step) * 104729u);
  drawn = (drawn ^ drawn >> 16) * 0x85ebca6bu;
  drawn ^= drawn >> 13;
  const float whole = static_cast<float>(static_cast<int>(drawn % 2048) - 1024);
  return kind.on_a_grid ? whole / 1024 : whole * 0.000317f;
}

// One rank: a client of its own, with a copy of the model, and the model of its shard.
class Learner {
 public:
  Learner(const DaemonProcess& daemon, std::size_t rank) : rank_(rank) {
    tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
    const std::string socket = daemon.socket();
    options.socket_path = socket.c_str();
    options.arena_bytes = 16 << 20;
    client_.emplace(options);
  }

  tern_group_id mint() { return client_->mint(); }
  void join(const tern_group_id& id, std::size_t size) {
    group_.emplace(
        client_->join(id, static_cast<std::int32_t>(rank_), static_cast<std::int32_t>(size)));
  }
  void declare(const tern_push_pull_options& options) {
    server_.emplace(group_->declare(options));
    shard_ = server_->shard(static_cast<std::int32_t>(rank_));
    gradient_.resize(kParameters);
    differences_.resize(kParameters);
    copy_.assign(kParameters, 0.5f);
    model_.assign(shard_.count, 0.5f);
    velocity_.assign(shard_.count, 0.0f);
    residual_.assign(shard_.count, 0.0f);
    bound_.assign(shard_.count, 0.0);
  }

  void step(const GradientKind& kind, int step, float s) {
    for (std::uint64_t i = 0; i < kParameters; ++i) {
      gradient_[i] = gradient_at(kind, rank_, step, i);
    }
    std::vector<float> sum(shard_.count), difference(shard_.count);
    server_->push<float>(gradient_, sum).wait();
    for (std::uint64_t i = 0; i < shard_.count; ++i) {
      velocity_[i] = (kind.on_a_grid ? 0.0f : 0.9f * velocity_[i]) + sum[i];
      const float before = model_[i];
      model_[i] -= (kind.on_a_grid ? 0.125f : 0.0371f) * velocity_[i];
      difference[i] = model_[i] - before;
    }
    server_->pull<float>(difference, differences_).wait();
    for (std::uint64_t i = 0; i < kParameters; ++i) copy_[i] += differences_[i];
    keep(difference, s);
  }

  const std::vector<float>& copy() const { return copy_; }
  // How far the model is from the copy and the residual, at most; and how far the roundings of the
  // additions can have brought it.
  struct Distance {
    double most = 0;
    double beyond_bound = -1;
    std::uint64_t residuals = 0;  // that are not zero
  };
  Distance distance() const {
    Distance found;
    for (std::uint64_t i = 0; i < shard_.count; ++i) {
      const double apart =
          std::abs(static_cast<double>(model_[i]) - static_cast<double>(copy_[shard_.begin + i]) -
                   static_cast<double>(residual_[i]));
      found.most = std::max(found.most, apart);
      found.beyond_bound = std::max(found.beyond_bound, apart - bound_[i]);
      found.residuals += residual_[i] != 0.0f ? 1 : 0;
    }
    return found;
  }
  // Of the shard's model from these, at most.
  double far_from(const std::vector<float>& copy) const {
    double most = 0;
    for (std::uint64_t i = 0; i < shard_.count; ++i) {
      most = std::max(most, std::abs(static_cast<double>(model_[i]) -
                                     static_cast<double>(copy[shard_.begin + i])));
    }
    return most;
  }
  tern_tensor_stats push_stats() const { return server_->push_stats(); }
  tern_tensor_stats pull_stats() const { return server_->pull_stats(); }

 private:
  // What error feedback must have left out of this pull, and what may have been rounded so far. A
  // chunk's scale groups begin with it, and a shard's chunks with the shard.
  void keep(const std::vector<float>& difference, float s) {
    constexpr double kHalfUlp = 0x1p-24;
    const auto quantized =
        codec::oracle::quantize(difference, residual_, {.s = s, .scale_elements = kScaleElements});
    for (std::uint64_t i = 0; i < shard_.count; ++i) {
      const double sum = static_cast<double>(difference[i]) + static_cast<double>(residual_[i]);
      bound_[i] += kHalfUlp * (std::abs(static_cast<double>(difference[i])) + 2 * std::abs(sum) +
                               std::abs(static_cast<double>(copy_[shard_.begin + i])));
    }
    residual_ = quantized.residual;
  }

  std::size_t rank_;
  std::optional<Client> client_;
  std::optional<Group> group_;
  std::optional<PushPull> server_;
  PushPull::Shard shard_;
  std::vector<float> gradient_, differences_, copy_;  // of the whole model
  std::vector<float> model_, velocity_;               // of the shard
  std::vector<float> residual_;                       // of the shard, as it must be
  std::vector<double> bound_;                         // of the shard
};

struct Placement {
  const char* name;
  std::vector<int> nodes;  // ranks of each
  std::int32_t server;
  std::string lanes;
};
void PrintTo(const Placement& placement, std::ostream* out) { *out << placement.name; }

class Server : public ::testing::TestWithParam<Placement> {
 protected:
  Server()
      : cluster(static_cast<int>(GetParam().nodes.size()),
                {"--chunk-bytes", "16KiB", "--lanes", GetParam().lanes}) {}

  void SetUp() override {
    ASSERT_TRUE(cluster.running());
    for (std::size_t node = 0; node < cluster.size(); ++node) {
      for (int i = 0; i < GetParam().nodes[node]; ++i) {
        learners.push_back(std::make_unique<Learner>(cluster[node], learners.size()));
      }
    }
    const tern_group_id id = learners[0]->mint();
    ASSERT_EQ(each([&](Learner& learner) { learner.join(id, learners.size()); }), "");
  }

  // All ranks at once, each in a thread. Empty, or what one of them says.
  std::string each(const std::function<void(Learner&)>& act) {
    std::vector<std::string> wrong(learners.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < learners.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          act(*learners[rank]);
        } catch (const std::exception& failure) {
          wrong[rank] = "rank " + std::to_string(rank) + ": " + failure.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& one : wrong) {
      if (!one.empty()) return one;
    }
    return {};
  }

  void declare(const std::string& name, const std::string& push, const std::string& pull) {
    tern_push_pull_options options = TERN_PUSH_PULL_OPTIONS_INIT;
    options.name = name.c_str();
    options.count = kParameters;
    options.server = GetParam().server;
    options.push_recipe = push.c_str();
    options.pull_recipe = pull.c_str();
    ASSERT_EQ(each([&](Learner& learner) { learner.declare(options); }), "");
  }

  void expect_same_copies() {
    const std::vector<float>& first = learners[0]->copy();
    for (std::size_t rank = 1; rank < learners.size(); ++rank) {
      ASSERT_EQ(
          std::memcmp(learners[rank]->copy().data(), first.data(), first.size() * sizeof(float)), 0)
          << "rank " << rank << " has another copy";
    }
  }

  Cluster cluster;
  std::vector<std::unique_ptr<Learner>> learners;
};
INSTANTIATE_TEST_SUITE_P(
    Placements, Server,
    ::testing::Values(Placement{"TwoNodes", {1, 1}, TERN_EVERY_RANK, "1"},
                      Placement{"ThreeNodesOfOneAndTwo", {1, 2, 1}, TERN_EVERY_RANK, "2"},
                      Placement{"OneServerOfThree", {1, 1, 1}, 1, "2"}),
    [](const auto& one) { return std::string(one.param.name); });

TEST_P(Server, ModelLessCopyIsTheResidualToTheBitOnAGrid) {
  struct Sparsity {
    const char* recipe;
    float s;
    int steps;  // a scale of 1.5 halves the grid with every step
  };
  for (const Sparsity& sparsity : {Sparsity{"3lc:s=1", 1.0f, 15}, Sparsity{"3lc:s=1.5", 1.5f, 6}}) {
    declare(std::string("model ") + sparsity.recipe, "3lc:s=1", sparsity.recipe);
    for (int step = 0; step < sparsity.steps; ++step) {
      SCOPED_TRACE(std::string(sparsity.recipe) + ", step " + std::to_string(step));
      ASSERT_EQ(
          each([&](Learner& learner) { learner.step({.on_a_grid = true}, step, sparsity.s); }), "");
      expect_same_copies();
      std::uint64_t residuals = 0;
      for (const auto& learner : learners) {
        const Learner::Distance distance = learner->distance();
        ASSERT_EQ(distance.most, 0.0);
        residuals += distance.residuals;
      }
      EXPECT_GT(residuals, kParameters / 2) << "nothing was left out, so nothing was compressed";
    }
    for (const auto& learner : learners) {
      for (const tern_tensor_stats& stats : {learner->push_stats(), learner->pull_stats()}) {
        EXPECT_TRUE(stats.bytes_sent == 0 || stats.ratio > 10) << stats.ratio;
      }
    }
  }
}

TEST_P(Server, ModelLessCopyIsTheResidualWithinTheRoundingsElsewhere) {
  declare("model", "3lc:s=1", "3lc:s=1.75");
  double most = 0;
  for (int step = 0; step < 40; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    ASSERT_EQ(each([&](Learner& learner) { learner.step({.on_a_grid = false}, step, 1.75f); }), "");
    expect_same_copies();
    for (const auto& learner : learners) {
      const Learner::Distance distance = learner->distance();
      ASSERT_LE(distance.beyond_bound, 0.0);
      most = std::max(most, distance.most);
    }
  }
  EXPECT_GT(most, 0.0) << "these values round";
}

TEST_P(Server, WithoutALossCopiesAreTheModel) {
  declare("model", "raw", "raw");
  for (int step = 0; step < 3; ++step) {
    ASSERT_EQ(each([&](Learner& learner) { learner.step({.on_a_grid = true}, step, 1.0f); }), "");
    expect_same_copies();
  }
  const std::vector<float>& copy = learners[0]->copy();
  for (const auto& learner : learners) EXPECT_EQ(learner->far_from(copy), 0.0);
}

}  // namespace
}  // namespace tern::e2e
