#include "daemon/service/late_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "sleeping_disk.h"

namespace tern::daemon {
namespace late_file_test {
namespace {

class LateFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder = testing::TempDir() + "late-file-" + std::to_string(::getpid());
    std::filesystem::create_directory(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string path(const std::string& name) const { return folder + "/" + name; }
  std::string text_of(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(path(name)).rdbuf();
    return text.str();
  }
  LateFile::Names names() const {
    return [this](int attempt) { return attempt > 3 ? "" : path(std::to_string(attempt)); };
  }
  static void wait_for(const Disposal& writing) {
    while (writing.count() != 0) std::this_thread::yield();
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(path(name)); }

  std::string folder;
  Disposal at_once{Disposal::By::caller};
};

TEST_F(LateFileTest, AFreshOneHasWhatWasAppended) {
  LateFile file = LateFile::fresh(at_once, names());
  EXPECT_FALSE(file.has_begun());
  file.append("one ");
  EXPECT_TRUE(file.has_begun());
  EXPECT_EQ(text_of("1"), "one ") << "it lies there before it is finished";
  file.append("two");
  EXPECT_FALSE(file.is_done());
  file.finish();
  EXPECT_TRUE(file.is_done());
  EXPECT_EQ(file.problem(), "");
  EXPECT_EQ(text_of("1"), "one two");
}

TEST_F(LateFileTest, AFreshOneOverwritesNothing) {
  std::ofstream(path("1")) << "first";
  std::ofstream(path("2")) << "second";
  LateFile third = LateFile::fresh(at_once, names());
  third.append("third");
  third.finish();
  EXPECT_EQ(text_of("1") + text_of("2") + text_of("3"), "firstsecondthird");
  LateFile fourth = LateFile::fresh(at_once, names());
  fourth.append("fourth");
  EXPECT_EQ(fourth.problem(), "File exists");
  EXPECT_FALSE(fourth.has_begun());
  fourth.finish();
  EXPECT_TRUE(fourth.is_done());
}

TEST_F(LateFileTest, AReplacementTakesItsPlaceAtTheEnd) {
  std::ofstream(path("file")) << "before";
  LateFile file = LateFile::replacement(at_once, path("file"));
  file.append("after");
  EXPECT_EQ(text_of("file"), "before");
  file.finish();
  EXPECT_EQ(file.problem(), "");
  EXPECT_EQ(text_of("file"), "after");
  EXPECT_FALSE(exists("file.new"));
}

TEST_F(LateFileTest, AReplacementThatFailsLeavesWhatWasThere) {
  std::ofstream(path("file")) << "before";
  ASSERT_EQ(::symlink("/dev/full", path("file.new").c_str()), 0);
  LateFile file = LateFile::replacement(at_once, path("file"));
  file.append("after");
  EXPECT_EQ(file.problem(), "No space left on device");
  file.append("more");
  file.finish();
  EXPECT_TRUE(file.is_done());
  EXPECT_EQ(file.problem(), "No space left on device");
  EXPECT_EQ(text_of("file"), "before");
  EXPECT_FALSE(exists("file.new"));
}

TEST_F(LateFileTest, AnEmptyOneIsMadeToo) {
  LateFile file = LateFile::replacement(at_once, path("file"));
  file.finish();
  EXPECT_TRUE(exists("file"));
  EXPECT_EQ(text_of("file"), "");
}

// ---- Its owner waits for nothing

// Opening a pipe to write takes until somebody reads.
TEST_F(LateFileTest, ItsOwnerDoesNotWaitForADiskThatSleeps) {
  ASSERT_EQ(::mkfifo(path("file.new").c_str(), 0600), 0);
  {
    Disposal writing;
    LateFile file = LateFile::replacement(writing, path("file"));
    file.append("what ");
    file.append("comes late");
    file.finish();
    EXPECT_FALSE(file.is_done());
    EXPECT_FALSE(file.has_begun());
    std::string text(15, ' ');
    std::ifstream(path("file.new")).read(text.data(), 15);
    EXPECT_EQ(text, "what comes late");
    wait_for(writing);
    EXPECT_TRUE(file.is_done());
  }
  EXPECT_TRUE(exists("file"));
}

TEST_F(LateFileTest, WhatWasAppendedIsWrittenInItsOrderWhenTheFileIsGone) {
  {
    SleepingDisk disk;
    {
      LateFile file = LateFile::fresh(disk.writing(), names());
      for (int i = 0; i < 1'000; ++i) file.append(std::to_string(i) + "\n");
      file.finish();
      EXPECT_EQ(disk.writing().count(), 2u) << "one job of a file waits at a time";
    }
    EXPECT_FALSE(exists("1"));
    disk.wake();
  }
  std::string expected;
  for (int i = 0; i < 1'000; ++i) expected += std::to_string(i) + "\n";
  EXPECT_EQ(text_of("1"), expected);
}

TEST_F(LateFileTest, WhatWaitsForADiskThatSleepsHasABound) {
  {
    SleepingDisk disk;
    LateFile file = LateFile::fresh(disk.writing(), names());
    const std::string text(LateFile::kMostWaiting / 4, 'x');
    for (int i = 0; i < 4; ++i) file.append(text);
    EXPECT_EQ(file.problem(), "");
    EXPECT_FALSE(file.settled()());
    file.append("more than there is room for");
    EXPECT_EQ(file.problem(), LateFile::kDiskIsSlow);
    file.append("x");
    file.finish();
    disk.wake();
    EXPECT_EQ(file.problem(), LateFile::kDiskIsSlow);
    EXPECT_TRUE(file.settled()());
  }
  EXPECT_EQ(std::filesystem::file_size(path("1")), LateFile::kMostWaiting)
      << "what had room is written";
}

TEST_F(LateFileTest, FilesThatShareARoomHaveTheBoundTogether) {
  SleepingDisk disk;
  const auto room = std::make_shared<LateFile::Room>();
  const auto shares = [&](const std::string& name) {
    return LateFile::fresh(
        disk.writing(), [=, this](int) { return path(name); }, room);
  };
  LateFile one = shares("one"), other = shares("other");
  LateFile alone = LateFile::fresh(disk.writing(), [this](int) { return path("alone"); });
  const std::string half(LateFile::kMostWaiting / 2, 'x');
  one.append(half);
  other.append(half);
  other.append("x");
  EXPECT_EQ(other.problem(), LateFile::kDiskIsSlow);
  alone.append(half);
  EXPECT_EQ(alone.problem(), "");
  disk.wake();
  one.append(half + half);
  wait_for(disk.writing());
  EXPECT_EQ(one.problem(), "") << "what lies on the disk has left its room";
}

TEST_F(LateFileTest, AReplacementOfWhichAPartHadNoRoomReplacesNothing) {
  std::ofstream(path("file")) << "before";
  SleepingDisk disk;
  LateFile file = LateFile::replacement(disk.writing(), path("file"));
  file.append(std::string(LateFile::kMostWaiting, 'x'));
  file.append("more");
  file.finish();
  disk.wake();
  EXPECT_TRUE(file.is_done());
  EXPECT_EQ(text_of("file"), "before");
  EXPECT_FALSE(exists("file.new"));
}

TEST_F(LateFileTest, IsSettledWhenWhatWasAppendedLiesThere) {
  SleepingDisk disk;
  std::function<bool()> settled;
  {
    LateFile file = LateFile::fresh(disk.writing(), names());
    settled = file.settled();
    EXPECT_TRUE(settled()) << "there is nothing yet";
    file.append("text");
    EXPECT_FALSE(settled());
    file.finish();
  }
  EXPECT_FALSE(settled());
  disk.wake();
  EXPECT_TRUE(settled());
  EXPECT_EQ(text_of("1"), "text");
}

}  // namespace
}  // namespace late_file_test
}  // namespace tern::daemon
