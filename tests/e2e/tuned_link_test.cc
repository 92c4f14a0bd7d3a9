// Which recipe `auto` sends by on a link of a known rate between real daemons, what it says of it,
// and whether it stays with it.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/rank_process.h"
#include "tests/e2e/slow_link.h"

namespace tern::e2e {
namespace {

constexpr double kSlow = 12.5e6;  // bytes per second: 100 Mbit/s
constexpr double kFast = 1e12;    // what this machine does

// Whoever connects to a daemon comes through its link.
class TunedLink : public ::testing::Test {
 protected:
  void begin(double bytes_per_s, const std::string& level) {
    std::vector<std::vector<std::string>> advertised;
    for (int node = 0; node < 2; ++node) {
      links.push_back(std::make_unique<SlowLink>(bytes_per_s));
      advertised.push_back({"--advertise", links.back()->address()});
    }
    cluster = std::make_unique<Cluster>(2, Options{"--chunk-bytes", "64KiB"}, advertised);
    ASSERT_TRUE(cluster->running());
    for (std::size_t node = 0; node < 2; ++node) links[node]->lead_to((*cluster)[node].port());
    ranks = Ranks(*cluster, {1, 1});
    ASSERT_EQ(ranks.join("g", "seed=5"), "");
    for (const Reply& reply : ranks.ask_all(
             "declare group=g name=t role=gradient count=400001 recipe=auto level=" + level)) {
      ASSERT_TRUE(reply.ok()) << reply;
    }
  }

  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      for (const Reply& reply :
           ranks.ask_all("submit op=x group=g tensor=t data=real reduction=average draw=" +
                         std::to_string(draw_++))) {
        ASSERT_TRUE(reply.ok()) << reply;
      }
      ASSERT_EQ(disagreement(ranks.ask_all("wait op=x tolerance=1e30")), "");
    }
  }

  // What the leading node says of the tensor.
  nlohmann::json row() { return (*cluster)[0].ask("tuner").at(0); }
  std::string recipe() { return row().value("recipe", ""); }

  using Options = std::vector<std::string>;
  std::vector<std::unique_ptr<SlowLink>> links;
  std::unique_ptr<Cluster> cluster;
  Ranks ranks;

 private:
  int draw_ = 0;
};

TEST_F(TunedLink, OnASlowOneItCompressesAndSaysWhy) {
  begin(kSlow, "balanced");
  steps(60);
  const nlohmann::json before = row();
  steps(60);
  const nlohmann::json after = row();
  for (const auto& one : {before, after}) {
    const std::string sent_by = one.value("recipe", "");
    EXPECT_TRUE(sent_by.find("3lc") != std::string::npos ||
                sent_by.find("int") != std::string::npos)
        << one;
    EXPECT_NE(one.value("reason", "").find(" an operation, "), std::string::npos) << one;
    EXPECT_EQ(one.value("reason", "").find("nothing is known"), std::string::npos) << one;
  }
  EXPECT_LE(after.value("switches", 0) - before.value("switches", 0), 2) << after;
}

TEST_F(TunedLink, WhenItBecomesFastNothingIsEncodedAnyMore) {
  begin(kSlow, "lossless");
  steps(30);
  EXPECT_NE(recipe().find("lossless"), std::string::npos) << row();
  for (const auto& link : links) link->set_rate(kFast);
  int ops = 0;
  for (; ops < 200 && recipe() != "raw"; ops += 10) steps(10);
  EXPECT_EQ(recipe(), "raw") << row();
}

}  // namespace
}  // namespace tern::e2e
