// What the collectives deliver, over one to four nodes of one to three ranks, one to three lanes.

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/e2e/rank_process.h"

namespace tern::e2e {
namespace {

struct Layout {
  const char* name;
  std::vector<int> ranks_per_node;
  std::vector<int> lanes;  // of each node
  std::string options;     // of the join
};

std::vector<std::vector<std::string>> lane_options(const Layout& layout) {
  std::vector<std::vector<std::string>> options;
  for (const int lanes : layout.lanes) options.push_back({"--lanes", std::to_string(lanes)});
  return options;
}

class Collectives : public ::testing::TestWithParam<Layout> {
 protected:
  // Small chunks, so that small tensors are spread over nodes and lanes.
  Collectives()
      : cluster(static_cast<int>(GetParam().lanes.size()), {"--chunk-bytes", "16KiB"},
                lane_options(GetParam())) {}

  void SetUp() override {
    ASSERT_TRUE(cluster.running());
    ranks = Ranks(cluster, GetParam().ranks_per_node);
    ASSERT_EQ(ranks.join("g", GetParam().options, ranks.size() - 1), "");
  }

  // Submits on all ranks, waits on all.
  std::string run(const std::string& options, const std::string& wait_options = "") {
    for (const Reply& reply : ranks.ask_all("submit op=x group=g " + options)) {
      if (!reply.ok()) return options + ": " + reply.text;
    }
    const std::string problem = disagreement(ranks.ask_all("wait op=x " + wait_options));
    return problem.empty() ? "" : options + ": " + problem;
  }

  Cluster cluster;
  Ranks ranks;
};

TEST_P(Collectives, ReduceEveryTypeByEveryReduction) {
  int draw = 0;
  for (const char* dtype : {"f32", "f64", "f16", "bf16", "i64", "i32", "u8"}) {
    for (const char* reduction : {"sum", "average", "min", "max", "product"}) {
      const bool integer = dtype[0] == 'i' || dtype[0] == 'u';
      if (integer && std::string(reduction) == "average") continue;
      for (const char* count : {"1", "777", "40001"}) {
        const std::string what = std::string("dtype=") + dtype + " reduction=" + reduction +
                                 " count=" + count + " draw=" + std::to_string(++draw);
        ASSERT_EQ(run(what + " data=whole"), "");
      }
      ASSERT_EQ(run(std::string("data=real count=30011 dtype=") + dtype +
                    " reduction=" + reduction + " draw=" + std::to_string(draw)),
                "");
    }
  }
}

TEST_P(Collectives, RefuseTheAverageOfIntegers) {
  for (const Reply& reply :
       ranks.ask_all("submit op=x group=g dtype=i32 reduction=average count=9")) {
    // Said at the submission or as the end of the op.
    EXPECT_TRUE(reply.ok() || reply.code == TERN_ERR_INVALID_ARGUMENT) << reply;
  }
  for (const Reply& reply : ranks.ask_all("wait op=x")) EXPECT_FALSE(reply.ok());
  EXPECT_EQ(run("count=10"), "");
}

TEST_P(Collectives, TakeInputsAndOutputsFromAnywhere) {
  for (const char* place : {"in", "out", "heap"}) {
    for (const char* count : {"5", "2000", "50000"}) {
      const std::string what = std::string("place=") + place + " count=" + count;
      EXPECT_EQ(run(what), "");
      EXPECT_EQ(run(what + " kind=broadcast root=0"), "");
    }
  }
}

TEST_P(Collectives, BroadcastFromEveryRank) {
  for (std::size_t root = 0; root < ranks.size(); ++root) {
    for (const char* count : {"1", "1000", "60000"}) {
      const std::string what = std::string("kind=broadcast data=real count=") + count +
                               " root=" + std::to_string(root) + " draw=" + std::to_string(root);
      ASSERT_EQ(run(what + " dtype=f32"), "");
      ASSERT_EQ(run(what + " dtype=u8"), "");
    }
  }
}

TEST_P(Collectives, ReduceNothing) {
  EXPECT_EQ(run("count=0"), "");
  EXPECT_EQ(run("count=0 kind=broadcast"), "");
}

TEST_P(Collectives, LetNobodyPastABarrierAlone) {
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    ASSERT_TRUE(ranks[rank].ask("submit op=b group=g kind=barrier").ok());
    EXPECT_EQ(ranks[rank].ask("wait op=b ms=20").code, TERN_ERR_TIMEOUT);
  }
  ASSERT_TRUE(ranks[0].ask("submit op=b group=g kind=barrier").ok());
  for (const Reply& reply : ranks.ask_all("wait op=b")) EXPECT_TRUE(reply.ok()) << reply;
}

std::string use_of(const std::string& tensor, int round) {
  return "submit group=g tensor=" + tensor + " op=" + tensor + std::to_string(round);
}

// Every rank submits the same uses in an order of its own; only uses of one tensor are ordered.
TEST_P(Collectives, MatchNamedOpsByName) {
  const std::vector<std::string> names{"a", "b", "c", "d", "e"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string count = std::to_string(100 + 9000 * i);
    for (const Reply& reply :
         ranks.ask_all("declare group=g name=" + names[i] + " count=" + count)) {
      ASSERT_TRUE(reply.ok()) << reply;
    }
  }
  for (int round = 0; round < 3; ++round) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (std::size_t i = 0; i < names.size(); ++i) {
        const std::string& name = names[(i * (rank % 4 + 1) + rank) % names.size()];
        ASSERT_TRUE(ranks[rank].ask(use_of(name, round)).ok());
      }
    }
  }
  for (const std::string& name : names) {
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(disagreement(ranks.ask_all("wait op=" + name + std::to_string(round))), "");
    }
  }
}

