// Every attack, each for two seconds beside another user's job: nothing of that job is lost, and
// nothing is left of the attack. Two go on at a time, each as a user of his own, because a trial
// takes as long to begin and to end as an attack. At length each goes on alone, as one user and as
// four. TERN_ATTACK_SECONDS is for how long.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/attack/trial.h"
#include "tests/environment.h"

namespace tern::attack {
namespace {

// What a daemon may have more: caches that have a bound, what the allocator does not give back, and
// slabs of its lane, whose pages go back when it has been idle. A sanitizer has several bytes
// beside each of the daemon's, and keeps freed memory.
#if defined(TERN_SANITIZES)
constexpr std::int64_t kGrowthBytes = std::int64_t{1} << 30;
#else
constexpr std::int64_t kGrowthBytes = 128 << 20;
#endif

bool is_at_length() { return std::getenv("TERN_TESTS_AT_LENGTH") != nullptr; }

std::vector<Attack> held_attacks() {
  auto all = all_attacks();
  std::erase_if(
      all, [](const Attack& one) { return one.standing != Standing::held || one.name == kHog; });
  return all;
}

// Who attack the same daemons at the same time.
using Attackers = std::vector<Attack>;

std::vector<Attackers> each_alone(const std::vector<Attack>& attacks) {
  std::vector<Attackers> alone;
  alone.reserve(attacks.size());
  for (const Attack& one : attacks) alone.push_back({one});
  return alone;
}

// Beside each the one that is half the list away, which is of another family.
std::vector<Attackers> in_pairs(const std::vector<Attack>& attacks) {
  std::map<Stage, Attackers> of_stage;
  for (const Attack& one : attacks) of_stage[one.stage].push_back(one);
  std::vector<Attackers> pairs;
  for (const auto& [stage, all] : of_stage) {
    const std::size_t half = (all.size() + 1) / 2;
    for (std::size_t i = 0; i < half; ++i) {
      Attackers& pair = pairs.emplace_back(Attackers{all[i]});
      if (half + i < all.size()) pair.push_back(all[half + i]);
    }
  }
  return pairs;
}

class Attacks : public ::testing::TestWithParam<Attackers> {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can be several users";
  }
};

void expect_undisturbed(Trial& trial, const Trial::Plan& plan) {
  SCOPED_TRACE(std::to_string(plan.users) + " users");
  const auto figures = trial.run(plan);
  ASSERT_TRUE(figures.is_object()) << "the job of the other user has died: " << trial.victim_said();
  EXPECT_EQ(figures["lost"], 0) << figures;
  EXPECT_EQ(figures["wrong"], 0) << figures;
  EXPECT_EQ(figures["joins_failed"], 0) << figures;
  EXPECT_EQ(figures["versions_failed"], 0) << figures;
  EXPECT_GT(figures["ops"], 0);
  EXPECT_GT(figures["joins"], 0);
  EXPECT_GT(figures["versions"], 0);
  EXPECT_GT(figures["least_blows"], 0) << "one has not attacked";
  for (std::size_t node = 0; node < trial.cluster().size(); ++node) {
    const auto end = trial.daemon(node).process().wait_exit(std::chrono::milliseconds(0));
    EXPECT_FALSE(end.has_value()) << "daemon " << node << ": exit " << end->status << ", signal "
                                  << end->signal;
  }
}

TEST_P(Attacks, DisturbNobody) {
  const Attackers& attackers = GetParam();
  const std::uint64_t seed = tests::number_of("TERN_SEED", std::random_device()());
  const auto seconds =
      static_cast<double>(tests::number_of("TERN_ATTACK_SECONDS", is_at_length() ? 10 : 2));
  SCOPED_TRACE("TERN_SEED=" + std::to_string(seed));
  Trial trial(attackers.front().stage);
  ASSERT_EQ(trial.problem(), "");
  expect_undisturbed(trial, {.attack = kHog, .seconds = 0.3, .seed = seed});
  const Burden before = burden_of(trial.daemon().pid());
  Trial::Plan plan{.attack = attackers.front().name, .seconds = seconds, .seed = seed};
  for (std::size_t i = 1; i < attackers.size(); ++i) plan.beside.push_back(attackers[i].name);
  expect_undisturbed(trial, plan);
  if (is_at_length()) {
    plan.users = 4;
    expect_undisturbed(trial, plan);
  }
  if (HasFatalFailure()) return;
  Burden after;
  // An idle lane gives back the pages of its slabs a while after the last operation.
  EXPECT_TRUE(e2e::eventually([&] {
    after = burden_of(trial.daemon().pid());
    return after.descriptors <= before.descriptors &&
           after.anonymous_bytes < before.anonymous_bytes + kGrowthBytes;
  })) << after.descriptors
      << " descriptors, before " << before.descriptors << "; " << after.anonymous_bytes
      << " bytes, before " << before.anonymous_bytes;
}

// Each with an attack of his own, and nobody plans them together: eight that are drawn, and at
// length all of them.
TEST(EightUsers, DisturbNobody) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be several users";
  constexpr std::size_t kUsers = 8;
  const std::uint64_t seed = tests::number_of("TERN_SEED", std::random_device()());
  SCOPED_TRACE("TERN_SEED=" + std::to_string(seed));
  auto attacks = held_attacks();
  std::erase_if(attacks, [](const Attack& one) { return one.stage != Stage::plain; });
  std::mt19937_64 random(seed);
  std::shuffle(attacks.begin(), attacks.end(), random);
  Trial trial(Stage::plain);
  ASSERT_EQ(trial.problem(), "");
  if (!is_at_length()) attacks.resize(kUsers);
  const double seconds = is_at_length() ? 10 : 2;
  for (std::size_t first = 0; first < attacks.size(); first += kUsers) {
    Trial::Plan plan{.attack = attacks[first].name, .seconds = seconds, .seed = seed};
    std::string names(plan.attack);
    for (std::size_t i = first + 1; i < std::min(first + kUsers, attacks.size()); ++i) {
      plan.beside.push_back(attacks[i].name);
      names += " " + std::string(attacks[i].name);
    }
    SCOPED_TRACE(names);
    expect_undisturbed(trial, plan);
  }
}

std::vector<Attackers> attackers() {
  const auto held = held_attacks();
  return is_at_length() ? each_alone(held) : in_pairs(held);
}

const auto kNames = [](const auto& attackers) {
  std::string names;
  for (const Attack& one : attackers.param) {
    names += (names.empty() ? "" : "_and_") + std::string(one.name);
  }
  return names;
};
INSTANTIATE_TEST_SUITE_P(All, Attacks, ::testing::ValuesIn(attackers()), kNames);

}  // namespace

// What the name of a case cannot say.
void PrintTo(const Attack& attack, std::ostream* out) { *out << attack.promise; }

}  // namespace tern::attack
