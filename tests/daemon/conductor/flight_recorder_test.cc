#include "daemon/conductor/flight_recorder.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "daemon/service/late_file.h"
#include "part_rig.h"
#include "tests/daemon/service/log_lines.h"
#include "tests/daemon/service/sleeping_disk.h"

namespace tern::daemon::conductor_test {
namespace {

class FlightRecorderTest : public PartRig {
 protected:
  void SetUp() override {
    settings_.flight_directory = ::testing::TempDir() + "flights-" + std::to_string(::getpid());
    std::filesystem::create_directory(settings_.flight_directory);
    greet(connect(1));
    group_ = &add_group({1});
  }
  void TearDown() override { std::filesystem::remove_all(settings_.flight_directory); }

  static event::OpEnded ended(std::uint64_t sequence, Errc code) {
    event::OpEnded event;
    event.record.sequence = sequence;
    event.code = code;
    event.text = Sentence(code == Errc::ok ? "" : "it failed");
    return event;
  }
  std::string path() const {
    return settings_.flight_directory + "/flight-" + group_->uid.substr(0, 8) + "-1-1000.json";
  }
  bool is_written() const { return std::filesystem::exists(path()); }
  nlohmann::json written() const {
    std::ifstream file(path());
    return nlohmann::json::parse(file);
  }

