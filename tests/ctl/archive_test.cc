#include "ctl/archive.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

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

}  // namespace
}  // namespace tern::ctl
