#include "tuner/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/tuner/tuner_rig.h"

namespace tern::tuner {
namespace {

using testing::HasSubstr;

TEST(Tuner, ChoosesByWhatItWasTold) {
  Tuner tuner(usual_candidates(), no_first_ops());
  tuner.add_tensor(1, tensor("w"));
  EXPECT_EQ(tuner.decide(1).broadcast, kRaw);
  measure_all(tuner, 1);
  for (int i = 0; i < 8; ++i) tuner.observe_rate("b", 12.5e6, false);
  tuner.decide(1);
  EXPECT_EQ(tuner.candidates()[tuner.decide(1).broadcast].recipe, "3lc:s=1");
  tuner.set_bounds(1, Level::lossless, std::nullopt);
  EXPECT_EQ(tuner.candidates()[tuner.decide(1).broadcast].recipe, "lossless");
  tuner.set_bounds(1, Level::balanced, Bounds{0.05, 1.0});
  tuner.decide(1);
  tuner.decide(1);
  EXPECT_EQ(tuner.candidates()[tuner.decide(1).broadcast].recipe, "ef(int:bits=4)");
}

TEST(Tuner, TheSameCallsGetTheSameAnswers) {
  const std::uint64_t seed = 3;
  RecordProperty("seed", static_cast<int>(seed));
  const auto run = [&] {
    Tuner tuner(usual_candidates());
    tuner.add_tensor(1, tensor("w"));
    std::mt19937_64 engine(seed);
    std::vector<Choice> choices;
    for (int op = 0; op < 2000; ++op) {
      random_observations(tuner, 1, engine);
      choices.push_back(tuner.decide(1));
      OpMeasurement measured;
      measured.op.choice = choices.back();
      measured.op.ns = 1e6 * static_cast<double>(1 + engine() % 100);
      measured.op.error = {{1.0, 0.1, 1000}, {}, engine() % 200 == 0};
      tuner.observe_op(1, measured);
    }
    return choices;
  };
  EXPECT_EQ(run(), run());
}

// One hop against four: of a small tensor the wake-ups are most of the time.
TEST(Tuner, SmallTensorsStayRawWhereAHopIsLong) {
  for (const double hop_ns : {10e3, 100e3}) {
    Tuner tuner(usual_candidates(), no_first_ops());
    TensorInfo info = tensor("w");
    info.shape.bytes = 64 << 10;
    info.shape.eager_bytes = 64 << 10;
    tuner.add_tensor(1, info);
    measure_all(tuner, 1);
    for (int i = 0; i < 8; ++i) tuner.observe_rate("b", 312e6, false);
    tuner.observe_peer("b", 312e6, 20e3);
    const std::vector<CandidateIndex> raw(info.peers.size(), kRaw);
    const double work_ns = tuner.view(1).candidates[kRaw].predicted_ns;
    for (int op = 0; op < 20; ++op) {
      OpMeasurement measured;
      measured.op.choice = {raw, kRaw};
      measured.op.ns = work_ns + hop_ns;
      measured.op.error = {{1.0, 0.0, 1000}, {}, false};
      tuner.observe_op(1, measured);
    }
    tuner.decide(1);
    EXPECT_EQ(tuner.decide(1).broadcast == kRaw, hop_ns == 100e3) << hop_ns;
  }
}

// What takes one hop however it is sent shows how long a hop is, however it is sent.
TEST(Tuner, SmallBlocksAreWorthItHoweverLongAHopIs) {
  for (const double hop_ns : {10e3, 100e3}) {
    Tuner tuner(usual_candidates(), no_first_ops());
    TensorInfo info = tensor("w");
    info.shape.bytes = info.shape.eager_bytes = 64 << 10;
    info.shape.eager_blocks = true;
    tuner.add_tensor(1, info);
    measure_all(tuner, 1);
    for (int i = 0; i < 8; ++i) tuner.observe_rate("b", 125e6, false);
    tuner.observe_peer("b", 125e6, 1e3);
    const double work_ns = tuner.view(1).candidates[kRaw].predicted_ns;
    for (int op = 0; op < 20; ++op) {
      OpMeasurement measured;
      measured.op.choice = {{kRaw}, kRaw};
      measured.op.ns = work_ns + hop_ns;
      measured.op.error = {{1.0, 0.0, 1000}, {}, false};
      tuner.observe_op(1, measured);
    }
    tuner.decide(1);
    const Choice choice = tuner.decide(1);
    EXPECT_NE(choice.broadcast, kRaw) << hop_ns;
    EXPECT_EQ(choice.reduce[0], choice.broadcast) << "there is one leg";
    // In place of a millisecond that a wrong rate had made of it.
    OpMeasurement fast;
    fast.op.choice = choice;
    fast.op.ns = 60e3;
    fast.op.error = {{1.0, 0.0, 1000}, {}, false};
    tuner.observe_op(1, fast);
    EXPECT_LT(tuner.view(1).candidates[choice.broadcast].predicted_ns, 80e3);
  }
}

TEST(Tuner, ExplainsItself) {
  Tuner tuner(usual_candidates(), no_first_ops());
  tuner.add_tensor(1, tensor("w"));
  measure_all(tuner, 1);
  for (int i = 0; i < 8; ++i) tuner.observe_rate("b", 12.5e6, false);
  tuner.decide(1);
  tuner.decide(1);
  const Tuner::TensorView view = tuner.view(1);
  EXPECT_EQ(view.name, "w");
  EXPECT_EQ(view.level, "balanced");
  EXPECT_EQ(view.recipe, "3lc:s=1");
  EXPECT_THAT(view.reason, HasSubstr("bottleneck is"));
  ASSERT_EQ(view.candidates.size(), usual_candidates().size());
  for (const auto& one : view.candidates) {
    EXPECT_FALSE(one.verdict.empty());
    EXPECT_GT(one.predicted_ns, 0.0);
  }
  EXPECT_EQ(view.candidates[5].verdict, "in use");
  EXPECT_THAT(view.candidates[6].verdict, HasSubstr("allowed is 0.93"));
  EXPECT_THAT(view.candidates[0].verdict, HasSubstr("% slower"));
}

// Of a trial the policy's reason would say nothing: it is that of what comes after.
TEST(Tuner, SaysOfATrialThatItIsOne) {
  Settings settings = no_first_ops();
  settings.policy.trial_every = 8;
  Tuner tuner(usual_candidates(), settings);
  TensorInfo info = tensor("w");
  info.level = Level::conservative;
  tuner.add_tensor(1, std::move(info));
  measure_all(tuner, 1);
  for (int i = 0; i < 8; ++i) tuner.observe_rate("b", 1.25e9, false);
  OpMeasurement measured;
  measured.op.ns = 1e8;
  int ops = 0;
  while (!(measured.op.choice = tuner.decide(1)).trial && ++ops < 20'000) {
    tuner.observe_op(1, measured);
  }
  ASSERT_TRUE(measured.op.choice.trial) << ops;
  const Tuner::TensorView view = tuner.view(1);
  EXPECT_THAT(view.reason, HasSubstr("a trial, after which it is "));
  int kept = 0;
  for (const auto& one : view.candidates) kept += one.verdict == "in use again after the trial";
  EXPECT_EQ(kept, 1);
}

TEST(Tuner, SaysByWhatEachLegIsSent) {
  Tuner tuner(usual_candidates(), no_first_ops());
  tuner.add_tensor(1, tensor("w"));
  measure_all(tuner, 1);
  OpMeasurement led;
  led.op.choice = tuner.decide(1);
  led.op.choice.reduce.assign(led.op.choice.reduce.size(), CandidateIndex{5});
  led.op.choice.broadcast = kRaw;
  led.op.led = true;
  tuner.observe_op(1, led);
  tuner.decide(1);
  const Tuner::TensorView view = tuner.view(1);
  EXPECT_EQ(view.recipe, "3lc:s=1 -> raw");
  EXPECT_EQ(view.candidates[5].verdict, "in use for contributions");
  EXPECT_EQ(view.candidates[kRaw].verdict, "in use for results");
  EXPECT_THAT(view.reason, HasSubstr("leading node"));
}

// The lane measures the encoding of both legs together.
TEST(Tuner, OfTwoRecipesNothingIsLearntOfTheFirstOnesEncoding) {
  Tuner tuner(usual_candidates(), no_first_ops());
  tuner.add_tensor(1, tensor("w"));
  measure_all(tuner, 1);
  for (int i = 0; i < 8; ++i) tuner.observe_rate("b", 12.5e6, false);
  OpMeasurement measured;
  measured.encoded_bytes = 64 << 20;
  measured.op.choice = tuner.decide(1);
  const auto run = [&](CandidateIndex results, double ns_per_byte) {
    measured.op.choice.reduce.assign(1, CandidateIndex{5});
    measured.op.choice.broadcast = results;
    measured.encode_ns = ns_per_byte * static_cast<double>(measured.encoded_bytes);
    for (int op = 0; op < 30; ++op) tuner.observe_op(1, measured);
    return tuner.view(1).candidates[5].work_ns;
  };
  const double before = run(5, 0.25);
  EXPECT_EQ(run(4, 0.5), before);
  EXPECT_GT(run(kRaw, 0.5), before);
}

TEST(Tuner, AnUnmeasuredCandidateSaysSo) {
  Tuner tuner(usual_candidates());
  tuner.add_tensor(1, tensor("w"));
  tuner.decide(1);
  EXPECT_THAT(tuner.view(1).candidates[3].verdict, HasSubstr("not measured"));
}

TEST(Tuner, ChoicesHaveWords) {
  const Tuner tuner(usual_candidates());
  EXPECT_EQ(tuner.choice_text({{0, 0}, 0, 0}), "raw");
  EXPECT_EQ(tuner.choice_text({{5, 5}, 4, 0}), "3lc:s=1 -> ef(int:bits=4)");
  EXPECT_EQ(tuner.choice_text({{5, 2}, 5, 0}), "3lc:s=1|ef(bf16) -> 3lc:s=1");
}

TEST(Tuner, ObservationsOfATensorThatIsGoneAreLeftOut) {
  Tuner tuner(usual_candidates());
  tuner.add_tensor(1, tensor("w"));
  tuner.remove_tensor(1);
  EXPECT_FALSE(tuner.has_tensor(1));
  measure_all(tuner, 1);
  tuner.observe_op(1, {});
  tuner.remove_tensor(1);
  tuner.add_tensor(1, tensor("other"));
  EXPECT_FALSE(tuner.policy(1).allowed(1));
}

TEST(Tuner, SaysWhyATensorStaysRaw) {
  Tuner tuner(usual_candidates(), no_first_ops());
  tuner.add_tensor(1, tensor("w"));
  tuner.decide(1);
  EXPECT_THAT(tuner.view(1).reason, HasSubstr("nothing is known yet"));
  measure_all(tuner, 1);
  for (int i = 0; i < 8; ++i) tuner.observe_rate("b", 12.5e9, false);
  tuner.set_bounds(1, Level::lossless, std::nullopt);
  for (int op = 0; op < 300; ++op) tuner.decide(1);
  EXPECT_EQ(tuner.candidates()[tuner.decide(1).broadcast].recipe, "raw");
  EXPECT_THAT(tuner.view(1).reason, HasSubstr("the least predicted time"));
}

// What passes in large blocks shows a link that its carrier calls idle; but not a burst.
TEST(Tuner, KnowsWhatARateShows) {
  Tuner tuner(usual_candidates(), no_first_ops());
  tuner.add_tensor(1, tensor("w"));
  measure_all(tuner, 1);
  const std::size_t peers = tuner.decide(1).reduce.size();
  SentOp op;
  op.choice = {std::vector<CandidateIndex>(peers, kRaw), kRaw};
  op.ns = tuner.view(1).candidates[kRaw].work_ns;
  EXPECT_EQ(tuner.evidence(1, op, 12.5e9, false), Evidence::full);
  EXPECT_EQ(tuner.evidence(1, op, 12.5e9, true), Evidence::passed);
  op.ns *= 20.0;  // the link has held it up
  EXPECT_EQ(tuner.evidence(1, op, 12.5e9, true), Evidence::limited);
  op.choice = {std::vector<CandidateIndex>(peers, CandidateIndex{5}), CandidateIndex{5}};
  op.ns = tuner.view(1).candidates[5].work_ns;
  EXPECT_EQ(tuner.evidence(1, op, 12.5e9, true), Evidence::limited);
}

}  // namespace
}  // namespace tern::tuner
