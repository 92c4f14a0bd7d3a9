// Logs of choices, which Tuning writes and reads.

#include "daemon/tuning/choice_logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/service/log_lines.h"
#include "tuning_rig.h"

namespace tern::daemon::tuning_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kName = "choices-0123abcd-3";  // of the group's first epoch so called

class LoggingTuning : public TuningRig {
 protected:
  LoggingTuning() {
    settings.choice_directory = folder.path();
    restart();
  }
  std::string log(const std::string& name = kName) const { return folder.file(name + "-0.log"); }
  // As a lane that has sent the tensor's use-th op by the newest choice.
  void use(const TensorState& state, std::uint32_t lane, std::uint64_t use) {
    event::ChoiceInUse in_use;
    in_use.use = use;
    in_use.choice.version = state.tuning->version();
    tuning->on_choice_used(*group, state, lane, in_use);
  }
  // A log of two choices, and of a block that went otherwise.
  void write() {
    const auto state = declare();
    ASSERT_TRUE(begin(*state));
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) use(*state, lane, 0);
    measure(*state);
    use(*state, 1, 7);
    event::ChunkChoice chosen;
    chosen.use = 7;
    chosen.leg = wire::Leg::broadcast;
    chosen.chunk = 3;
    chosen.candidate = tuner::kRaw;
    tuning->on_chunk_choice(*group, *state, 1, chosen);
    tuning->end(*state);
    tuning->group_ended(*group);
  }
  std::string refusal(const std::string& replay, const std::string& tensor = "weights") {
    const auto state = declare(tensor);
    const Status begun = begin(*state, "", replay);
    EXPECT_FALSE(begun);
    EXPECT_EQ(state->tuning, nullptr);
    if (!begun) {
      EXPECT_EQ(begun.error().code, Errc::bad_recipe);
    }
    return begun ? "" : begun.error().text;
  }

  const Folder folder;
};

TEST_F(LoggingTuning, SaysFromWhichOpOnWhatIsSentHow) {
  write();
  EXPECT_EQ(text_of(log()),
            "tern-choices 1\n"
            "op weights 0 0 0 raw raw\n"
            "op weights 0 1 0 raw raw\n"
            "op weights 7 1 0 ef(int:bits=8) ef(int:bits=8)\n"
            "chunk weights 7 1 2 3 raw\n");
}

TEST_F(LoggingTuning, OverwritesNoLog) {
  write();
  const std::string first = text_of(log());
  write();
  EXPECT_EQ(text_of(log()), first);
  EXPECT_THAT(text_of(log(std::string(kName) + "-2")), HasSubstr("op weights 7 1"));
}

TEST_F(LoggingTuning, WhatCannotBeLoggedGoesOn) {
  settings.choice_directory = folder.file("missing");
  restart();
  const auto state = declare();
  ASSERT_TRUE(begin(*state));
  EXPECT_FALSE(state->tuning->logged);
  use(*state, 0, 0);
}

TEST_F(LoggingTuning, SaysOnlySoOftenThatAGroupCannotBeLogged) {
  settings.choice_directory = folder.file("missing");
  restart();
  const LogLines lines;
  for (std::uint64_t number = 100; number < 300; ++number) {
    const auto many = group_of(kAlice, number);
    const auto state = declare();
    ASSERT_TRUE(tuning->begin(*many, *state, "", ""));
    tuning->end(*state);
  }
  EXPECT_EQ(lines.seen().size(), 128u);
  EXPECT_THAT(lines.seen().front(), HasSubstr("cannot write the log of choices"));
}

TEST_F(LoggingTuning, IsReplayedOnEachLane) {
  write();
  restart();
  const auto state = declare();
  const Status begun = begin(*state, "", kName);
  ASSERT_TRUE(begun) << begun.error().text;
  ASSERT_EQ(state->tuning->replay.size(), kLanes);
  const ReplayedLane& lane = state->tuning->replay[1];
  ASSERT_NE(lane.op(6), nullptr);
  EXPECT_EQ(lane.op(6)->by_node, (std::vector<tuner::CandidateIndex>(2, tuner::kRaw)));
  const auto ints = lane.op(7)->by_node.at(0);
  EXPECT_EQ(state->tuning->recipe(ints), *codec::parse_recipe("ef(int:bits=8)"));
  EXPECT_EQ(lane.op(7)->by_node.at(1), ints);
  ASSERT_NE(lane.chunk(7, 3 * 2 + 1), nullptr);
  EXPECT_EQ(lane.chunk(7, 3 * 2 + 1)->candidate, tuner::kRaw);
  EXPECT_EQ(state->tuning->replay[0].chunks.size(), 0u);
  EXPECT_EQ(state->tuning->replay[0].op(1000)->use, 0u);
  EXPECT_FALSE(state->tuning->sample_wanted) << "nobody chooses";
  EXPECT_EQ(explained()["replayed"], true);
}

TEST_F(LoggingTuning, ALogThatIsNoneIsRefused) {
  EXPECT_THAT(refusal("../" + std::string(kName)), HasSubstr("give the name of a log"));
  EXPECT_THAT(refusal(kName), HasSubstr("choices-0123abcd-3-0.log cannot be read"));
  std::ofstream(log()) << "tern-choices 99\n";
  EXPECT_THAT(refusal(kName), HasSubstr(kName));
  settings.choice_directory.clear();
  restart();
  EXPECT_THAT(refusal(kName), HasSubstr("has no choice_directory"));
}

TEST_F(LoggingTuning, ALogOfAnotherGroupOrTensorIsRefused) {
  write();
  EXPECT_THAT(refusal(kName, "biases"), HasSubstr("it says nothing of biases"));
  const auto expect_refusal = [this](const std::string& line, const char* text) {
    std::ofstream(log()) << "tern-choices 1\n" << line << "\n";
    EXPECT_THAT(refusal(kName), HasSubstr(text));
  };
  expect_refusal("op weights 0 0 0 raw raw raw", "of a group with other lanes or nodes");
  expect_refusal("op weights 0 2 0 raw raw", "of a group with other lanes or nodes");
  expect_refusal("op weights 0 0 0 raw ef(fp8)", "ef(fp8) is none of the candidates");
  expect_refusal("op weights 0 0 0 raw raw\nchunk weights 0 5 1 0 raw",
                 "lane or recipe is unknown");
  expect_refusal("cut 2\nop weights 0 0 0 raw raw", "were cut by version 2");
}

TEST_F(LoggingTuning, ARecipeThatTheTensorCannotHaveIsRefused) {
  write();
  const auto state = declare();
  state->declared.recipe.memory = codec::Memory::none;  // it may lose nothing
  const Status begun = begin(*state, "", kName);
  ASSERT_FALSE(begun);
  EXPECT_THAT(begun.error().text, HasSubstr("this tensor cannot have ef(int:bits=8)"));
}

}  // namespace
}  // namespace tern::daemon::tuning_test
