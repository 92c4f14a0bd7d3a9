#include "daemon/lane/stock.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

constexpr Stock kStock{.shared = 64, .reserve = 16};

TEST(Stock, OneUserHasWhatIsSharedAndNoMore) {
  EXPECT_EQ(kStock.open_to(0, 80, 1), 64u);
  EXPECT_EQ(kStock.open_to(40, 40, 1), 24u);
  EXPECT_EQ(kStock.open_to(64, 16, 1), 0u);
}

TEST(Stock, EachWhoComesWhileOthersHoldTheirsLeavesSomething) {
  std::uint32_t free = kStock.all();
  for (int user = 0; user < 3; ++user) {
    const std::uint32_t taken = kStock.open_to(0, free, 1);
    EXPECT_GE(taken, 1u);
    EXPECT_LT(taken, free);
    free -= taken;
  }
}

TEST(Stock, WhoHasLessThanHeNeedsGetsIt) {
  EXPECT_EQ(kStock.open_to(0, 16, 15), 15u);
  EXPECT_EQ(kStock.open_to(10, 6, 15), 5u);
  EXPECT_EQ(kStock.open_to(15, 1, 15), 0u);
  EXPECT_EQ(kStock.open_to(0, 8, 15), 8u) << "no more than there is";
}

}  // namespace
}  // namespace tern::daemon
