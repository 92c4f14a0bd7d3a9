// Joins that end at the moment at which the epoch begins: their time runs out, or their process
// dies and another takes its place. Whatever overtakes what, nobody is told of a list that is not
// proven, and who tries again gets in.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cluster.h"
#include "tests/daemon/control/all_rows.h"

namespace tern::sim {
namespace {

constexpr std::uint64_t kMoments = 16;  // at which something happens
constexpr std::uint64_t kSeeds = 20 * kMoments;

std::uint64_t bad_messages(Cluster& cluster, std::size_t daemon) {
  return cluster.world.daemon(daemon)
      .conductor->reports()
      .counters()["bad_control_messages"]["value"]
      .get<std::uint64_t>();
}

bool waits_for_rank_0(Cluster& cluster, std::size_t daemon) {
  const auto rows = daemon::all_rows(
      cluster.world.daemon(daemon).conductor->reports().groups(daemon::Scope::of_all()));
  return rows.size() == 1 && rows[0]["waiting"][0]["ranks"] == nlohmann::json::array({0});
}

// A network on which what is said takes a while to be heard.
void slow_down(Cluster& cluster) {
  net::FaultSettings slow;
  slow.delay = 1'000'000;
  slow.delay_min_ns = slow.delay_max_ns = 50'000;
  cluster.world.set_faults(slow);
}

// Counts what conductors say to each other.
class ControlTap {
 public:
  explicit ControlTap(World& world) {
    world.tap = [this](const net::OutgoingFrame& frame) {
      std::string text;
      for (const auto part : {frame.head, frame.body}) {
        for (const std::byte one : part) text.push_back(static_cast<char>(one));
      }
      // What comes before the text is binary, and may have such a byte too.
      for (auto at = text.find('{'); at != std::string::npos; at = text.find('{', at + 1)) {
        const auto said = nlohmann::json::parse(text.substr(at), nullptr, false);
        if (said.is_object() && said.contains("t")) return note(said);
      }
    };
  }
  std::uint32_t count(const std::string& type) { return counts_[type]; }
  // Answers to a join that were sent when its daemon had already withdrawn it.
  std::uint32_t crossed(const std::string& type) { return crossed_[type]; }

 private:
  void note(const nlohmann::json& said) {
    const std::string type = said["t"];
    ++counts_[type];
    if (type == "withdraw") withdrawn_.insert(said["nonce"]);
    if (said.contains("nonce") && withdrawn_.contains(said["nonce"])) ++crossed_[type];
  }

  std::map<std::string, std::uint32_t> counts_;
  std::map<std::string, std::uint32_t> crossed_;
  std::set<std::string> withdrawn_;
};

void steps(Cluster& cluster, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) cluster.world.step();
}

// Rank 1 waits until its time runs out and tries again at once, as programs do. Rank 0, beside the
// coordinator, comes at about that moment.
TEST(JoinRaces, TheTimeOfARankRunsOutWhileTheLastOneComes) {
  std::uint32_t just_in_time = 0, too_late = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Cluster cluster({1, 1}, {}, seed);
    slow_down(cluster);
    cluster.world.skips = false;  // each leap of time past a skipped component is up to 100 ms
    Client& first = *cluster.ranks[0];
    Client& second = *cluster.ranks[1];
    cluster.id = cluster.mint();
    JoinOptions options;
    options.timeout_ms = 3'000;
    const std::uint64_t deadline = cluster.world.clock.now_ns() + 3 * kSecond;
    std::uint64_t second_join = second.join(cluster.id, 1, 2, options);
    ASSERT_TRUE(cluster.world.run_until([&] { return waits_for_rank_0(cluster, 1); }, 5 * kSecond));
    // From 160 us before the time runs out until 160 us after it.
    const std::uint64_t moment = deadline - 160'000 + seed % kMoments * 20'000;
    cluster.world.clock.advance_ns(std::min(moment, deadline) - cluster.world.clock.now_ns());
    ASSERT_TRUE(cluster.world.run_until([&] { return cluster.world.clock.now_ns() >= moment; }));
    const std::uint64_t came = cluster.world.clock.now_ns();
    const std::uint64_t first_join = first.join(cluster.id, 0, 2);
    bool tried_again = false;
    ASSERT_TRUE(cluster.world.run_until(
        [&] {
          if (!second.answered(second_join)) return false;
          if (second.status_of(second_join).status == Errc::ok) return first.answered(first_join);
          EXPECT_EQ(second.status_of(second_join).status, Errc::timeout) << "seed " << seed;
          EXPECT_EQ(second.status_of(second_join).detail, "waited for rank 0") << "seed " << seed;
          tried_again = true;
          second_join = second.join(cluster.id, 1, 2, options);
          return false;
        },
        10 * kSecond))
        << "seed " << seed;
    const std::uint64_t now = cluster.world.clock.now_ns();
    EXPECT_LT(now, came + kSecond / 2)
        << "seed " << seed << ": somebody waited for an answer that did not come";
    too_late += tried_again ? 1 : 0;
    just_in_time += !tried_again && now > deadline ? 1 : 0;
    ASSERT_TRUE(first.adopt_join(first_join, 0))
        << "seed " << seed << ": " << first.status_of(first_join).detail;
    ASSERT_TRUE(second.adopt_join(second_join, 1));
    EXPECT_EQ(first.group.epoch, second.group.epoch);
    EXPECT_EQ(bad_messages(cluster, 1), 0u) << "seed " << seed;
    cluster.leave_all();
  }
  EXPECT_GT(just_in_time, 0u);
  EXPECT_GT(too_late, 0u);
}

