#include "daemon/service/mapping_limit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tern::daemon {
namespace {

TEST(MappingLimit, IsWhatTheKernelSays) {
  const std::string path = testing::TempDir() + "/mapping_limit";
  std::ofstream(path) << "262144\n";
  EXPECT_EQ(mapping_limit(path).count, 262'144u);
  EXPECT_TRUE(mapping_limit(path).is_known);
  std::filesystem::remove(path);
}

TEST(MappingLimit, IsTheUsualOneWhereTheKernelSaysNothing) {
  EXPECT_EQ(mapping_limit("/nowhere").count, 65'530u);
  EXPECT_FALSE(mapping_limit("/nowhere").is_known);
}

}  // namespace
}  // namespace tern::daemon
