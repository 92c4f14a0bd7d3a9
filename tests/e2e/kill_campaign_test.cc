// Random deaths, one after the other: in the middle of a stream of all_reduces, in the middle of
// operations of every kind, and while ranks join or declare. Every survivor hears who was lost.
// $TERN_KILLS says how many, $TERN_SEED repeats the choices of a run that failed.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/rank_process.h"
#include "tests/environment.h"

namespace tern::e2e {
namespace {

class Campaign {
 public:
  explicit Campaign(std::uint64_t seed)
      : random_(seed), cluster_(3, {}, {{"--lanes", "3"}, {"--lanes", "2"}, {"--lanes", "2"}}) {}

  // Empty, or what went wrong; so is every text below.
  std::string begin() {
    if (!cluster_.running()) return "a daemon does not run";
    ranks_ = Ranks(cluster_, {2, 1, 2});
    for (std::size_t node = 0; node < 3; ++node) idle_.push_back(cluster_[node].holdings());
    const std::string joined = ranks_.join();
    return joined.empty() ? work(24) : joined;
  }

  // One death and the recovery from it.
  std::string round() {
    choose_victims();
    outside_.clear();
    problems_.clear();
    switch (random_() % 8) {
      case 0:
        strike_in_join();
        break;
      case 1:
        strike_in_declaration();
        break;
      case 2:
      case 3:
        strike_in_stream();
        break;
      default:
        strike_in_kinds();
        break;
    }
    return problems_.empty() ? recover() : story_ + ": " + problems_;
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

  // Of all daemons.
  std::int64_t counted(const std::string& name) {
    std::int64_t all = 0;
    for (std::size_t node = 0; node < 3; ++node)
      all += std::max<std::int64_t>(0, cluster_[node].counter(name));
    return all;
  }

  // All ranks do some rounds of operations of every kind.
  std::string work(int rounds) {
    std::string problems;
    for (const Reply& reply : ranks_.ask_all("kinds group=g rounds=" + std::to_string(rounds))) {
      if (!reply.ok()) problems += reply.text + "; ";
    }
    return problems;
  }

  void strike_in_stream() {
    const auto ops = static_cast<std::int64_t>(random_() % 150);
    const std::int64_t done = counted("ops_completed");
    ranks_.tell_all("stream group=g ops=0 tensors=" + std::to_string(random_() % 4) +
                    " window=" + std::to_string(1 + random_() % 16) + " large=120000");
    if (!eventually([&] { return counted("ops_completed") >= done + ops; })) {
      problems_ += "the stream does not move";
      return;
    }
    strike();
    for (const std::size_t rank : survivors()) expect_told(rank, ranks_[rank].reply());
  }

  // Collectives of every kind, sends and recvs, batches, splits, pushes and pulls. Each that fails
  // says who was lost.
  void strike_in_kinds() {
    story_ += " among operations of every kind";
    const auto ops = static_cast<std::int64_t>(random_() % 400);
    const std::int64_t done = counted("ops_completed");
    ranks_.tell_all("kinds group=g");
    if (!eventually([&] { return counted("ops_completed") >= done + ops; })) {
      problems_ += "operations do not go on";
      return;
    }
    strike();
    for (const std::size_t rank : survivors()) {
      for (const Reply& failure : failures_of(ranks_[rank].reply())) expect_told(rank, failure);
    }
  }

  // The answer to `kinds`: a failure, and further ones behind it.
  static std::vector<Reply> failures_of(const Reply& answer) {
    std::vector<Reply> failures;
    static const std::regex kFurther(" \\|\\| \\[([0-9]+)\\] ");
    const std::string all = answer.text;
    std::size_t begin = 0;
    int code = answer.code;
    for (std::sregex_iterator found(all.begin(), all.end(), kFurther), end; found != end; ++found) {
      const auto at = static_cast<std::size_t>(found->position());
      failures.push_back({code, all.substr(begin, at - begin)});
      begin = at + static_cast<std::size_t>(found->length());
      code = std::stoi((*found)[1].str());
    }
    failures.push_back({code, all.substr(begin)});
    return failures;
  }

  // When a random number of the joins has reached a daemon; the others are on their way.
  void strike_in_join() {
    story_ += " while ranks join";
    for (const Reply& left : ranks_.ask_all("leave group=g")) {
      if (!left.ok()) problems_ += "leave: " + left.text + "; ";
    }
    const auto come = static_cast<std::int64_t>(random_() % (ranks_.size() + 1));
    const std::int64_t before = counted("joins");
    const std::string join = "join group=g timeout=4000 id=" + ranks_.id() +
                             " size=" + std::to_string(ranks_.size()) + " rank=";
    const auto tell = [&](std::size_t rank) { ranks_[rank].tell(join + std::to_string(rank)); };
    std::size_t rank = 0;
    for (; static_cast<std::int64_t>(rank) < come; ++rank) tell(rank);
    if (!eventually([&] { return counted("joins") >= before + come; })) {
      problems_ += "the joins do not arrive; ";
    }
    for (; rank < ranks_.size(); ++rank) tell(rank);
    strike();
    std::vector<std::size_t> joined;
    for (const std::size_t survivor : survivors()) {
      const Reply reply = ranks_[survivor].reply();
      if (reply.ok()) {
        joined.push_back(survivor);
      } else {
        outside_.insert(survivor);
        expect_told(survivor, reply);
      }
    }
    expect_told_at_work(joined);
  }

  void strike_in_declaration() {
    story_ += " while ranks declare a tensor";
    ranks_.tell_all("declare group=g name=declared role=gradient recipe=3lc:s=1 count=100000");
    strike();
    std::vector<std::size_t> declared;
    for (const std::size_t rank : survivors()) {
      const Reply reply = ranks_[rank].reply();
      if (reply.ok()) {
        declared.push_back(rank);
      } else {
        expect_told(rank, reply);
      }
    }
    expect_told_at_work(declared);
  }

  std::vector<std::size_t> survivors() {
    std::vector<std::size_t> alive;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!dead_ranks_.contains(rank)) alive.push_back(rank);
    }
    return alive;
  }

