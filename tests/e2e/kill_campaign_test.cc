// Random deaths, one after the other, on a cluster that works all the time. $TERN_KILLS says how
// many, $TERN_SEED repeats a run that failed.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/rank_process.h"

namespace tern::e2e {
namespace {

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

class Campaign {
 public:
  explicit Campaign(std::uint64_t seed)
      : random_(seed), cluster_(3, {}, {{"--lanes", "3"}, {"--lanes", "2"}, {"--lanes", "2"}}) {}

  bool begin() {
    if (!cluster_.running()) return false;
    ranks_ = Ranks(cluster_, {2, 1, 2});
    for (std::size_t node = 0; node < 3; ++node) idle_.push_back(cluster_[node].holdings());
    return ranks_.join() == "";
  }

  // One death and the recovery from it. What went wrong, or empty.
  std::string round() {
    const std::uint64_t ops = random_() % 150;
    const std::int64_t done = completed();
    ranks_.tell_all("stream group=g ops=0 tensors=" + std::to_string(random_() % 4) +
                    " window=" + std::to_string(1 + random_() % 16) + " large=120000");
    if (!eventually([&] { return completed() >= done + static_cast<std::int64_t>(ops); })) {
      return "the stream does not move";
    }
    choose_victims();
    strike();
    std::string problems;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (dead_ranks_.contains(rank)) continue;
      const Reply reply = ranks_[rank].reply();
      const bool told = reply.code == TERN_ERR_RANK_LOST || reply.code == TERN_ERR_PEER_LOST ||
                        reply.code == TERN_ERR_DAEMON_LOST;
      if (!told)
        problems += "rank " + std::to_string(rank) + " got [" + std::to_string(reply.code) + "] " +
                    reply.text + "; ";
    }
    return problems.empty() ? recover() : story_ + ": " + problems;
  }

  // With all ranks gone no daemon holds anything of them.
  std::string end() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) ranks_[rank].process().kill();
    for (std::size_t node = 0; node < 3; ++node) {
      const bool clean = eventually([&] {
        const Holdings now = cluster_[node].holdings();
        return now.segments == 0 && now.descriptors <= idle_[node].descriptors + kLinks &&
               cluster_[node].ask("groups").empty();
      });
      if (!clean) return "node " + std::to_string(node) + " holds on to the dead";
    }
    return "";
  }

 private:
  static constexpr int kNodeOfRank[] = {0, 0, 1, 2, 2};
  // Two peers, three lanes and the conductor.
  static constexpr std::size_t kLinks = std::size_t{2} * 4;

  std::int64_t completed() {
    std::int64_t all = 0;
    for (std::size_t node = 0; node < 3; ++node)
      all += std::max<std::int64_t>(0, cluster_[node].counter("ops_completed"));
    return all;
  }

  void choose_victims() {
    dead_ranks_.clear();
    dead_nodes_.clear();
    const auto node = static_cast<std::size_t>(random_() % 3);
    switch (random_() % 4) {
      case 0:
        dead_ranks_.insert(random_() % ranks_.size());
        break;
      case 1:
        dead_nodes_.insert(node);
        break;
      case 2:  // the whole node
        dead_nodes_.insert(node);
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
          if (kNodeOfRank[rank] == static_cast<int>(node)) dead_ranks_.insert(rank);
        }
        break;
      case 3:  // a rank and a daemon, anywhere
        dead_ranks_.insert(random_() % ranks_.size());
        dead_nodes_.insert(node);
        break;
    }
    story_ = "killed";
    for (const auto dead : dead_nodes_) story_ += " daemon " + std::to_string(dead);
    for (const auto rank : dead_ranks_) story_ += " rank " + std::to_string(rank);
  }

  void strike() {
    for (const auto rank : dead_ranks_) ranks_[rank].process().signal(SIGKILL);
    for (const auto node : dead_nodes_) cluster_[node].process().signal(SIGKILL);
  }

  std::string recover() {
    for (const auto node : dead_nodes_) {
      if (!cluster_[node].restart()) return story_ + ": the daemon does not come back";
      idle_[node] = cluster_[node].holdings();
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto node = static_cast<std::size_t>(kNodeOfRank[rank]);
      if (dead_ranks_.contains(rank)) {
        ranks_.replace(rank, cluster_, node);
      } else if (dead_nodes_.contains(node)) {
        ranks_[rank].ask("disconnect");
        const Reply connected = ranks_[rank].connect();
        if (!connected.ok()) return story_ + ": connect: " + connected.text;
      } else {
        const Reply left = ranks_[rank].ask("leave group=g");
        if (!left.ok()) return story_ + ": leave: " + left.text;
      }
    }
    const std::string joined = ranks_.rejoin();
    return joined.empty() ? "" : story_ + ": rejoin: " + joined;
  }

  std::mt19937_64 random_;
  Cluster cluster_;
  Ranks ranks_;
  std::vector<Holdings> idle_;
  std::set<std::size_t> dead_ranks_, dead_nodes_;
  std::string story_;
};

TEST(KillCampaign, EverySurvivorIsToldAndGoesOn) {
  const std::uint64_t kills = setting("TERN_KILLS", 100);
  const std::uint64_t seed = setting("TERN_SEED", std::random_device{}());
  std::printf("seed %llu, %llu kills; TERN_SEED repeats the choices\n",
              static_cast<unsigned long long>(seed), static_cast<unsigned long long>(kills));
  Campaign campaign(seed);
  ASSERT_TRUE(campaign.begin());
  for (std::uint64_t kill = 0; kill < kills; ++kill) {
    ASSERT_EQ(campaign.round(), "") << "kill " << kill << " of seed " << seed;
  }
  EXPECT_EQ(campaign.end(), "");
}

}  // namespace
}  // namespace tern::e2e
