#include "codec/kernel_target.h"

#include <gtest/gtest.h>

namespace tern::codec {
namespace {

TEST(KernelTarget, ScalarIsAlwaysThereAndLast) {
  ASSERT_FALSE(supported_targets().empty());
  EXPECT_EQ(supported_targets().back(), "scalar");
}

TEST(KernelTarget, ForcingNamesTheTargetAndAutoReturnsToTheBest) {
  for (const std::string_view name : supported_targets()) {
    EXPECT_TRUE(force_target(name));
    EXPECT_EQ(kernel_target_name(), name);
  }
  EXPECT_FALSE(force_target("abacus"));
  EXPECT_EQ(kernel_target_name(), "scalar");
  EXPECT_TRUE(force_target("auto"));
  EXPECT_EQ(kernel_target_name(), supported_targets().front());
}

}  // namespace
}  // namespace tern::codec