// Joins and reduces, from the beginning again when something fails, as programs do.
class Program {
 public:
  Program(Cluster& cluster, Client& client, std::uint32_t rank)
      : cluster_(cluster), client_(client), rank_(rank) {}

  void join() { join_ = client_.join(cluster_.id, rank_, 2, options); }

  // True when an operation has succeeded.
  bool advance() {
    if (!submitted_ && client_.answered(join_)) {
      if (client_.adopt_join(join_, rank_)) {
        ticket_ = client_.submit(all_reduce(DType::f32, 10));
        submitted_ = true;
      } else {
        try_again(client_.status_of(join_).detail);
      }
    } else if (submitted_ && client_.done(ticket_)) {
      if (client_.result(ticket_).status == Errc::ok) return true;
      const std::string detail = client_.result(ticket_).detail;
      client_.leave();
      submitted_ = false;
      try_again(detail);
    }
    return false;
  }

  const std::vector<std::string>& failures() const { return failures_; }

  JoinOptions options;

 private:
  void try_again(const std::string& why) {
    failures_.push_back(why);
    join();
  }

  Cluster& cluster_;
  Client& client_;
  std::uint32_t rank_;
  std::uint64_t join_ = 0, ticket_ = 0;
  bool submitted_ = false;
  std::vector<std::string> failures_;
};

void run_both(Cluster& cluster, Program& one, Program& other) {
  bool one_done = false, other_done = false;
  ASSERT_TRUE(cluster.world.run_until(
      [&] {
        one_done = one_done || one.advance();
        other_done = other_done || other.advance();
        return one_done && other_done;
      },
      10 * kSecond));
}

// The coordinator is told that a join is taken back, and of the one that replaces it, when it has
// begun the epoch with the old one.
TEST(JoinRaces, AProcessDiesAndAnotherTakesItsRankWhileTheEpochBegins) {
  std::uint32_t overtaken = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Cluster cluster({1, 2}, {}, seed);  // the last one stands by
    slow_down(cluster);
    cluster.id = cluster.mint();
    cluster.ranks[1]->join(cluster.id, 1, 2);
    ASSERT_TRUE(cluster.world.run_until([&] { return waits_for_rank_0(cluster, 1); }));
    Program first(cluster, *cluster.ranks[0], 0);
    Program successor(cluster, *cluster.ranks[2], 1);
    first.join();
    steps(cluster, static_cast<std::uint32_t>(seed % kMoments));
    cluster.world.close(*cluster.ranks[1]);
    cluster.ranks.erase(cluster.ranks.begin() + 1);
    successor.join();
    run_both(cluster, first, successor);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    for (const Program* program : {&first, &successor}) {
      for (const std::string& why : program->failures()) {
        EXPECT_TRUE(contains(why, "rank 1")) << "seed " << seed << ": " << why;
        overtaken += contains(why, "rank 1 went while the others joined") ? 1 : 0;
      }
    }
    EXPECT_EQ(bad_messages(cluster, 1), 0u) << "seed " << seed;
    cluster.leave_all();
  }
  EXPECT_GT(overtaken, 0u);
}