  // Whoever was in the group when the strike came hears of it with the next ops at the latest.
  void expect_told_at_work(const std::vector<std::size_t>& ranks) {
    for (const std::size_t rank : ranks) ranks_[rank].tell("stream group=g ops=0");
    for (const std::size_t rank : ranks) expect_told(rank, ranks_[rank].reply());
  }

  // A join ends with what was waited for, everything else with what was lost. A rank whose own
  // daemon has died knows no more than that.
  void expect_told(std::size_t rank, const Reply& reply) {
    // A split asks the coordinator as a join does.
    const bool in_join = outside_.contains(rank) || reply.text.rfind("split: ", 0) == 0;
    bool told = reply.code == TERN_ERR_DAEMON_LOST &&
                dead_nodes_.contains(static_cast<std::size_t>(kNodeOfRank[rank]));
    for (const tern_status code : {TERN_ERR_RANK_LOST, TERN_ERR_PEER_LOST}) {
      told = told || (reply.code == code && names_a_victim(reply.text));
    }
    for (const tern_status code : {TERN_ERR_TIMEOUT, TERN_ERR_UNREACHABLE}) {
      told = told || (in_join && reply.code == code && names_a_victim(reply.text));
    }
    if (told) return;
    problems_ += "rank " + std::to_string(rank) + " got [" + std::to_string(reply.code) + "] " +
                 reply.text + "; ";
  }

  // By "rank 3", "ranks 3,4" or a daemon's address; the ranks of a dead daemon are lost with it.
  bool names_a_victim(const std::string& text) {
    for (const auto node : dead_nodes_) {
      if (text.find(cluster_[node].address()) != std::string::npos) return true;
    }
    static const std::regex kRanks("ranks? ([0-9,]+)");
    for (std::sregex_iterator found(text.begin(), text.end(), kRanks), end; found != end; ++found) {
      std::istringstream numbers((*found)[1].str());
      for (std::string number; std::getline(numbers, number, ',');) {
        if (number.empty()) continue;
        const std::size_t rank = std::stoul(number);
        if (rank < ranks_.size() &&
            (dead_ranks_.contains(rank) ||
             dead_nodes_.contains(static_cast<std::size_t>(kNodeOfRank[rank])))) {
          return true;
        }
      }
    }
    return false;
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
      } else if (!outside_.contains(rank)) {
        const Reply left = ranks_[rank].ask("leave group=g");
        if (!left.ok()) return story_ + ": leave: " + left.text;
      }
    }
    const std::string joined = ranks_.rejoin();
    if (!joined.empty()) return story_ + ": rejoin: " + joined;
    const std::string failed = work(3);
    return failed.empty() ? "" : story_ + ": after it: " + failed;
  }

  std::mt19937_64 random_;
  Cluster cluster_;
  Ranks ranks_;
  std::vector<Holdings> idle_;
  std::set<std::size_t> dead_ranks_, dead_nodes_;
  std::set<std::size_t> outside_;  // survivors whose join has failed
  std::string story_, problems_;
};

TEST(KillCampaign, EverySurvivorIsToldAndGoesOn) {
  const std::uint64_t kills = tests::number_of("TERN_KILLS", 100);
  const std::uint64_t seed = tests::number_of("TERN_SEED", std::random_device{}());
  std::printf("seed %llu, %llu kills; TERN_SEED repeats the choices\n",
              static_cast<unsigned long long>(seed), static_cast<unsigned long long>(kills));
  Campaign campaign(seed);
  ASSERT_EQ(campaign.begin(), "");
  for (std::uint64_t kill = 0; kill < kills; ++kill) {
    ASSERT_EQ(campaign.round(), "") << "kill " << kill << " of seed " << seed;
  }
  EXPECT_EQ(campaign.end(), "");
}

}  // namespace
}  // namespace tern::e2e
