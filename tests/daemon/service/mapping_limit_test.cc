#include "daemon/service/mapping_limit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tern::daemon {
namespace {

TEST(MappingLimit, IsWhatTheKernelSays) {
  const std::string path = testing::TempDir() + "/mapping_limit";
  std::ofstream(path) << "262144\n";
  EXPECT_EQ(mapping_limit(path), 262'144u);
  std::filesystem::remove(path);
}

TEST(MappingLimit, IsTheUsualOneWhereTheKernelSaysNothing) {
  EXPECT_EQ(mapping_limit("/nowhere"), 65'530u);
}

}  // namespace
}  // namespace tern::daemon
