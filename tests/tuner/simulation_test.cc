// What the tuner is held to, in the simulated world of `tern-bench tuner`.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "bench/tuner_promises.h"
#include "bench/tuner_report.h"
#include "bench/tuner_scenario.h"

namespace tern::bench {
namespace {

constexpr double kSmall = 4.0 * (1 << 20);
constexpr std::uint64_t kFirstSeed = 1;

const TunerSamples& samples() {
  static const TunerSamples kSamples = [] {
    auto read = read_tuner_samples(TERN_TUNER_SAMPLES);
    if (!read) throw std::runtime_error(read.error().text);
    return *read;
  }();
  return kSamples;
}

using tuner::Level;

// A level, in a world that costs other than the model assumes and whose nodes measure badly.
class Simulation : public testing::TestWithParam<Level> {
 protected:
  std::vector<ContestResult> run(std::vector<std::string> traces) {
    ScenarioOptions options;
    options.levels = {GetParam()};
    options.bytes = {kSmall};
    options.ops = kOps;
    options.first_seed = kFirstSeed;
    options.seeds = kSeeds;
    options.traces = std::move(traces);
    RecordProperty("seeds", std::to_string(kFirstSeed) + "+" + std::to_string(kSeeds));
    auto results = run_scenarios(samples(), options);
    EXPECT_EQ(results.size(), options.seeds * options.traces.size());
    return results;
  }

  // What holds on every trace: regret, mean of all seeds; and of each seed the windows.
  void expect_kept(const std::vector<std::string>& traces) {
    std::map<std::string, double> regret;
    for (const ContestResult& result : run(traces)) {
      SCOPED_TRACE(result.trace + ", seed " + std::to_string(result.seed));
      const Promises promises(result);
      EXPECT_EQ(result.violations, 0u);
      EXPECT_LE(promises.worst_window().slower, Promises::kSlower) << promises.cause_of_window();
      EXPECT_EQ(promises.late_recoveries(), 0u);
      EXPECT_LE(promises.most_switches(), 1u);
      regret[result.trace] += result.regret_from(Promises::kWindow) / kSeeds;
      aim_[result.trace] = result.aim;
    }
    for (const auto& [trace, mean] : regret) EXPECT_LE(mean, aim_[trace]) << trace;
  }

 private:
  static constexpr std::size_t kOps = 1000;
  static constexpr std::size_t kSeeds = 3;

  std::map<std::string, double> aim_;
};

TEST_P(Simulation, ConstantLinks) {
  expect_kept({"0.1 Gbit/s", "1 Gbit/s", "10 Gbit/s", "25 Gbit/s", "100 Gbit/s"});
}

TEST_P(Simulation, ConstantLinksAndSlowCodecs) {
  expect_kept({"0.1 Gbit/s, slow codecs", "1 Gbit/s, slow codecs", "10 Gbit/s, slow codecs",
               "25 Gbit/s, slow codecs", "100 Gbit/s, slow codecs"});
}

TEST_P(Simulation, Steps) { expect_kept({"steps"}); }
TEST_P(Simulation, StepsAndSlowCodecs) { expect_kept({"steps, slow codecs"}); }

INSTANTIATE_TEST_SUITE_P(Levels, Simulation,
                         testing::Values(Level::lossless, Level::conservative, Level::balanced,
                                         Level::aggressive),
                         [](const auto& test) { return std::string(level_name(test.param)); });

TEST(SimulationReport, IsTheSameEveryTime) {
  ScenarioOptions options;
  options.bytes = {kSmall};
  options.ops = 300;
  options.traces = {"steps", "1 Gbit/s"};
  const auto report = [&] { return tuner_json(run_scenarios(samples(), options), options); };
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
