#include "daemon/service/shared_places.h"

#include <gtest/gtest.h>

#include <vector>

namespace tern::daemon {
namespace {

std::size_t take_all(SharedPlaces& places, const std::string& holder,
                     std::vector<SharedPlaces::Held>& held) {
  std::size_t taken = 0;
  while (auto place = places.take(holder)) {
    held.push_back(std::move(*place));
    ++taken;
  }
  return taken;
}

TEST(SharedPlaces, WhoTakesAllHeCanLeavesAPartForWhoComesNext) {
  SharedPlaces places({240, 240});
  std::vector<SharedPlaces::Held> held;
  EXPECT_EQ(take_all(places, "a", held), 120u);
  EXPECT_EQ(take_all(places, "b", held), 60u);
  EXPECT_EQ(take_all(places, "c", held), 30u);
  EXPECT_EQ(places.all(), 210u);
  EXPECT_EQ(take_all(places, "a", held), 0u);
}

TEST(SharedPlaces, NobodyHasMoreThanHisBound) {
  SharedPlaces places({100, 3});
  std::vector<SharedPlaces::Held> held;
  EXPECT_EQ(take_all(places, "a", held), 3u);
  EXPECT_EQ(places.of("a"), 3u);
  EXPECT_TRUE(places.take("b"));
}

TEST(SharedPlaces, APlaceIsFreeWhenItsHolderLetsGo) {
  SharedPlaces places({4, 1});
  auto first = places.take("a");
  ASSERT_TRUE(first);
  EXPECT_FALSE(places.take("a"));
  auto moved = std::move(first);
  // NOLINTNEXTLINE(bugprone-use-after-move): what was moved from holds no place any more
  first.reset();
  EXPECT_FALSE(places.take("a"));
  moved.reset();
  EXPECT_EQ(places.all(), 0u);
  EXPECT_TRUE(places.take("a"));
}

TEST(SharedPlaces, AnotherPlaceInItsSteadFreesTheFirst) {
  SharedPlaces places({8, 2});
  auto first = places.take("a"), second = places.take("b");
  *first = std::move(*second);
  EXPECT_EQ(places.of("a"), 0u);
  EXPECT_EQ(places.of("b"), 1u);
}

TEST(SharedPlaces, TheLastPlacesAreForThoseWithFew) {
  EXPECT_TRUE(leaves_room(0, 9, 10));
  EXPECT_FALSE(leaves_room(1, 9, 10));
  EXPECT_FALSE(leaves_room(0, 10, 10));
  EXPECT_FALSE(leaves_room(0, 11, 10)) << "the bound was lowered";
}

}  // namespace
}  // namespace tern::daemon
