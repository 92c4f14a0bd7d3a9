// Every number of nodes that other tests leave out.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/e2e/rank_process.h"

namespace tern::e2e {
namespace {

class NodeCounts : public ::testing::TestWithParam<int> {};

TEST_P(NodeCounts, ReduceAndBroadcast) {
  const int nodes = GetParam();
  Cluster cluster(nodes, {"--send-slabs", "16", "--receive-slabs", "16", "--result-slabs", "16",
                          "--chunk-bytes", "16KiB"});
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, std::vector<int>(static_cast<std::size_t>(nodes), 1));
  ASSERT_EQ(ranks.join(), "");
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=20 count=300 large=70001 window=4")),
            "");
  EXPECT_EQ(disagreement(ranks.ask_all(
                "stream group=g ops=20 tensors=2 count=300 large=70001 recipe=3lc:s=1")),
            "");
  const std::string broadcast =
      "submit op=x group=g kind=broadcast count=50001 root=" + std::to_string(nodes - 1);
  for (const Reply& reply : ranks.ask_all(broadcast)) ASSERT_TRUE(reply.ok()) << reply;
  EXPECT_EQ(disagreement(ranks.ask_all("wait op=x")), "");
}

INSTANTIATE_TEST_SUITE_P(Nodes, NodeCounts, ::testing::Range(5, 16),
                         [](const auto& one) { return std::to_string(one.param); });

}  // namespace
}  // namespace tern::e2e
