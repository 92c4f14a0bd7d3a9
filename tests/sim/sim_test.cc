// Thousands of short random runs of whole clusters, one per seed.
//   TERN_SIM_SEEDS=n   how many
//   TERN_SIM_SEED=n    only this one
//   TERN_SIM_TRACE=1   writes what happens, with the daemons' logs

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "seed_run.h"
#include "tests/rounds.h"

namespace tern::sim {
namespace {

std::uint64_t number_from(const char* name, std::uint64_t fallback) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

TEST(Simulation, EverySeedKeepsThePromises) {
  const std::uint64_t only = number_from("TERN_SIM_SEED", 0);
  const std::uint64_t first = only != 0 ? only : 1;
  const std::uint64_t count = only != 0 ? 1 : number_from("TERN_SIM_SEEDS", TERN_SIM_DEFAULT_SEEDS);
  RunCounts all;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(testing::Message()
                 << trouble_name(make_plan(seed).trouble) << "; again with TERN_SIM_SEED=" << seed
                 << " TERN_SIM_TRACE=1 sim_test");
    SeedRun run(seed);
    run.run();
    if (HasFailure()) {
      std::printf("failed: TERN_SIM_SEED=%llu\n", static_cast<unsigned long long>(seed));
      return;
    }
    all.ops_ok += run.counts().ops_ok;
    all.ops_failed += run.counts().ops_failed;
    all.rejoins += run.counts().rejoins;
    all.links_lost += run.counts().links_lost;
    all.rounds += run.counts().rounds;
  }
  std::printf(
      "%llu seeds: %llu results, %llu errors, %llu rejoins, %llu links lost, %llu rounds\n",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(all.ops_ok),
      static_cast<unsigned long long>(all.ops_failed), static_cast<unsigned long long>(all.rejoins),
      static_cast<unsigned long long>(all.links_lost), static_cast<unsigned long long>(all.rounds));
  // The runs are not all of one kind.
  if (only == 0 && count >= 200) {
    EXPECT_GT(all.ops_failed, 0u);
    EXPECT_GT(all.links_lost, 0u);
  }
}

// What is random in a daemon, its secrets, decides nothing.
TEST(Simulation, OneSeedIsOneRun) {
  const auto seeds = static_cast<std::uint64_t>(tests::rounds(50));
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "TERN_SIM_SEED=" << seed);
    SeedRun first(seed), second(seed);
    first.run();
    second.run();
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(first.counts().rounds, second.counts().rounds);
    EXPECT_EQ(first.counts().outcomes_crc, second.counts().outcomes_crc);
    ASSERT_TRUE(first.counts() == second.counts());
  }
}

}  // namespace
}  // namespace tern::sim
