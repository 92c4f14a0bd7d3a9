#include "daemon/tuning/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/control/all_rows.h"
#include "tests/daemon/service/log_lines.h"
#include "tuning_rig.h"

namespace tern::daemon::tuning_test {
namespace {

using ::testing::HasSubstr;

using TuningTest = TuningRig;

// ---- Its settings

Result<std::unique_ptr<Tuning>> created(const std::string& policy) {
  static const ManualClock kClock;
  static Disposal writing(Disposal::By::caller);
  TuningSettings settings;
  settings.policy = policy;
  return Tuning::create(settings, kClock, writing);
}

TEST(TuningSettings, CandidatesAreRead) {
  static const ManualClock kClock;
  static Disposal writing(Disposal::By::caller);
  TuningSettings settings;
  settings.candidates = {"raw", "3lx"};
  const auto refused = Tuning::create(settings, kClock, writing);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text, HasSubstr("candidates: "));
  settings.candidates = {"raw", "ef(bf16)"};
  const auto tuning = Tuning::create(settings, kClock, writing);
  ASSERT_TRUE(tuning);
  EXPECT_EQ((*tuning)->recipes()->size(), 2u);
}

TEST(TuningSettings, APolicyIsRead) {
  EXPECT_FALSE(created("* reckless"));
  const auto tuning = created("* conservative");
  ASSERT_TRUE(tuning);
  EXPECT_EQ((*tuning)->policy().advice("job", "weights").level, tuner::Level::conservative);
  EXPECT_EQ((*tuning)->recipes()->size(), tuner::usual_candidates().size());
}

// ---- Tensors

TEST_F(TuningTest, ATensorBeginsRaw) {
  const auto state = declare();
  EXPECT_EQ(tuning->choice_text(*state), "raw") << "it is not tuned yet";
  ASSERT_TRUE(begin(*state));
  EXPECT_EQ(state->tuning->version(), 1u);
  EXPECT_EQ(tuning->choice_text(*state), "raw");
  EXPECT_TRUE(may_use(*state, "raw"));
  EXPECT_FALSE(may_use(*state, "ef(bf16)")) << "nothing was measured";
  EXPECT_TRUE(state->tuning->sample_wanted);
  EXPECT_FALSE(state->tuning->logged);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].tensor, "weights");
  EXPECT_EQ(changes[0].job, "job");
  EXPECT_EQ(changes[0].from, "");
  EXPECT_EQ(changes[0].to, "raw");
}

TEST_F(TuningTest, EveryTensorHasANumberOfItsOwn) {
  const auto first = declare("first"), second = declare("second");
  ASSERT_TRUE(begin(*first));
  ASSERT_TRUE(begin(*second));
  EXPECT_NE(first->tuning->number(), second->tuning->number());
  EXPECT_EQ(first->tuning->list(), second->tuning->list()) << "of one list of candidates";
  measure(*second);
  EXPECT_EQ(tuning->choice_text(*first), "raw");
  EXPECT_EQ(tuning->choice_text(*second), "ef(int:bits=8)");
}

TEST_F(TuningTest, AnotherListOfCandidatesIsAnother) {
  const auto state = declare(), other = declare();
  ASSERT_TRUE(begin(*state));
  settings.candidates = {"raw", "ef(bf16)"};
  restart();
  ASSERT_TRUE(begin(*other));
  EXPECT_NE(state->tuning->list(), other->tuning->list());
}

TEST_F(TuningTest, ATensorThatMayLoseNothingLosesNothing) {
  const auto state = declare();
  state->role = Role::exact;
  state->declared.recipe.memory = codec::Memory::none;
  ASSERT_TRUE(begin(*state, "aggressive"));
  measure(*state);
  EXPECT_EQ(explained()["level"], "lossless");
  EXPECT_EQ(tuning->choice_text(*state), "lossless");
  EXPECT_FALSE(may_use(*state, "ef(bf16)"));
}

