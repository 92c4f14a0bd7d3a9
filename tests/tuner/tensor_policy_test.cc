#include "tuner/tensor_policy.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/tuner/policy_rig.h"

namespace tern::tuner {
namespace {

TEST(TensorPolicy, SendsRawUntilSomethingIsMeasured) {
  Rig rig(Level::aggressive, {.gbit = 0.1});
  EXPECT_EQ(rig.decide(), (Choice{{kRaw}, kRaw, 0}));
  for (std::size_t one = 1; one < rig.candidates.size(); ++one) {
    EXPECT_FALSE(rig.policy.allowed(static_cast<CandidateIndex>(one)));
  }
  rig.measure(kInt8);
  EXPECT_TRUE(rig.policy.allowed(kInt8));
  rig.step();
  EXPECT_EQ(rig.decide().broadcast, kInt8);
}

TEST(TensorPolicy, EachLevelTakesTheFastestItAllowsOnASlowLink) {
  const std::vector<std::pair<Level, CandidateIndex>> expected = {{Level::lossless, kLossless},
                                                                  {Level::conservative, kInt8},
                                                                  {Level::balanced, kThreeLc},
                                                                  {Level::aggressive, kSparse}};
  for (const auto& [level, recipe] : expected) {
    Rig rig(level, {.gbit = 0.1});
    rig.measure_all();
    EXPECT_EQ(rig.decide(), (Choice{{recipe}, recipe, 0})) << level_name(level);
  }
}

TEST(TensorPolicy, AFastLinkGetsRaw) {
  Rig rig(Level::lossless, {.gbit = 100.0});
  rig.measure_all();
  for (int op = 0; op < 50; ++op) EXPECT_EQ(rig.step().broadcast, kRaw);
  EXPECT_EQ(rig.policy.switches(), 0u);
}

TEST(TensorPolicy, ATinyTensorGetsRaw) {
  Rig rig(Level::aggressive, {.gbit = 1.0, .bytes = 4096});
  rig.measure_all();
  for (int op = 0; op < 50; ++op) EXPECT_EQ(rig.step().broadcast, kRaw);
}

TEST(TensorPolicy, BusyCoresGetRaw) {
  Rig rig(Level::balanced, {.gbit = 10.0});
  rig.measure_all();
  EXPECT_NE(rig.decide().broadcast, kRaw);
  rig.slow_codecs(8.0);
  for (int op = 0; op < 5; ++op) rig.step();
  EXPECT_EQ(rig.decide().broadcast, kRaw);
}

// Whatever the link does and samples say, no choice is beyond the bound.
TEST(TensorPolicy, TheBoundIsHard) {
  const std::uint64_t seed = 5;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937_64 engine(seed);
  PolicySettings settings;
  settings.trial_every = 4;
  for (const Level level : {Level::lossless, Level::conservative, Level::balanced}) {
    Rig rig(level, {.gbit = 1.0, .nodes = 3, .settings = settings, .guard = {3, 8, 4.0}});
    rig.measure_all();
    for (int op = 0; op < 2000; ++op) {
      const auto one = static_cast<CandidateIndex>(1 + engine() % 6);
      rig.policy.observe_sample(
          one, rig.wires[one],
          rig.losses[one] * (0.5 + static_cast<double>(engine() % 1000) / 999));
      rig.windows[engine() % 2].observe(kGbit * static_cast<double>(1 + engine() % 100), false);
      const Choice choice = rig.decide();
      const double bound = rig.policy.guard().bounds().loss;
      const auto within = [&](CandidateIndex used) {
        return rig.candidates[used].lossless || rig.policy.records()[used].cautious_loss() <= bound;
      };
      EXPECT_TRUE(within(choice.broadcast));
      for (const CandidateIndex reduce : choice.reduce) EXPECT_TRUE(within(reduce));
      const double length = engine() % 50 == 0 ? 100.0 : 1.0;
      rig.policy.observe_op(
          {choice, false, true, 1e6, {{length, 0.0, 1000}, {}, engine() % 90 == 0}}, rig.now());
    }
    EXPECT_GT(rig.policy.guard().alarms(), 0u);
  }
}

TEST(TensorPolicy, AnAlarmTakesEffectAtTheNextOpAndEnds) {
  Rig rig(Level::balanced, {.gbit = 0.1, .guard = {0, 8, 4.0}});
  rig.measure_all();
  rig.step();
  EXPECT_EQ(rig.step().broadcast, kThreeLc);
  rig.step(1.0, kNotFinite);
  for (int op = 0; op < 8; ++op) {
    EXPECT_EQ(rig.step().broadcast, kInt8) << op;
    EXPECT_EQ(rig.policy.reason(), Reason::alarm);
  }
  EXPECT_EQ(rig.step().broadcast, kThreeLc);
  EXPECT_EQ(rig.policy.reason(), Reason::alarm_over);
}

TEST(TensorPolicy, ALossThatGrowsForbidsARecipeAtOnce) {
  Rig rig(Level::balanced, {.gbit = 0.1});
  rig.measure_all();
  rig.step();
  EXPECT_EQ(rig.step().broadcast, kThreeLc);
  for (int i = 0; i < 3; ++i) rig.policy.observe_sample(kThreeLc, 0.02, 0.97);
  EXPECT_FALSE(rig.policy.allowed(kThreeLc));
  EXPECT_EQ(rig.step().broadcast, kInt4);
  EXPECT_EQ(rig.policy.reason(), Reason::not_allowed_now) << "there is no alarm";
}

TEST(TensorPolicy, DoesNotFlapUnderNoise) {
  const std::uint64_t seed = 7;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937_64 engine(seed);
  const auto factor = [&] { return 0.8 + 0.4 * static_cast<double>(engine() % 10001) / 1e4; };
  for (const double gbit : {0.1, 1.0, 5.0, 10.0, 20.0, 40.0}) {
    Rig rig(Level::balanced, {.gbit = gbit});
    rig.measure_all();
    for (int op = 0; op < 1000; ++op) {
      rig.windows[0].observe(gbit * kGbit * factor(), false);
      const auto one = static_cast<CandidateIndex>(1 + op % 6);
      rig.policy.observe_sample(one, rig.wires[one], rig.losses[one]);
      rig.step(factor());
    }
    EXPECT_LE(rig.policy.switches(), 8u) << gbit;
  }
}

TEST(TensorPolicy, ASlowerLinkIsAnsweredAtOnce) {
  Rig rig(Level::balanced, {.gbit = 100.0});
  rig.measure_all();
  rig.slow_codecs(4.0);
  for (int op = 0; op < 100; ++op) rig.step();
  const CandidateIndex before = rig.decide().broadcast;
  EXPECT_NE(before, kThreeLc);
  // One slow moment is no change; two are.
  rig.windows[0].observe(0.1 * kGbit, false);
  EXPECT_NE(rig.step().broadcast, kThreeLc);
  rig.windows[0].observe(0.1 * kGbit, false);
  EXPECT_EQ(rig.step().broadcast, kThreeLc);
}

// Who compresses well does not fill the link: a probe shows what it can do, once there is a sign.
TEST(TensorPolicy, ProbesAtASignAndSwitches) {
  Rig rig(Level::balanced, {.gbit = 1.0});
  rig.measure_all();
  rig.slow_codecs(4.0);
  for (int op = 0; op < 100; ++op) EXPECT_EQ(rig.step().probe_chunks, 0u) << op;
  rig.windows[0].observe(2.0 * kGbit, true);
  const Choice probing = rig.step();
  EXPECT_EQ(probing.probe_chunks, 1u);
  EXPECT_EQ(probing.broadcast, kThreeLc);
  rig.windows[0].observe(100.0 * kGbit, false);
  EXPECT_NE(rig.step().broadcast, kThreeLc);
  EXPECT_EQ(rig.policy.reason(), Reason::link_changed);
}

TEST(TensorPolicy, DoesNotProbeWhereNothingCouldChange) {
  // At level conservative and with slow codecs nothing beats raw on any link.
  Rig rig(Level::conservative, {.gbit = 20.0});
  rig.measure_all();
  for (CodecCost& cost : rig.costs) cost = {5.0, 5.0, 1.0};
  rig.costs[kRaw] = {0.0, 0.15, 1.0};
  for (int op = 0; op < 200; ++op) {
    rig.windows[0].observe(20.0 * kGbit, true);
    EXPECT_EQ(rig.step().probe_chunks, 0u);
  }
}

TEST(TensorPolicy, ProbesKeepToTheirBudget) {
  Rig rig(Level::balanced, {.gbit = 1.0});
  rig.measure_all();
  rig.slow_codecs(4.0);
  double extra = 0.0;
  double all = 0.0;
  for (int op = 0; op < 5000; ++op) {
    rig.windows[0].observe(0.5 * kGbit, true);
    const Choice choice = rig.step();
    all += rig.policy.predicted(choice.broadcast, rig.now()).total_ns;
    extra += choice.probe_chunks * static_cast<double>(256 << 10) / kGbit * 1e9;
  }
  EXPECT_GT(extra, 0.0);
  EXPECT_LT(extra, 0.015 * all);
}

// The lane is the model's. How often the recipe that the model prefers, and that takes so many
// times as long, is used in a thousand ops after two thousand.
int uses_of_a_slow_favourite(double times) {
  PolicySettings settings;
  Rig rig(Level::balanced, {.gbit = 10.0, .settings = settings});
  for (int op = 0; op < 4; ++op) rig.step();  // raw
  rig.measure_all();
  const CandidateIndex favourite = rig.decide().broadcast;
  EXPECT_NE(favourite, kRaw);
  int used = 0;
  for (int op = 0; op < 3000; ++op) {
    const Choice choice = rig.decide();
    const bool slow = choice.broadcast == favourite || choice.reduce[0] == favourite;
    if (op >= 2000 && slow) ++used;
    const OpShape& shape = rig.policy.shape();
    CodecCost reduce = rig.costs[choice.reduce[0]];
    CodecCost broadcast = rig.costs[choice.broadcast];
    reduce.wire = rig.wires[choice.reduce[0]];
    broadcast.wire = rig.wires[choice.broadcast];
    const double ns = predict(shape, {reduce, broadcast}, {}, {10.0 * kGbit, 50e3}).total_ns;
    rig.policy.observe_op({choice, false, true, slow ? times * ns : ns, kCalm}, rig.now());
  }
  return used;
}

TEST(TensorPolicy, LearnsThatTheModelIsWrongOfARecipe) {
  for (const double times : {3.0, 4.5, 6.0, 10.0, 20.0, 40.0}) {
    EXPECT_LT(uses_of_a_slow_favourite(times), 50) << times;
  }
}

// A page fault, or a pause of the machine.
TEST(TensorPolicy, AnOpThatIsFarOffNowAndThenTeachesNothing) {
  Rig rig(Level::balanced, {.gbit = 0.1});
  rig.measure_all();
  for (int op = 0; op < 300; ++op) rig.step(op % 3 == 0 ? 1.0 : 100.0);
  for (const CandidateRecord& record : rig.policy.records()) {
    EXPECT_NEAR(record.fit, 1.0, 1e-6);
  }
}

TEST(TensorPolicy, TrialsComeRoundToRawForEver) {
  PolicySettings settings;
  settings.trial_every = 8;
  Rig rig(Level::conservative, {.gbit = 10.0, .settings = settings});
  rig.measure_all();
  int raw_late = 0;
  for (int op = 0; op < 20000; ++op) {
    const Choice choice = rig.step();
    if (op > 10000 && choice.broadcast == kRaw) ++raw_late;
  }
  EXPECT_GE(raw_late, 3);
  EXPECT_LE(raw_late, 200);
}

// Two peers, one of them slow: the op waits for that one whatever the other gets.
TEST(TensorPolicy, AFastPeerIsSparedLossWhereAnotherIsTheBottleneck) {
  Rig rig(Level::balanced, {.gbit = 0.05, .nodes = 3});
  rig.set_rate(1, 100.0);
  rig.measure_all();
  rig.step();
  const Choice choice = rig.decide();
  EXPECT_EQ(choice.reduce[0], kThreeLc);
  EXPECT_LT(rig.losses[choice.reduce[1]], rig.losses[choice.reduce[0]]);
  // The results go to both at once, so that the slow one counts.
  EXPECT_EQ(choice.broadcast, kThreeLc);
}

// It has little to send, and so its link is never full.
TEST(TensorPolicy, AFastPeerIsSparedLossThoughItsLinkIsIdle) {
  Rig rig(Level::balanced, {.gbit = 0.05, .nodes = 3});
  rig.windows[1] = RateWindow();
  for (int i = 0; i < 8; ++i) rig.windows[1].observe(10.0 * kGbit, true);
  rig.measure_all();
  rig.step();
  const Choice choice = rig.decide();
  EXPECT_EQ(choice.reduce[0], kThreeLc);
  EXPECT_LT(rig.losses[choice.reduce[1]], rig.losses[choice.reduce[0]]);
}

TEST(TensorPolicy, EqualPeersGetTheSame) {
  Rig rig(Level::balanced, {.gbit = 0.1, .nodes = 4});
  rig.measure_all();
  rig.step();
  const Choice choice = rig.decide();
  for (const CandidateIndex one : choice.reduce) EXPECT_EQ(one, choice.reduce[0]);
}

// Ten nodes on one busy wire: some node tells of a slow moment, beside which all links look free.
TEST(TensorPolicy, EqualPeersGetTheSameWhereSomebodyElseIsSlow) {
  Rig rig(Level::conservative, {.gbit = 0.1, .nodes = 10});
  rig.inbound = {0.004 * kGbit};
  rig.measure_all();
  rig.step();
  const Choice choice = rig.decide();
  EXPECT_EQ(choice.reduce[0], kInt8);
  for (const CandidateIndex one : choice.reduce) EXPECT_EQ(one, choice.reduce[0]);
}

// What operators are told of a recipe's time is what the choice was made by.
TEST(TensorPolicy, PredictsTheTimeThatSlowPeersLeave) {
  Rig fast(Level::balanced, {.gbit = 10.0}), slow(Level::balanced, {.gbit = 1.0});
  const double behind_fast = fast.policy.predicted(kRaw, fast.now()).total_ns;
  fast.inbound = {1.0 * kGbit};
  EXPECT_GT(fast.policy.predicted(kRaw, fast.now()).total_ns, 2.0 * behind_fast);
  EXPECT_DOUBLE_EQ(fast.policy.predicted(kRaw, fast.now()).total_ns,
                   slow.policy.predicted(kRaw, slow.now()).total_ns);
}

TEST(TensorPolicy, KeepsToWhatTheLeadingNodeSendsBy) {
  Rig rig(Level::balanced, {.gbit = 0.1});
  rig.measure_all();
  for (int op = 0; op < 20; ++op) rig.step();
  ASSERT_EQ(rig.decide().broadcast, kThreeLc);
  for (int op = 0; op < 100; ++op) {
    rig.step_led(kRaw);
    ASSERT_EQ(rig.decide().broadcast, kRaw);
  }
  EXPECT_EQ(rig.policy.reason(), Reason::followed);
}

TEST(TensorPolicy, DoesNotKeepToATrialOfTheLeadingNode) {
  Rig rig(Level::balanced, {.gbit = 0.1});
  rig.measure_all();
  for (int op = 0; op < 20; ++op) rig.step_led(kThreeLc);
  const std::uint64_t switches = rig.policy.switches();
  rig.step_led(kRaw, true);
  EXPECT_EQ(rig.decide().broadcast, kThreeLc);
  EXPECT_EQ(rig.policy.switches(), switches);
}

TEST(TensorPolicy, ChoosesAgainWhenNobodyLeads) {
  Rig rig(Level::balanced, {.gbit = 0.1});
  rig.measure_all();
  for (int op = 0; op < 20; ++op) rig.step_led(kRaw);
  rig.step();
  EXPECT_EQ(rig.decide().broadcast, kThreeLc);
}

TEST(TensorPolicy, AnAlarmGoesBeforeTheLeadingNode) {
  Rig rig(Level::balanced, {.gbit = 0.1});
  rig.measure_all();
  for (int op = 0; op < 20; ++op) rig.step_led(kThreeLc);
  rig.step(1.0, kNotFinite);
  EXPECT_FALSE(rig.policy.allowed(kThreeLc));
  EXPECT_NE(rig.decide().broadcast, kThreeLc);
}

TEST(TensorPolicy, EveryReasonHasWords) {
  for (const Reason reason :
       {Reason::start, Reason::fastest, Reason::alarm, Reason::alarm_over, Reason::link_changed,
        Reason::load_changed, Reason::near_enough, Reason::followed, Reason::nothing_allowed}) {
    EXPECT_FALSE(reason_text(reason).empty());
  }
}

// ---- Programs that encode themselves ------------------------------------------------------------

// At 10 Gbit/s and 64 MiB raw takes some 60 ms.
RigSetup with_client_blocks() { return {.gbit = 10.0, .has_client_blocks = true}; }

TEST(TensorPolicyOfClientBlocks, ASlowProgramGetsRaw) {
  Rig rig(Level::balanced, with_client_blocks());
  rig.measure_all();
  // Far longer than a lane, and than raw.
  rig.client_ns = {1e6, 300e6, 300e6, 300e6, 300e6, 300e6, 300e6};
  int compressed = 0;
  for (int op = 0; op < 200; ++op) compressed += rig.step().reduce[0] != kRaw ? 1 : 0;
  EXPECT_EQ(rig.decide().reduce[0], kRaw);
  EXPECT_GT(compressed, 0) << "it never saw what the program takes";
  EXPECT_LE(compressed, 4) << "what one recipe takes says what others may";
  EXPECT_GT(rig.policy.client_ns(kThreeLc, rig.now()), 50e6);
}

// Lanes that take long to encode are no reason against it.
TEST(TensorPolicyOfClientBlocks, AFastProgramNeedNoFastLane) {
  Rig rig(Level::balanced, with_client_blocks());
  rig.measure_all();
  for (CodecCost& cost : rig.costs) cost.encode_ns *= 8.0;
  rig.client_ns = {1e6, 2e6, 2e6, 2e6, 2e6, 2e6, 2e6};
  for (int op = 0; op < 50; ++op) rig.step();
  EXPECT_NE(rig.decide().reduce[0], kRaw);
  EXPECT_NEAR(
      rig.policy.last_measured_ns(),
      2e6 + rig.policy
                .predicted({rig.policy.contributions(), rig.policy.choice().broadcast}, rig.now())
                .total_ns,
      1e6);
}

// One op whose program lost its processor.
TEST(TensorPolicyOfClientBlocks, OneLongEncodingChangesNothing) {
  Rig rig(Level::balanced, with_client_blocks());
  rig.measure_all();
  rig.client_ns = {1e6, 2e6, 2e6, 2e6, 2e6, 2e6, 2e6};
  for (int op = 0; op < 60; ++op) rig.step();
  const Choice before = rig.decide();
  EXPECT_NE(before.reduce[0], kRaw);
  rig.client_ns[before.reduce[0]] = 500e6;
  rig.step();
  rig.client_ns[before.reduce[0]] = 2e6;
  for (int op = 0; op < 20; ++op) EXPECT_EQ(rig.step().reduce[0], before.reduce[0]) << op;
}

}  // namespace
}  // namespace tern::tuner
