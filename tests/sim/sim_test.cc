// Thousands of short random runs of whole clusters, one per seed.
//   TERN_SIM_SEEDS=n   how many
//   TERN_SIM_SEED=n    only this one
//   TERN_SIM_TRACE=1   writes what happens, with the daemons' logs
//   TERN_SIM_LATE_BLOCKS=1   blocks are done late and in a random order: other runs, same promises
//   TERN_SIM_RECORD=f  writes the results of all seeds to a file, for tests/sim/data/results.txt

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "seed_run.h"
#include "tests/environment.h"
#include "tests/rounds.h"

namespace tern::sim {
namespace {

// RunCounts::results_crc by seed.
std::map<std::uint64_t, std::uint32_t> recorded_results() {
  std::map<std::uint64_t, std::uint32_t> results;
  std::ifstream file(TERN_SIM_RESULTS);
  for (std::string line; std::getline(file, line);) {
    unsigned long long seed = 0;
    unsigned crc = 0;
    if (std::sscanf(line.c_str(), "%llu %x", &seed, &crc) == 2) results[seed] = crc;
  }
  return results;
}

TEST(Simulation, EverySeedKeepsThePromises) {
  const std::uint64_t only = tests::number_of("TERN_SIM_SEED", 0);
  const std::uint64_t first = only != 0 ? only : 1;
  const std::uint64_t count =
      only != 0 ? 1 : tests::number_of("TERN_SIM_SEEDS", TERN_SIM_DEFAULT_SEEDS);
  const char* const record = std::getenv("TERN_SIM_RECORD");
  const auto recorded = recorded_results();
  if (record == nullptr) {
    ASSERT_GE(recorded.size(), 500u) << TERN_SIM_RESULTS;
  }
  std::ofstream record_file(record != nullptr ? record : "");
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
    if (record != nullptr) {
      char line[40];
      std::snprintf(line, sizeof(line), "%llu %08x\n", static_cast<unsigned long long>(seed),
                    run.counts().results_crc);
      record_file << line;
    } else if (const auto result = recorded.find(seed);
               result != recorded.end() && !blocks_are_late()) {
      // Formats and the order of addition are promises: what trains today trains so tomorrow.
      ASSERT_EQ(run.counts().results_crc, result->second) << "the results have other bits";
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