TEST_F(TuningTest, WhatHasEndedIsKnownNoMore) {
  const auto state = declare();
  tuning->end(*state);  // it is not tuned
  ASSERT_TRUE(begin(*state));
  const OpRecord late = op_of(*state);
  tuning->end(*state);
  tuning->on_op(*group, *state, late);
  tuning->do_work();
  EXPECT_FALSE(tuning->explain("weights", Scope::of_all()));
  EXPECT_EQ(tuning->choice_text(*state), "raw");
}

// ---- Policy

TEST_F(TuningTest, ADeclarationsLevelGoesBeforeThePolicys) {
  ASSERT_TRUE(tuning->set_policy("* conservative"));
  const auto own = declare("own"), other = declare("other");
  ASSERT_TRUE(begin(*own, "aggressive"));
  ASSERT_TRUE(begin(*other));
  EXPECT_EQ(explained("own")["level"], "aggressive");
  EXPECT_EQ(explained("other")["level"], "conservative");
  ASSERT_TRUE(tuning->set_policy("* lossless"));
  EXPECT_EQ(explained("own")["level"], "aggressive");
  EXPECT_EQ(explained("other")["level"], "lossless");
}

TEST_F(TuningTest, ALevelThatIsNoneIsRefused) {
  const auto state = declare();
  const Status begun = begin(*state, "reckless");
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().code, Errc::invalid_argument);
  EXPECT_EQ(state->tuning, nullptr);
  EXPECT_FALSE(tuning->explain("weights", Scope::of_all()));
}

TEST_F(TuningTest, AnotherPolicyCountsAtOnceAndHasAnotherVersion) {
  const auto state = declare();
  ASSERT_TRUE(begin(*state));
  measure(*state);
  ASSERT_TRUE(may_use(*state, "ef(int:bits=8)"));
  const std::uint64_t before = tuning->policy_version();
  ASSERT_TRUE(tuning->set_policy("job/weig* lossless"));
  EXPECT_NE(tuning->policy_version(), before);
  EXPECT_FALSE(may_use(*state, "ef(int:bits=8)"));
  EXPECT_EQ(tuning->choice_text(*state), "lossless");
  EXPECT_EQ(changes.back().to, "lossless");
}

TEST_F(TuningTest, APolicyThatCannotBeReadChangesNothing) {
  ASSERT_TRUE(tuning->set_policy("* conservative"));
  const std::uint64_t before = tuning->policy_version();
  EXPECT_FALSE(tuning->set_policy("* reckless"));
  EXPECT_EQ(tuning->policy_version(), before);
  EXPECT_EQ(tuning->policy().advice("job", "weights").level, tuner::Level::conservative);
}

TEST_F(TuningTest, BoundsOfAPolicyAreTheTensors) {
  ASSERT_TRUE(tuning->set_policy("* loss<=0.25"));
  const auto state = declare();
  ASSERT_TRUE(begin(*state));
  measure(*state);
  run(*state, 12);
  EXPECT_EQ(explained()["allowed_loss"], 0.25);
  EXPECT_TRUE(may_use(*state, "3lc:s=1"));
  EXPECT_FALSE(may_use(*state, "3lc:s=1.75"));
}

// ---- What has happened

TEST_F(TuningTest, TheFirstSampleLeadsToAChoice) {
  const auto state = declare();
  ASSERT_TRUE(begin(*state));
  measure(*state);
  EXPECT_EQ(state->tuning->version(), 2u);
  EXPECT_EQ(tuning->choice_text(*state), "ef(int:bits=8)");
  EXPECT_EQ(state->tuning->now(0), state->tuning->now(1));
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[1].from, "raw");
  EXPECT_EQ(changes[1].to, "ef(int:bits=8)");
  EXPECT_FALSE(changes[1].trial);
  EXPECT_FALSE(changes[1].reason.empty());
}

TEST_F(TuningTest, OpsLeadToABolderChoice) {
  const auto state = declare();
  ASSERT_TRUE(begin(*state));
  measure(*state);
  run(*state, 9);
  EXPECT_EQ(tuning->choice_text(*state), "ef(int:bits=8)") << "the first ops lose little";
  run(*state, 1);
  EXPECT_EQ(tuning->choice_text(*state), "3lc:s=1.75");
  EXPECT_TRUE(may_use(*state, "3lc:s=1.75"));
  const auto row = explained();
  EXPECT_EQ(row["ops"], 10);
  EXPECT_EQ(row["operation"], "all_reduce");
  EXPECT_EQ(row["measured_us"], 1000.0);
  EXPECT_EQ(row["residual_ratio"], 0.1);
}

