#include "net/control_frames.h"

#include <gtest/gtest.h>

namespace tern::net {
namespace control_frames_test {
namespace {

TEST(ControlFrames, GivesAPlaceAgainOnceItsBytesHaveLeft) {
  ControlFrames frames;
  ControlFrames::Place* const first = frames.next(0);
  ASSERT_NE(first, nullptr);
  first->end_offset = 100;
  for (std::size_t i = 1; i < ControlFrames::kPlaces; ++i) {
    ControlFrames::Place* const place = frames.next(0);
    ASSERT_NE(place, nullptr);
    EXPECT_NE(place, first);
    place->end_offset = 100 + i;
  }
  EXPECT_EQ(frames.next(99), nullptr) << "all are still under way";
  EXPECT_EQ(frames.next(100), first);
}

TEST(ControlFrames, AreAllFreeWhenTheConnectionIsGone) {
  ControlFrames frames;
  for (std::size_t i = 0; i < ControlFrames::kPlaces; ++i) frames.next(0)->end_offset = 100;
  EXPECT_EQ(frames.next(0), nullptr);
  frames.reset();
  EXPECT_NE(frames.next(0), nullptr);
}

}  // namespace
}  // namespace control_frames_test
}  // namespace tern::net
