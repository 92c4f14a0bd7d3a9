// What recipes with a memory or random choices deliver between real daemons, and checkpoints of
// their state.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/e2e/rank_process.h"
#include "tests/rounds.h"

namespace tern::e2e {
namespace {

// Two nodes, and chunks small enough that both own some.
class Recipes : public ::testing::Test {
 protected:
  static constexpr const char* kCount = "20001";

  Recipes() : cluster(2, {"--chunk-bytes", "16KiB", "--lanes", "2"}) {}

  // New processes in a new group, with one tensor.
  void begin(const std::string& recipe, const std::vector<int>& ranks_per_node = {2, 1}) {
    ASSERT_TRUE(cluster.running());
    ranks = Ranks(cluster, ranks_per_node);
    ASSERT_EQ(ranks.join("g", "seed=5"), "");
    for (const Reply& reply : ranks.ask_all("declare group=g name=t role=gradient count=" +
                                            std::string(kCount) + " recipe=" + recipe)) {
      ASSERT_TRUE(reply.ok()) << recipe << ": " << reply;
    }
  }

  // One average of the inputs of that draw; all ranks must have the same bits. Rank 0's answer.
  Reply step(const std::string& draw) {
    for (const Reply& reply :
         ranks.ask_all("submit op=x group=g tensor=t data=real reduction=average draw=" + draw)) {
      EXPECT_TRUE(reply.ok()) << reply;
    }
    const auto replies = ranks.ask_all("wait op=x tolerance=1e30 mean=t");
    EXPECT_EQ(disagreement(replies), "");
    return replies[0];
  }

  static double real(const Reply& reply, const std::string& field) {
    return std::strtod(reply.field(field).c_str(), nullptr);
  }

  Cluster cluster;
  Ranks ranks;
};

// What does not change is learnt: the differences to the shifts go to zero, and with them what
// their compression drops.
TEST_F(Recipes, ShiftsLearnAConstantInput) {
  std::vector<std::string> recipes{
      "diana(qsgd:levels=4)", "ef21(topk:p=0.2)", "diana(blocksparse:p=0.25,block=64)",
      "diana(randk:p=0.5+natural)", "ef21(topk:p=0.25,exact=on+int:bits=8)"};
  if (tests::abridged()) recipes.resize(2);
  for (const std::string& recipe : recipes) {
    begin(recipe);
    const double first = real(step("1"), "relative");
    double last = first;
    for (int i = 1; i < 60; ++i) last = real(step("1"), "relative");
    // EF21 begins with a block that has the values as they are.
    if (recipe.rfind("diana", 0) == 0) {
      EXPECT_GT(first, 0.05) << recipe;
    }
    EXPECT_LT(last, 1e-3) << recipe;
    // And another input is a difference again, which goes the same way.
    const double other = real(step("2"), "relative");
    EXPECT_GT(other, 0.05) << recipe;
    for (int i = 1; i < 60; ++i) last = real(step("2"), "relative");
    EXPECT_LT(last, 1e-3) << recipe;
  }
}

// A quarter of the blocks, times four, varies by three times the energy of what a node sends, which
// is one of the two inputs that a chunk is the sum of; its owner takes its own as it is. The mean
// of T results varies by that over T.
TEST_F(Recipes, RandomBlocksAreUnbiased) {
  begin("none(blocksparse:p=0.25,block=64)", {1, 1});
  const double expected = std::sqrt(3.0 / 2.0);
  constexpr int kSteps = 48;
  Reply reply = step("1");
  EXPECT_NEAR(real(reply, "relative"), expected, 0.1 * expected);
  for (int i = 1; i < kSteps; ++i) reply = step("1");
  EXPECT_NEAR(real(reply, "relative"), expected, 0.1 * expected);
  EXPECT_NEAR(real(reply, "of_mean"), expected / std::sqrt(kSteps),
              0.1 * expected / std::sqrt(kSteps));
}

// What error feedback drops comes later: T results are T times the truth but for what is kept.
TEST_F(Recipes, ErrorFeedbackDelaysAndDropsNothing) {
  for (const std::string recipe :
       {"ef(blocksparse:p=0.25,block=64)", "ef(topk:p=0.1)", "ef(int:bits=2)", "ef(onebit)"}) {
    begin(recipe);
    const double first = real(step("1"), "of_mean");
    EXPECT_GT(first, 0.1) << recipe;
    double last = first;
    for (int i = 1; i < 64; ++i) last = real(step("1"), "of_mean");
    EXPECT_LT(last, 0.25 * first) << recipe;
  }
}

class Checkpoints : public Recipes, public ::testing::WithParamInterface<const char*> {
 protected:
  std::string part_of(std::size_t rank) const {
    return cluster.folder() + "/part" + (rank < 2 ? "0" : "1");
  }
  std::vector<std::string> checksums(int from, int to) {
    std::vector<std::string> sums;
    for (int draw = from; draw < to; ++draw) {
      sums.push_back(step(std::to_string(draw)).field("crc"));
    }
    return sums;
  }
  void kill_everything() {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank].process().kill();
    for (std::size_t node = 0; node < cluster.size(); ++node) cluster[node].process().kill();
    for (std::size_t node = 0; node < cluster.size(); ++node) {
      ASSERT_TRUE(cluster[node].restart());
    }
  }
};
// None of them draws: the numbers of uses begin anew after a restart, and with them the draws.
INSTANTIATE_TEST_SUITE_P(Recipes, Checkpoints,
                         ::testing::Values("3lc:s=1", "ef(topk:p=0.1,exact=on)", "ef(onebit)",
                                           "ef21(topk:p=0.1,exact=on)", "ef21(int:bits=4)"));

TEST_P(Checkpoints, GoOnWithTheSameBitsAfterEverythingWasKilled) {
  begin(GetParam());
  checksums(0, 3);
  for (const std::size_t rank : {0u, 2u}) {
    const Reply saved = ranks[rank].ask("save group=g name=t file=" + part_of(rank));
    ASSERT_TRUE(saved.ok()) << saved;
  }
  const auto uninterrupted = checksums(3, 6);

  kill_everything();
  begin(GetParam());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Reply loaded = ranks[rank].ask("load group=g name=t file=" + part_of(rank));
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  EXPECT_EQ(checksums(3, 6), uninterrupted);

  // Without the parts they would be others.
  kill_everything();
  begin(GetParam());
  EXPECT_NE(checksums(3, 6), uninterrupted);
}

}  // namespace
}  // namespace tern::e2e