TEST_F(TuningTest, AnAlarmTakesTheChoiceBack) {
  const auto state = declare();
  ASSERT_TRUE(begin(*state));
  measure(*state);
  run(*state, 10);
  ASSERT_TRUE(may_use(*state, "3lc:s=1.75"));
  OpRecord bad = op_of(*state);
  bad.tuned->error.nonfinite = true;
  tuning->on_op(*group, *state, bad);
  EXPECT_TRUE(may_use(*state, "3lc:s=1.75")) << "the decision comes with the next work";
  tuning->do_work();
  EXPECT_FALSE(may_use(*state, "3lc:s=1.75"));
  EXPECT_EQ(explained()["alarms"], 1);
}

TEST_F(TuningTest, WhatAClientDoesNotHeedIsNotChosen) {
  const auto state = declare();
  ASSERT_TRUE(begin(*state));
  measure(*state);
  OpRecord record = op_of(*state);
  record.tuned->unheeded = state->tuning->now(1);
  ASSERT_EQ(tuning->choice_text(*state), "ef(int:bits=8)");
  tuning->on_op(*group, *state, record);
  tuning->do_work();
  EXPECT_FALSE(may_use(*state, "ef(int:bits=8)"));
  EXPECT_EQ(tuning->choice_text(*state), "ef(bf16)");
}

TEST_F(TuningTest, OpsThatSayNothingOfAChoiceAreNotCounted) {
  const auto state = declare();
  ASSERT_TRUE(begin(*state));
  OpRecord untuned = op_of(*state), other_lane = untuned, unknown = untuned;
  untuned.tuned.reset();
  other_lane.lane = 0;  // the tensor's ops are counted by lane 1
  unknown.tuned->choice = 99;
  for (const OpRecord& record : {untuned, other_lane, unknown}) {
    tuning->on_op(*group, *state, record);
  }
  tuning->do_work();
  EXPECT_EQ(explained()["ops"], 0);
  run(*state, 1);
  EXPECT_EQ(explained()["ops"], 1);
}

TEST_F(TuningTest, SamplesAreWantedFromTimeToTime) {
  const auto state = declare();
  ASSERT_TRUE(begin(*state));
  measure(*state);
  state->tuning->sample_wanted = false;  // as the lane that has taken one
  tuning->do_work();
  EXPECT_FALSE(state->tuning->sample_wanted);
  clock.advance_ns(kSecond);
  tuning->do_work();
  EXPECT_TRUE(state->tuning->sample_wanted);
}

TEST_F(TuningTest, ComesByItselfForAsLongAsThereAreOps) {
  constexpr std::uint64_t kNever = ~std::uint64_t{0};
  const auto state = declare();
  ASSERT_TRUE(begin(*state));
  EXPECT_EQ(tuning->next_deadline_ns(), kNever);
  run(*state, 1);
  EXPECT_GT(tuning->next_deadline_ns(), clock.now_ns());
  EXPECT_LT(tuning->next_deadline_ns(), clock.now_ns() + kSecond);
  clock.advance_ns(2 * kSecond);
  EXPECT_EQ(tuning->next_deadline_ns(), kNever);
}

// ---- For the operator

