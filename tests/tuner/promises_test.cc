#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/tuner_promises.h"

namespace tern::bench {
namespace {

using testing::HasSubstr;

// A run in which raw takes a millisecond, and the tuner too.
ContestResult run_of(std::size_t ops) {
  ContestResult result;
  result.recipes = {"raw", "lossless"};
  result.ops.assign(ops, OpRecord{1e6, 1e6, 1e6, 1e6, 1e6, {}, {}, false, {}});
  return result;
}

void take_longer(ContestResult& result, std::size_t first, std::size_t count, double factor) {
  for (std::size_t i = first; i < first + count; ++i) {
    result.ops[i].tuner_ns *= factor;
    result.ops[i].first = {1, 1, 0};
  }
}

TEST(Promises, ARunLikeRawKeepsThem) {
  const ContestResult result = run_of(200);
  const Promises promises(result);
  EXPECT_NEAR(promises.worst_window().slower, 0.0, 1e-9);
  EXPECT_EQ(promises.late_recoveries(), 0u);
  EXPECT_EQ(promises.most_switches(), 0u);
}

TEST(Promises, TheWorstWindowIsFoundAndHasACause) {
  ContestResult result = run_of(300);
  take_longer(result, 120, 10, 1.5);
  const Promises promises(result);
  EXPECT_NEAR(promises.worst_window().slower, 0.1, 1e-9);
  EXPECT_THAT(promises.cause_of_window(), HasSubstr("10 ops by `lossless` where `raw` is best"));
}

TEST(Promises, OfTheFirstOpsNothingIsPromised) {
  ContestResult result = run_of(300);
  take_longer(result, 0, Promises::kWindow, 3.0);
  EXPECT_NEAR(Promises(result).worst_window().slower, 0.0, 1e-9);
}

TEST(Promises, AChangeMayCostThreeOps) {
  ContestResult result = run_of(300);
  take_longer(result, 120, 4, 2.0);
  result.changes = {{120, 10.0}};
  EXPECT_NEAR(Promises(result).worst_window().slower, 0.02, 1e-9);
  result.changes.clear();
  EXPECT_NEAR(Promises(result).worst_window().slower, 0.08, 1e-9);
}

TEST(Promises, AGreatChangeIsAnsweredSooner) {
  ContestResult result = run_of(300);
  take_longer(result, 120, 5, 2.0);
  result.changes = {{120, 1.5}};
  EXPECT_EQ(Promises(result).late_recoveries(), 0u);
  result.changes = {{120, 2.0}};
  EXPECT_EQ(Promises(result).late_recoveries(), 1u);
}

TEST(Promises, SwitchesAreCountedWithoutTrialsAndChanges) {
  ContestResult result = run_of(300);
  for (const std::size_t op : {100u, 130u}) result.ops[op].first = {1, 1, 0};
  EXPECT_EQ(Promises(result).most_switches(), 4u);  // there and back, twice
  result.ops[130].trial = true;
  EXPECT_EQ(Promises(result).most_switches(), 2u);
  result.changes = {{98, 2.0}};
  EXPECT_EQ(Promises(result).most_switches(), 0u);
}

}  // namespace
}  // namespace tern::bench
