#include "daemon/access/scope.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

TEST(Scope, OfAllHasEveryUserAndWhatIsNobodys) {
  const Scope all = Scope::of_all();
  EXPECT_TRUE(all.has_all());
  EXPECT_TRUE(all.has(0));
  EXPECT_TRUE(all.has(1000));
  EXPECT_TRUE(all.has(std::vector<std::uint32_t>{}));
}

TEST(Scope, OfAUserHasWhatIsTheirsAloneOrWithOthers) {
  const Scope own = Scope::of_user(1000);
  EXPECT_FALSE(own.has_all());
  EXPECT_TRUE(own.has(1000));
  EXPECT_FALSE(own.has(1001));
  EXPECT_TRUE(own.has(std::vector<std::uint32_t>{7, 1000}));
  EXPECT_FALSE(own.has(std::vector<std::uint32_t>{7, 1001}));
  EXPECT_FALSE(own.has(std::vector<std::uint32_t>{}));
}

// Who may see all is said, and is no number of a user.
TEST(Scope, OfRootIsOfAUserLikeAnyOther) {
  EXPECT_FALSE(Scope::of_user(0).has_all());
  EXPECT_FALSE(Scope::of_user(0).has(1000));
}

}  // namespace
}  // namespace tern::daemon