  MemberGroup* group_ = nullptr;
};

TEST_F(FlightRecorderTest, WritesNothingWhileAllGoesWell) {
  flights_.record(*group_, ended(1, Errc::ok));
  flights_.write_if_due(*group_);
  flights_.close(*group_);
  EXPECT_FALSE(flights_.write_closed());
  EXPECT_FALSE(is_written());
}

TEST_F(FlightRecorderTest, WritesTheLastOpsWhenOneHasFailed) {
  for (std::uint64_t i = 0; i < FlightRecorder::kFlights; ++i) {
    flights_.record(*group_, ended(i, Errc::ok));
  }
  flights_.record(*group_, ended(999, Errc::timeout));
  flights_.write_if_due(*group_);
  ASSERT_TRUE(is_written());
  const auto ops = written()["ops"];
  ASSERT_EQ(ops.size(), FlightRecorder::kFlights);
  EXPECT_EQ(ops.front()["op"], 1);
  EXPECT_EQ(ops.back()["op"], 999);
  EXPECT_EQ(ops.back()["status"], errc_name(Errc::timeout));
  EXPECT_EQ(ops.back()["text"], "it failed");
}

TEST_F(FlightRecorderTest, OfASendItNamesTheOtherRankAndTheTag) {
  event::OpEnded event = ended(7, Errc::mismatch);
  event.record.kind = static_cast<std::uint16_t>(shm::OpKind::send);
  event.record.peer = 3;
  flights_.record(*group_, event);
  event.record.kind = static_cast<std::uint16_t>(shm::OpKind::recv);
  event.record.peer = 0xffffffff;  // any, and nobody came
  flights_.record(*group_, event);
  EXPECT_TRUE(flights_.write_if_due(*group_));
  const auto ops = written()["ops"];
  EXPECT_EQ(ops[0]["kind"], "send");
  EXPECT_EQ(ops[0]["peer"], 3);
  EXPECT_EQ(ops[0]["tag"], 7);
  EXPECT_TRUE(ops[1]["peer"].is_null());
  EXPECT_FALSE(ops[0].contains("root"));
}

TEST_F(FlightRecorderTest, AStormOfFailuresIsOneFileASecond) {
  flights_.record(*group_, ended(1, Errc::timeout));
  EXPECT_TRUE(flights_.write_if_due(*group_));
  std::filesystem::remove(path());
  flights_.record(*group_, ended(2, Errc::timeout));
  EXPECT_FALSE(flights_.write_if_due(*group_));
  EXPECT_FALSE(is_written());
  clock_.advance_ns(kSecond);
  EXPECT_TRUE(flights_.write_if_due(*group_));
  EXPECT_TRUE(is_written());
}

TEST_F(FlightRecorderTest, AStormOfFailuresHasFewLinesAndACount) {
  group_->account = kAlice;
  const LogLines lines;
  for (std::uint64_t i = 0; i < 1'000; ++i) flights_.record(*group_, ended(i, Errc::timeout));
  EXPECT_EQ(lines.seen().size(), 128u);
  log_.tell_left_out();
  ASSERT_EQ(lines.seen().size(), 129u);
  EXPECT_EQ(lines.seen().back(),
            "872 more lines about operations that failed were left out: uid 1001");
}

TEST_F(FlightRecorderTest, AGroupThatFailedIsWrittenAfterItsRemovalAtTheLatest) {
  flights_.record(*group_, ended(1, Errc::ok));
  groups_.end(*group_, Errc::peer_lost, "a peer was lost", false);
  flights_.close(*group_);
  EXPECT_FALSE(is_written()) << "many groups may end in one turn";
  EXPECT_TRUE(flights_.write_closed());
  EXPECT_FALSE(flights_.write_closed());
  ASSERT_TRUE(is_written());
  EXPECT_EQ(written()["error"], "a peer was lost");
}

TEST_F(FlightRecorderTest, OfAUsersRecordsTheNewestStay) {
  const auto fail_group = [this](std::uint32_t user, std::uint32_t epoch) {
    group_->account = user;
    group_->epoch = epoch;
    flights_.record(*group_, ended(1, Errc::timeout));
    flights_.close(*group_);
    EXPECT_TRUE(flights_.write_closed());
  };
  fail_group(kBob, 1);
  for (std::uint32_t epoch = 1; epoch <= 300; ++epoch) fail_group(kAlice, epoch);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& one :
       std::filesystem::directory_iterator(settings_.flight_directory)) {
    ++files;
  }
  EXPECT_EQ(files, 1 + RecordFiles::kFilesPerUser);
  const auto name = [this](std::uint32_t user, std::uint32_t epoch) {
    return settings_.flight_directory + "/" + RecordFiles::text_of({group_->uid, epoch, user});
  };
  EXPECT_TRUE(std::filesystem::exists(name(kBob, 1)));
  EXPECT_TRUE(std::filesystem::exists(name(kAlice, 300)));
  EXPECT_FALSE(std::filesystem::exists(name(kAlice, 300 - RecordFiles::kFilesPerUser)));
}

// Opening a pipe to write takes until somebody reads.
TEST_F(FlightRecorderTest, WaitsForNoDisk) {
  ASSERT_EQ(::mkfifo((path() + ".new").c_str(), 0600), 0);
  Disposal writing;
  {
    FlightRecorder flights{settings_.flight_directory, {clock_, log_, writing}};
    flights.record(*group_, ended(1, Errc::timeout));
    EXPECT_TRUE(flights.write_if_due(*group_));
    EXPECT_EQ(writing.count(), 1u);
    EXPECT_GT(writing.bytes_of(group_->account), 100u);
  }
  EXPECT_FALSE(is_written());
  std::string text;
  std::getline(std::ifstream(path() + ".new"), text);
  EXPECT_EQ(text, "{");
  while (writing.count() != 0) std::this_thread::yield();
  EXPECT_TRUE(is_written());
}

TEST_F(FlightRecorderTest, WhatWaitsForADiskThatSleepsHasABound) {
  SleepingDisk disk(group_->account);
  FlightRecorder flights{settings_.flight_directory, {clock_, log_, disk.writing()}};
  const auto fail_group = [&](std::uint32_t epoch) {
    group_->epoch = epoch;
    for (std::uint64_t i = 0; i < FlightRecorder::kFlights; ++i) {
      flights.record(*group_, ended(i, Errc::ok));
    }
    flights.group_failed(*group_);
    flights.close(*group_);
    EXPECT_TRUE(flights.write_closed());
  };
  const LogLines lines;
  std::uint32_t epoch = 1;
  for (; lines.seen().empty() && epoch < 2'000; ++epoch) fail_group(epoch);
  ASSERT_FALSE(lines.seen().empty());
  EXPECT_THAT(lines.seen().front(), ::testing::HasSubstr("cannot write the flight record"));
  EXPECT_GT(epoch, 20u);
  EXPECT_THAT(lines.seen().front(), ::testing::HasSubstr(LateFile::kDiskIsSlow));
  const std::size_t told = lines.seen().size();
  group_->account = kAlice;
  fail_group(1);
  EXPECT_EQ(lines.seen().size(), told) << "another user's are written";
  disk.wake();
}

TEST_F(FlightRecorderTest, SaysWhatItCouldNotWrite) {
  ASSERT_TRUE(std::filesystem::create_directory(path() + ".new"));
  const LogLines lines;
  flights_.record(*group_, ended(1, Errc::ok));
  groups_.end(*group_, Errc::peer_lost, "a peer was lost", false);
  EXPECT_TRUE(flights_.write_if_due(*group_));
  EXPECT_FALSE(is_written());
  const std::size_t before = lines.seen().size();
  flights_.tell_problems();
  flights_.tell_problems();
  ASSERT_EQ(lines.seen().size(), before + 1);
  EXPECT_THAT(lines.seen().back(), ::testing::HasSubstr("cannot write the flight record"));
  EXPECT_THAT(lines.seen().back(), ::testing::HasSubstr("Is a directory"));
}

TEST_F(FlightRecorderTest, WithoutADirectoryNothingIsWritten) {
  const std::string before = path();
  settings_.flight_directory.clear();
  flights_.record(*group_, ended(1, Errc::timeout));
  flights_.write_if_due(*group_);
  EXPECT_FALSE(std::filesystem::exists(before));
  settings_.flight_directory = std::filesystem::path(before).parent_path().string();
}

}  // namespace
}  // namespace tern::daemon::conductor_test