TEST_F(TuningTest, OthersTensorsAreUnknown) {
  const auto of_alice = declare(), of_bob = declare("secret");
  ASSERT_TRUE(begin(*of_alice));
  const auto group_of_bob = group_of(kBob, 10);
  ASSERT_TRUE(tuning->begin(*group_of_bob, *of_bob, "", nullptr));
  const auto nobodys = tuning->explain("nothing", Scope::of_user(kAlice));
  const auto bobs = tuning->explain("secret", Scope::of_user(kAlice));
  ASSERT_FALSE(nobodys);
  ASSERT_FALSE(bobs);
  EXPECT_EQ(bobs.error().code, Errc::unknown_tensor);
  EXPECT_EQ(bobs.error().code, nobodys.error().code);
  EXPECT_THAT(bobs.error().text, HasSubstr("no tensor secret is tuned"));
  EXPECT_THAT(nobodys.error().text, HasSubstr("no tensor nothing is tuned"));
  EXPECT_TRUE(tuning->explain("secret", Scope::of_user(kBob)));
  EXPECT_TRUE(tuning->explain("job/secret", Scope::of_all()));
  EXPECT_FALSE(tuning->explain("other/secret", Scope::of_all()));
  EXPECT_EQ(all_rows(tuning->report(Scope::of_all())).size(), 2u);
  const auto rows = all_rows(tuning->report(Scope::of_user(kAlice)));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["name"], "weights");
  EXPECT_FALSE(rows[0].contains("candidates")) << "only explain has them";
}

TEST_F(TuningTest, CountsDecisionsAndSwitches) {
  const auto state = declare();
  ASSERT_TRUE(begin(*state));
  EXPECT_EQ(tuning->counter_values()[0], 1u);
  measure(*state);
  EXPECT_EQ(tuning->counter_values()[0], 2u);
  EXPECT_EQ(tuning->counter_values()[1], 1u);
  for (int i = 0; i < 3; ++i) tuning->on_op(*group, *state, op_of(*state));
  tuning->do_work();
  EXPECT_EQ(tuning->counter_values()[0], 3u) << "one decision for all of them";
  EXPECT_EQ(tuning->counter_values()[1], 1u);
  EXPECT_EQ(tuning->counter_values()[3], shadow->cpu_ns());
  EXPECT_EQ(tuning->counter_values()[4], shadow->disturbed());
  tuning->set_shadow(nullptr);
  EXPECT_EQ(tuning->counter_values()[4], 0u);
}

TEST_F(TuningTest, SaysOfManyTensorsOnlySoMuch) {
  std::vector<std::unique_ptr<TensorState>> states;
  for (int i = 0; i < 200; ++i) {
    states.push_back(declare("t" + std::to_string(i)));
    ASSERT_TRUE(begin(*states.back()));
  }
  const LogLines lines;
  for (const auto& state : states) measure(*state);
  clock.advance_ns(2 * kSecond);
  tuning->do_work();
  const auto seen = lines.seen();
  ASSERT_GT(seen.size(), 100u) << "every change is said while there are few";
  EXPECT_LT(seen.size(), 200u);
  EXPECT_THAT(seen.back(), testing::HasSubstr("lines about recipes of tensors were left out"));
}

// ---- Across a restart

class RememberingTuning : public TuningRig {
 protected:
  RememberingTuning() {
    settings.memory_file = folder.file("tuner.json");
    restart();
  }
  bool knows(MemberGroup& of, const std::string& name = "weights") {
    const auto state = declare(name);
    EXPECT_TRUE(tuning->begin(of, *state, "", nullptr));
    const bool known = candidate("ef(int:bits=8)")["measured"];
    tuning->end(*state);
    return known;
  }
  void learn() {
    const auto state = declare();
    ASSERT_TRUE(begin(*state));
    measure(*state);
    tuning->end(*state);
  }

  const Folder folder;
};

TEST_F(RememberingTuning, KnowsTheTensorsOfItsUserAgain) {
  EXPECT_FALSE(knows(*group));
  learn();
  tuning->save();
  restart();
  EXPECT_TRUE(knows(*group));
  EXPECT_FALSE(knows(*group_of(kBob, 10))) << "a name of another user's is another tensor";
}

TEST_F(RememberingTuning, WithoutSavingItForgets) {
  learn();
  restart();
  EXPECT_FALSE(knows(*group));
}

TEST_F(RememberingTuning, SavesByItself) {
  learn();
  clock.advance_ns(59 * kSecond);
  tuning->do_work();
  EXPECT_FALSE(std::filesystem::exists(settings.memory_file));
  clock.advance_ns(kSecond);
  tuning->do_work();
  restart();
  EXPECT_TRUE(knows(*group));
}

}  // namespace
}  // namespace tern::daemon::tuning_test
