#include "ctl/archive.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

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
  // By the system's tar, into the directory.
  void unpack(const std::vector<ArchivedFile>& files) {
    std::string members;
    for (const ArchivedFile& file : files) {
      const auto member = tar_member(file, 1'700'000'000);
      ASSERT_TRUE(member) << file.name << ": " << member.error().text;
      members += *member;
    }
    const auto packed = gzipped(members + archive_end());
    ASSERT_TRUE(packed) << packed.error().text;
    std::ofstream(directory_ / "a.tar.gz", std::ios::binary) << *packed;
    const auto tar =
        run_program("/usr/bin/tar", {"xzf", directory_ / "a.tar.gz", "-C", directory_.string()});
    ASSERT_EQ(tar.exit_code, 0) << tar.err;
    EXPECT_EQ(tar.err, "");
  }
  fs::path directory_;
};

TEST_F(ArchiveTest, IsUnpackedByTar) {
  const std::string odd(513, 'x');
  unpack({{"d/one", "hello\n"}, {"d/empty", ""}, {"d/odd", odd}});
  EXPECT_EQ(text_of(directory_ / "d/one"), "hello\n");
  EXPECT_EQ(text_of(directory_ / "d/empty"), "");
  EXPECT_EQ(text_of(directory_ / "d/odd"), odd);
}

TEST_F(ArchiveTest, HasRoomForALongNameBehindAFolder) {
  const std::string name(100, 'n');
  // Of 101 bytes, as long as any, and with several slashes that might divide it.
  const std::vector<std::string> names{name, "d/" + name.substr(1),
                                       std::string(155, 'd') + "/" + name,
                                       "a/b/c/" + std::string(90, 'e') + "/f/" + name.substr(9)};
  std::vector<ArchivedFile> files;
  files.reserve(names.size());
  for (const std::string& one : names) files.push_back({one, "of " + one});
  unpack(files);
  for (const std::string& one : names) EXPECT_EQ(text_of(directory_ / one), "of " + one);
}

TEST_F(ArchiveTest, RefusesANameThatHasNoRoom) {
  const std::string name(100, 'n');
  for (const std::string& one : {std::string(), name + "n", "d/" + name + "n", name + "/",
                                 std::string(156, 'd') + "/n", std::string(10'000, '/')}) {
    EXPECT_FALSE(tar_member({one, ""}, 0)) << one;
  }
}

}  // namespace
}  // namespace tern::ctl
