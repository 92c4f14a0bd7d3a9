// What the tuner is held to, in the simulated world of `tern-bench tuner`.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/tuner_report.h"
#include "bench/tuner_scenario.h"

namespace tern::bench {
namespace {

constexpr double kSmall = 4.0 * (1 << 20);
constexpr double kLarge = 100e6;
constexpr std::uint64_t kFirstSeed = 1;

const TunerSamples& samples() {
  static const TunerSamples kSamples = [] {
    auto read = read_tuner_samples(TERN_TUNER_SAMPLES);
    if (!read) throw std::runtime_error(read.error().text);
    return *read;
  }();
  return kSamples;
}

class Simulation : public testing::TestWithParam<double> {
 protected:
  std::vector<ContestResult> run(std::vector<std::string> traces) {
    ScenarioOptions options;
    options.bytes = {GetParam()};
    options.first_seed = kFirstSeed;
    options.seeds = GetParam() == kSmall ? 12 : 4;
    options.traces = std::move(traces);
    RecordProperty("seeds", fmt_seeds(options));
    auto results = run_scenarios(samples(), options);
    EXPECT_EQ(results.size(), options.seeds * options.traces.size());
    return results;
  }

  // What holds on every trace.
  static void expect_safe(const ContestResult& result) {
    EXPECT_EQ(result.violations, 0u) << result.trace;
    EXPECT_LE(result.worst_window(), 0.03) << result.trace;
  }

 private:
  static std::string fmt_seeds(const ScenarioOptions& options) {
    return std::to_string(options.first_seed) + "+" + std::to_string(options.seeds);
  }
};

TEST_P(Simulation, RegretOnConstantLinks) {
  for (const auto& result :
       run({"0.1 Gbit/s", "1 Gbit/s", "10 Gbit/s", "25 Gbit/s", "100 Gbit/s"})) {
    EXPECT_LE(result.regret(), 0.03) << result.trace;
    expect_safe(result);
  }
}

TEST_P(Simulation, RegretAndRecoveryOnSteps) {
  for (const auto& result : run({"steps"})) {
    EXPECT_LE(result.regret(), 0.05);
    EXPECT_LE(result.longest_recovery(), 3u);
    EXPECT_EQ(result.recovery.size(), 6u);
    expect_safe(result);
  }
}

TEST_P(Simulation, RegretAndRecoveryOnTheMarkovLink) {
  for (const auto& result : run({"Markov 100 and 6.4"})) {
    EXPECT_LE(result.regret(), 0.08);
    EXPECT_LE(result.longest_recovery(), 3u);
    expect_safe(result);
  }
}

TEST_P(Simulation, OtherLinks) {
  for (const auto& result : run({"random walk", "24, 10 % spikes to 0.8", "competing job on 10"})) {
    EXPECT_LE(result.regret(), 0.08) << result.trace;
    EXPECT_LE(result.longest_recovery(), 3u) << result.trace;
    expect_safe(result);
  }
}

TEST_P(Simulation, ABusyCore) {
  for (const auto& result : run({"busy core on 10"})) {
    EXPECT_LE(result.regret(), 0.15);
    expect_safe(result);
  }
}

// Where several recipes are about as fast as raw, single windows and recoveries are worse than the
// aim (docs/tuner.md has the figures); the regret is not.
TEST_P(Simulation, SlowCodecsOnConstantLinks) {
  for (const auto& result :
       run({"0.1 Gbit/s, slow codecs", "1 Gbit/s, slow codecs", "10 Gbit/s, slow codecs",
            "25 Gbit/s, slow codecs", "100 Gbit/s, slow codecs"})) {
    EXPECT_LE(result.regret(), 0.03) << result.trace;
    EXPECT_EQ(result.violations, 0u) << result.trace;
  }
}

TEST_P(Simulation, SlowCodecsOnSteps) {
  for (const auto& result : run({"steps, slow codecs"})) {
    EXPECT_LE(result.regret(), 0.05);
    EXPECT_LE(result.longest_recovery(), 3u);
    EXPECT_EQ(result.violations, 0u);
  }
}

TEST_P(Simulation, SlowCodecsOnTheMarkovLink) {
  for (const auto& result : run({"Markov 100 and 6.4, slow codecs"})) {
    EXPECT_LE(result.regret(), 0.08);
    EXPECT_EQ(result.violations, 0u);
  }
}

// The model has no term for these.
TEST_P(Simulation, RecipesThatTheModelCannotExpress) {
  for (const auto& result : run({"3LC stalls, 10", "3LC by data, 1", "norm jumps, 1"})) {
    EXPECT_LE(result.regret(), 0.05) << result.trace;
    expect_safe(result);
  }
}

TEST_P(Simulation, TimesOfTheRealDaemon) {
  for (const auto& result :
       run({"daemon, 0.1", "daemon, 1", "daemon, 10", "daemon, steps", "daemon, walk"})) {
    EXPECT_LE(result.regret(), 0.05) << result.trace;
    expect_safe(result);
  }
}

INSTANTIATE_TEST_SUITE_P(Payload, Simulation, testing::Values(kSmall, kLarge),
                         [](const auto& test) {
                           return test.param == kSmall ? std::string("4MiB") : "100MB";
                         });

TEST(SimulationReport, IsTheSameEveryTime) {
  ScenarioOptions options;
  options.bytes = {kSmall};
  options.ops = 300;
  options.traces = {"steps", "1 Gbit/s"};
  const auto report = [&] {
    return tuner_json(run_scenarios(samples(), options), samples(), options);
  };
  const auto first = report();
  EXPECT_EQ(first, report());
  ASSERT_EQ(first.at("rows").size(), 2u);
  EXPECT_EQ(first.at("rows").at(0).at("course").size(), 300u);
  options.first_seed = 2;
  EXPECT_NE(first, report());
}

TEST(SimulationSamples, SayWhatIsWrong) {
  using nlohmann::json;
  const json good = {
      {"chunk_bytes", 262144},
      {"lane", {{"byte_ns", 0.4}, {"chunk_ns", 4000}}},
      {"candidates", {{{"recipe", "raw"}, {"lossless", true}, {"samples", {{0, 0.1, 1, 0}}}}}},
      {"ops", json::array()}};
  ASSERT_TRUE(parse_tuner_samples(good).has_value());
  for (const char* name : {"chunk_bytes", "lane", "candidates", "ops"}) {
    json bad = good;
    bad.erase(name);
    EXPECT_FALSE(parse_tuner_samples(bad).has_value()) << name;
  }
  json bad = good;
  bad["candidates"][0]["recipe"] = "lossless";
  EXPECT_FALSE(parse_tuner_samples(bad).has_value());
  bad = good;
  bad["candidates"][0]["samples"][0][2] = -1.0;
  EXPECT_FALSE(parse_tuner_samples(bad).has_value());
  EXPECT_FALSE(read_tuner_samples("no/such/file").has_value());
}

}  // namespace
}  // namespace tern::bench
