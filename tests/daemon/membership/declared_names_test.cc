#include "daemon/membership/declared_names.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

TEST(DeclaredNames, RememberWhatEachRankHasSaid) {
  DeclaredNames names;
  EXPECT_FALSE(names.has("w"));
  EXPECT_EQ(names.of(3, "w").times, 0u);
  names.declare(3, "w");
  EXPECT_TRUE(names.of(3, "w").holds);
  EXPECT_EQ(names.of(3, "w").times, 1u);
  EXPECT_EQ(names.of(0, "w").times, 0u);
  EXPECT_EQ(names.of(4, "w").times, 0u);
  names.release(3, "w");
  EXPECT_FALSE(names.of(3, "w").holds);
  EXPECT_EQ(names.of(3, "w").times, 1u) << "the id of its next tensor depends on it";
  names.declare(3, "w");
  EXPECT_EQ(names.of(3, "w").times, 2u);
}

TEST(DeclaredNames, CountANameOnceForAllRanks) {
  DeclaredNames names;
  names.declare(0, "w");
  names.declare(1, "w");
  names.declare(1, "v");
  EXPECT_EQ(names.size(), 2u);
  names.forget_one();
  EXPECT_EQ(names.size(), 1u);
  names.forget_one();
  EXPECT_TRUE(names.empty());
}

}  // namespace
}  // namespace tern::daemon
