#include "ctl/archive.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "ctl/output_file.h"
#include "tests/ctl/run_program.h"

namespace tern::ctl {
namespace {

namespace fs = std::filesystem;

class ArchiveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/tern_archive_XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
  }
  void TearDown() override { fs::remove_all(directory_); }
  static std::string text_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  fs::path directory_;
};

TEST_F(ArchiveTest, IsUnpackedByTar) {
  const std::string odd(513, 'x');
  const auto packed =
      gzipped(tar_member({"d/one", "hello\n"}, 1'700'000'000) + tar_member({"d/empty", ""}, 0) +
              tar_member({"d/odd", odd}, 1'700'000'000) + archive_end());
  ASSERT_TRUE(packed) << packed.error().text;
  std::ofstream(directory_ / "a.tar.gz", std::ios::binary) << *packed;
  const auto tar =
      run_program("/usr/bin/tar", {"xzf", directory_ / "a.tar.gz", "-C", directory_.string()});
  ASSERT_EQ(tar.exit_code, 0) << tar.err;
  EXPECT_EQ(tar.err, "");
  EXPECT_EQ(text_of(directory_ / "d/one"), "hello\n");
  EXPECT_EQ(text_of(directory_ / "d/empty"), "");
  EXPECT_EQ(text_of(directory_ / "d/odd"), odd);
}

TEST_F(ArchiveTest, AnOutputFileIsThereWholeOrNotAtAll) {
  const fs::path path = directory_ / "out";
  {
    auto file = OutputFile::create(path);
    ASSERT_TRUE(file) << file.error().text;
    file->write("half");
  }
  EXPECT_TRUE(fs::is_empty(directory_));
  auto file = OutputFile::create(path);
  ASSERT_TRUE(file);
  file->write("whole");
  EXPECT_FALSE(fs::exists(path));
  ASSERT_TRUE(file->finish());
  EXPECT_EQ(text_of(path), "whole");
}

TEST_F(ArchiveTest, AFullDiskIsAnErrorOfTheEnd) {
  auto file = OutputFile::create("/dev/full");
  ASSERT_TRUE(file) << file.error().text;
  file->write(std::string(100'000, 'x'));
  const auto status = file->finish();
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().text.find("No space left"), std::string::npos) << status.error().text;
  EXPECT_FALSE(OutputFile::create("/nonexistent/out"));
}

}  // namespace
}  // namespace tern::ctl