TEST_P(Collectives, KeepManyOpsInFlight) {
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=300 window=40 large=20000")), "");
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=300 window=40 tensors=7 large=20000")),
            "");
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Collectives,
    ::testing::Values(Layout{"OneRank", {1}, {1}, ""}, Layout{"OneNodeOfThree", {3}, {2}, ""},
                      Layout{"TwoNodes", {1, 1}, {1, 1}, ""},
                      Layout{"TwoNodesOfTwoVerified", {2, 2}, {2, 2}, "verify=1"},
                      Layout{"ThreeUnequalNodes", {1, 3, 2}, {3, 1, 2}, ""},
                      Layout{"FourNodesThreeLanes", {2, 1, 1, 2}, {3, 3, 3, 3}, ""}),
    [](const auto& one) { return std::string(one.param.name); });

// ---- Chunks of the largest size

// A block has room for 2^20 elements, fewer than 4 MiB hold of the small types.
TEST(LargestChunks, HoldEveryType) {
  Cluster cluster(2, {"--chunk-bytes", "4MiB"});
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {1, 1});
  ASSERT_EQ(ranks.join(), "");
  for (const char* dtype : {"u8", "bf16", "f16", "f32"}) {
    ranks.ask_all(std::string("submit op=x group=g count=5000001 data=whole dtype=") + dtype);
    EXPECT_EQ(disagreement(ranks.ask_all("wait op=x")), "") << dtype;
  }
  for (const char* recipe : {"bf16", "ef(int:bits=4)", "lossless"}) {
    const std::string name = std::string("t") + recipe[0];
    for (const Reply& reply :
         ranks.ask_all("declare group=g count=5000001 role=gradient dtype=bf16 name=" + name +
                       " recipe=" + recipe)) {
      // bf16 does not make a bf16 tensor smaller; that is for the recipe to say.
      ASSERT_TRUE(reply.ok()) << reply;
    }
    ranks.ask_all("submit op=x group=g data=real tensor=" + name);
    EXPECT_EQ(disagreement(ranks.ask_all("wait op=x tolerance=100")), "") << recipe;
  }
}

// ---- The same bits ------------------------------------------------------------------------------

// Checksums of some ops under a fixed placement, which must not depend on anything else.
std::vector<std::string> checksums(int lanes, const std::string& recipe) {
  Cluster cluster(3, {"--chunk-bytes", "16KiB", "--lanes", std::to_string(lanes)});
  EXPECT_TRUE(cluster.running());
  Ranks ranks(cluster, {2, 1, 2});
  EXPECT_EQ(ranks.join(), "");
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    ranks.ask_all(std::string("declare group=g count=50001 role=gradient recipe=") + recipe +
                  " name=" + dtype + " dtype=" + dtype);
  }
  std::vector<std::string> sums;
  for (int draw = 0; draw < 4; ++draw) {
    for (const char* dtype : {"f32", "f16", "bf16"}) {
      ranks.ask_all(std::string("submit op=x group=g data=real reduction=average tensor=") + dtype +
                    " draw=" + std::to_string(draw));
      const auto replies = ranks.ask_all("wait op=x tolerance=4");
      EXPECT_EQ(disagreement(replies), "") << recipe << " with " << lanes << " lanes";
      sums.push_back(replies[0].field("crc"));
    }
  }
  return sums;
}

class SameBits : public ::testing::TestWithParam<const char*> {};

TEST_P(SameBits, InEveryRunWithOneTwoAndThreeLanes) {
  const auto once = checksums(1, GetParam());
  ASSERT_EQ(once.size(), 12u);
  EXPECT_EQ(checksums(1, GetParam()), once);
  EXPECT_EQ(checksums(2, GetParam()), once);
  EXPECT_EQ(checksums(3, GetParam()), once);
}

INSTANTIATE_TEST_SUITE_P(Recipes, SameBits, ::testing::Values("raw", "bf16", "3lc:s=1"),
                         [](const auto& one) {
                           return std::string(one.param).substr(0, 3) == "3lc"
                                      ? std::string("threelc")
                                      : std::string(one.param);
                         });

}  // namespace
}  // namespace tern::e2e
