#include "daemon/conductor/record_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>

namespace tern::daemon {
namespace {

namespace fs = std::filesystem;

class RecordFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directory(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string name(std::uint32_t epoch, std::uint32_t user) {
    return RecordFiles::text_of({"0123abcd", epoch, user});
  }
  // A file that was written that long ago.
  void write(const std::string& name, int hours = 0, std::size_t bytes = 10) const {
    const fs::path path = fs::path(folder_) / name;
    std::ofstream(path) << std::string(bytes, 'x');
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  }
  void record(const std::string& name, std::size_t bytes = 10) {
    write(name, 0, bytes);
    files_.add(name, bytes);
  }
  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& one : fs::directory_iterator(folder_)) {
      names.insert(one.path().filename().string());
    }
    return names;
  }

  const std::string folder_ = ::testing::TempDir() + "records-" + std::to_string(::getpid());
  RecordFiles files_;
};

TEST_F(RecordFilesTest, NamesSayOfWhichGroupEpochAndUser) {
  EXPECT_EQ(name(7, 1000), "flight-0123abcd-7-1000.json");
  const auto read = RecordFiles::read("flight-0123abcd-7-1000.json");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->group, "0123abcd");
  EXPECT_EQ(read->epoch, 7u);
  EXPECT_EQ(read->user, 1000u);
  EXPECT_FALSE(RecordFiles::read("flight-0123abcd-7.json")->user);
  for (const char* other :
       {"flight-of-before.json", "flight-0123abcd-7-1000.json.new", "flight-0123abcd-7-1000-1.json",
        "flight-0123abcd-07-1000.json", "flight-0123abcd-7-.json", "flight-0123abcg-7-1000.json",
        "flight-0123abcd-7-4294967296.json", "tuner.json", "flight-.json"}) {
    EXPECT_FALSE(RecordFiles::read(other)) << other;
  }
}

TEST_F(RecordFilesTest, TheOldestOfOneUserGo) {
  files_.use(folder_);
  record(name(1, 2000));
  for (std::uint32_t epoch = 1; epoch <= RecordFiles::kFilesPerUser; ++epoch) {
    record(name(epoch, 1000));
  }
  EXPECT_EQ(names().size(), 1 + RecordFiles::kFilesPerUser);
  record(name(1, 1000));  // again: it is the newest now
  record(name(99, 1000));
  EXPECT_EQ(names().size(), 1 + RecordFiles::kFilesPerUser);
  EXPECT_TRUE(names().contains(name(1, 2000)));
  EXPECT_TRUE(names().contains(name(1, 1000)));
  EXPECT_FALSE(names().contains(name(2, 1000)));
}

TEST_F(RecordFilesTest, BytesAreLimitedToo) {
  files_.use(folder_);
  record(name(1, 1000), RecordFiles::kBytesPerUser / 2);
  record(name(2, 1000), RecordFiles::kBytesPerUser / 2);
  EXPECT_EQ(names().size(), 2u);
  record(name(2, 1000), RecordFiles::kBytesPerUser / 2);  // replaced, not added
  EXPECT_EQ(names().size(), 2u);
  record(name(3, 1000), 1);
  EXPECT_EQ(names(), (std::set<std::string>{name(2, 1000), name(3, 1000)}));
  record(name(4, 1000), RecordFiles::kBytesPerUser + 1);
  EXPECT_EQ(names(), (std::set<std::string>{name(4, 1000)}));
}

TEST_F(RecordFilesTest, WhatLiesThereAtTheStartCountsAndOtherFilesStay) {
  const int all = static_cast<int>(RecordFiles::kFilesPerUser) + 3;
  for (int i = 0; i < all; ++i) {
    write(name(static_cast<std::uint32_t>(i), 1000), all - i);
    write("flight-0123abcd-" + std::to_string(i) + ".json", all - i);  // of before
  }
  write("flight-0123abcd-7-1000.json.new");
  write("tuner.json", 1'000);
  write("flight-of-mine.json", 1'000);
  fs::create_directory(fs::path(folder_) / "flight-0123abcd-0-3000.json");
  files_.use(folder_);
  EXPECT_EQ(names().size(), 2 * RecordFiles::kFilesPerUser + 3);
  EXPECT_FALSE(names().contains(name(2, 1000)));
  EXPECT_TRUE(names().contains(name(3, 1000)));
  EXPECT_TRUE(names().contains("tuner.json"));
  EXPECT_TRUE(names().contains("flight-of-mine.json"));
  EXPECT_FALSE(names().contains("flight-0123abcd-7-1000.json.new"));
  record(name(99, 1000));
  EXPECT_FALSE(names().contains(name(3, 1000)));
}

}  // namespace
}  // namespace tern::daemon
