// Logs of choices, which Tuning writes and reads.

#include "daemon/tuning/choice_logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/service/log_lines.h"
#include "tests/daemon/service/sleeping_disk.h"
#include "tuning_rig.h"

namespace tern::daemon::tuning_test {
namespace {

using ::testing::ElementsAre;
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
    ASSERT_TRUE(tuning->begin(*many, *state, "", nullptr));
    tuning->end(*state);
  }
  EXPECT_EQ(lines.seen().size(), 128u);
  EXPECT_THAT(lines.seen().front(), HasSubstr("cannot write the log of choices"));
}

// The disk is everybody's.
class BoundedLogs : public testing::Test {
 protected:
  tuner::LoggedOp op() const { return {"w", 0, 0, 0, "raw", {"raw"}}; }
  std::size_t files() const {
    const std::filesystem::directory_iterator all(folder.path());
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }

  const Folder folder;
  ManualClock clock;
  UserLog log{clock};
  Disposal writing{Disposal::By::caller};
  const LogLines lines;
  std::unique_ptr<MemberGroup> group = group_of(kAlice, 9);
};

// What was chosen later nobody knows.
TEST_F(BoundedLogs, ALogThatIsLongEndsAndCannotBeReplayed) {
  const std::uint64_t head = tuner::choice_log_head().size(), record = tuner::format(op()).size();
  ChoiceLogs logs(folder.path(), {log, writing}, {.log_bytes = head + 3 * record});
  ASSERT_TRUE(logs.open(*group));
  for (int i = 0; i < 5; ++i) logs.write(*group, op());
  EXPECT_FALSE(logs.open(*group));
  logs.end(*group);
  const std::string path = folder.file(std::string(kName) + "-0.log");
  EXPECT_EQ(text_of(path).size(), head + 3 * record + tuner::choice_log_incomplete().size());
  ASSERT_EQ(lines.seen().size(), 1u);
  EXPECT_THAT(lines.seen().front(),
              HasSubstr("bytes at most, and cannot be replayed; it ends here"));
  ReplayTerms terms;
  terms.path = path;
  terms.tensor = "w";
  terms.nodes = 2;
  ReplayReading reading(terms, {"raw"});
  reading.read();
  const auto lanes = reading.take();
  ASSERT_FALSE(lanes);
  EXPECT_THAT(lanes.error().text, HasSubstr("it ended before its run did"));
}

TEST_F(BoundedLogs, AreWrittenByAThreadThatMayWait) {
  {
    SleepingDisk disk;
    ChoiceLogs logs(folder.path(), log, disk.writing());
    ASSERT_TRUE(logs.open(*group));
    for (int i = 0; i < 5; ++i) logs.write(*group, op());
    EXPECT_EQ(files(), 0u);
    const auto settled = logs.settled(kName);
    EXPECT_FALSE(settled()) << "who replays it waits";
    EXPECT_TRUE(logs.settled("choices-0123abcd-33")()) << "another epoch's";
    logs.end(*group);
    EXPECT_FALSE(logs.settled(kName)());
    EXPECT_FALSE(logs.settled(std::string(kName) + "-2")()) << "it may have got this name";
    disk.wake();
    EXPECT_TRUE(settled());
  }
  std::string expected = tuner::choice_log_head();
  for (int i = 0; i < 5; ++i) expected += tuner::format(op());
  EXPECT_EQ(text_of(folder.file(std::string(kName) + "-0.log")), expected);
}

// No record comes after that.
TEST_F(BoundedLogs, OneThatFailsAfterItsEndIsTold) {
  SleepingDisk disk;
  ChoiceLogs logs(folder.file("missing"), log, disk.writing());
  logs.write(*group, op());
  logs.end(*group);
  EXPECT_THAT(lines.seen(), testing::IsEmpty());
  disk.wake();
  logs.tell_problems();
  logs.tell_problems();
  ASSERT_EQ(lines.seen().size(), 1u);
  EXPECT_THAT(lines.seen().front(), HasSubstr("No such file or directory; it ends here"));
}

TEST_F(BoundedLogs, OfAllLogsOfAUserABoundedPartWaitsForADiskThatSleeps) {
  SleepingDisk disk;
  const std::uint64_t record = tuner::format(op()).size();
  ChoiceLogs logs(folder.path(), {log, disk.writing()}, {.user_waiting_bytes = 100 * record});
  std::vector<std::unique_ptr<MemberGroup>> groups;
  for (std::uint64_t number = 100; number < 106; ++number) {
    groups.push_back(group_of(kAlice, number));
    for (int i = 0; i < 25; ++i) logs.write(*groups.back(), op());
  }
  EXPECT_TRUE(logs.open(*groups.front()));
  EXPECT_FALSE(logs.open(*groups.back()));
  EXPECT_TRUE(logs.open(*group_of(kBob, 200)));
  disk.wake();
}

TEST_F(BoundedLogs, AUserHasSoManyLogs) {
  ChoiceLogs logs(folder.path(), {log, writing}, {.user_logs = 3});
  for (std::uint64_t number = 100; number < 110; ++number) {
    const auto many = group_of(kAlice, number);
    EXPECT_EQ(logs.open(*many), number < 103) << number;
    logs.end(*many);
  }
  EXPECT_EQ(files(), 3u);
  EXPECT_TRUE(logs.open(*group_of(kBob, 200)));
  EXPECT_THAT(lines.seen().front(), HasSubstr("until the daemon is restarted, 3 logs or"));
}

TEST_F(BoundedLogs, AUserHasSoManyBytesInAllLogs) {
  const std::uint64_t record = tuner::format(op()).size();
  ChoiceLogs logs(folder.path(), {log, writing}, {.user_bytes = 5 * record});
  const auto other = group_of(kAlice, 100);
  for (int i = 0; i < 3; ++i) logs.write(*group, op());
  for (int i = 0; i < 3; ++i) logs.write(*other, op());
  EXPECT_TRUE(logs.open(*group));
  EXPECT_FALSE(logs.open(*other));
  const auto of_bob = group_of(kBob, 200);
  logs.write(*of_bob, op());
  EXPECT_TRUE(logs.open(*of_bob));
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
  EXPECT_THAT(lane.by_node(*lane.op(6)), ElementsAre(tuner::kRaw, tuner::kRaw));
  const auto ints = lane.by_node(*lane.op(7))[0];
  EXPECT_EQ(state->tuning->recipe(ints), *codec::parse_recipe("ef(int:bits=8)"));
  EXPECT_EQ(lane.by_node(*lane.op(7))[1], ints);
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
