#include "codec/target/target.h"

#include <gtest/gtest.h>

namespace tern::codec {
namespace target_test {

TEST(Target, ScalarIsAlwaysThereAndLast) {
  ASSERT_FALSE(target::supported().empty());
  EXPECT_EQ(target::supported().back(), "scalar");
}

TEST(Target, ForcingNamesTheTargetAndAutoReturnsToTheBest) {
  for (const std::string_view name : target::supported()) {
    EXPECT_TRUE(target::force(name));
    EXPECT_EQ(target::name(), name);
  }
  EXPECT_FALSE(target::force("abacus"));
  EXPECT_EQ(target::name(), "scalar");
  EXPECT_TRUE(target::force("auto"));
  EXPECT_EQ(target::name(), target::supported().front());
}

}  // namespace target_test
}  // namespace tern::codec