// Rank 1 comes again and again before the coordinator, just restarted, knows the group. A challenge
// may then cross the withdrawal of the join that it is for.
TEST(JoinRaces, ARankTriesAgainWhileItsCoordinatorLearnsTheGroup) {
  std::uint32_t late_challenges = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Cluster cluster({1, 1}, {}, seed);
    slow_down(cluster);
    ControlTap tap(cluster.world);
    cluster.id = cluster.mint();
    cluster.world.kill(0);
    cluster.world.restart(0);
    cluster.ranks[0] = &cluster.world.connect(0, "job", 8 << 20);
    ASSERT_TRUE(cluster.world.run_until([&] { return cluster.ranks[0]->ready(); }));
    Program first(cluster, *cluster.ranks[0], 0);
    Program second(cluster, *cluster.ranks[1], 1);
    second.options.timeout_ms = 1;
    second.join();
    ASSERT_TRUE(cluster.world.run_until([&] {
      second.advance();
      return second.failures().size() > 2 + seed % 2;
    }));
    steps(cluster, static_cast<std::uint32_t>(seed % kMoments));
    first.join();
    run_both(cluster, first, second);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    for (const std::string& why : second.failures()) {
      EXPECT_TRUE(contains(why, "cannot be reached") || contains(why, "does not know the group") ||
                  contains(why, "did not answer in time") || contains(why, "waited for rank 0"))
          << "seed " << seed << ": " << why;
    }
    late_challenges += tap.crossed("challenge");
    EXPECT_EQ(bad_messages(cluster, 1), 0u) << "seed " << seed;
    cluster.leave_all();
  }
  EXPECT_GT(late_challenges, 0u);
}

// A daemon that asks itself does not sleep on the answer.
TEST(JoinRaces, ARankBesideItsCoordinatorIsToldAtOnceThatItsTimeHasRunOut) {
  Cluster cluster({1});
  cluster.id = cluster.mint();
  JoinOptions options;
  options.timeout_ms = 10'000;
  const std::uint64_t join = cluster.ranks[0]->join(cluster.id, 0, 2, options);
  ASSERT_TRUE(cluster.world.run_until(
      [&] {
        const auto rows = daemon::all_rows(
            cluster.world.daemon(0).conductor->reports().groups(daemon::Scope::of_all()));
        return rows[0]["waiting"][0]["ranks"] == nlohmann::json::array({1});
      },
      5 * kSecond));
  cluster.world.clock.advance_ns(10 * kSecond);
  VirtualDaemon& daemon = cluster.world.daemon(0);
  for (int round = 0; round < 5 && !cluster.ranks[0]->answered(join); ++round) {
    EXPECT_LE(daemon.conductor->next_deadline_ns(), cluster.world.clock.now_ns());
    daemon.step(0);
  }
  ASSERT_TRUE(cluster.ranks[0]->answered(join));
  EXPECT_EQ(cluster.ranks[0]->status_of(join).detail, "waited for rank 1");
}

// What is said last on a link that breaks is not waited for, and not for long on one that is
// silent.
TEST(JoinRaces, ALateRankIsAnsweredAlsoIfItsCoordinatorIsGoneOrSilent) {
  for (const bool gone : {true, false}) {
    Cluster cluster({1, 1});
    slow_down(cluster);
    cluster.world.skips = false;
    ControlTap tap(cluster.world);
    cluster.id = cluster.mint();
    JoinOptions options;
    options.timeout_ms = 2'000;
    const std::uint64_t deadline = cluster.world.clock.now_ns() + 2 * kSecond;
    const std::uint64_t join = cluster.ranks[1]->join(cluster.id, 1, 2, options);
    ASSERT_TRUE(cluster.world.run_until([&] { return waits_for_rank_0(cluster, 1); }, kSecond));
    ASSERT_TRUE(cluster.world.run_until([&] { return tap.count("withdraw") == 1; }));
    EXPECT_GE(cluster.world.clock.now_ns(), deadline);
    if (gone) {
      cluster.world.kill(0);
      cluster.world.restart(0);
      cluster.ranks[0] = nullptr;
    } else {
      cluster.world.set_partitioned(0, 1, true);
    }
    const std::uint64_t begin = cluster.world.clock.now_ns();
    ASSERT_TRUE(cluster.await(*cluster.ranks[1], join, 2 * kSecond));
    EXPECT_EQ(cluster.ranks[1]->status_of(join).status, Errc::timeout);
    EXPECT_EQ(cluster.ranks[1]->status_of(join).detail, "waited for rank 0");
    EXPECT_EQ(tap.count("withdrawn"), 0u);
    EXPECT_EQ(cluster.world.clock.now_ns() < begin + kSecond / 2, gone);
  }
}

}  // namespace
}  // namespace tern::sim
