#include "daemon/service/memory_limit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tern::daemon {
namespace {

class MemoryLimit : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/memory_limit";
    std::filesystem::create_directories(root_ + "/groups/system.slice/ternd.service");
    files_ = {root_ + "/own", root_ + "/groups"};
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void group(const std::string& line) { std::ofstream(files_.own_group) << line << '\n'; }
  void limit(const std::string& path, const std::string& text) {
    std::ofstream(files_.groups + path + "/memory.max") << text << '\n';
  }

  std::string root_;
  MemoryFiles files_;
};

TEST_F(MemoryLimit, IsTheMachinesWithoutGroups) {
  const std::uint64_t machine = memory_limit_bytes({"/nowhere", "/nowhere"});
  EXPECT_GT(machine, std::uint64_t{64} << 20);
  group("12:memory:/old");
  EXPECT_EQ(memory_limit_bytes(files_), machine);
  group("0::/system.slice/ternd.service");
  limit("/system.slice/ternd.service", "max");
  EXPECT_EQ(memory_limit_bytes(files_), machine);
}

TEST_F(MemoryLimit, IsTheLeastOfTheGroupAndThoseAbove) {
  group("0::/system.slice/ternd.service");
  limit("/system.slice/ternd.service", "1000000");
  EXPECT_EQ(memory_limit_bytes(files_), 1'000'000u);
  limit("/system.slice", "500000");
  EXPECT_EQ(memory_limit_bytes(files_), 500'000u);
  limit("/", "400000");
  EXPECT_EQ(memory_limit_bytes(files_), 400'000u) << "a container's own group is its root";
}

TEST_F(MemoryLimit, OfNonsenseIsTheMachines) {
  const std::uint64_t machine = memory_limit_bytes({"/nowhere", "/nowhere"});
  group("0::no-slash");
  limit("/", "12x");
  EXPECT_EQ(memory_limit_bytes(files_), machine);
}

}  // namespace
}  // namespace tern::daemon
