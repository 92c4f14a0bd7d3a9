#include "rdma/silence.h"

#include <gtest/gtest.h>

namespace tern::rdma {
namespace silence_test {
namespace {

class SilenceTest : public ::testing::Test {
 protected:
  void look(bool is_idle, std::uint64_t progress, std::uint64_t now) {
    silence.look(is_idle, progress, [now] { return now; });
  }
  Silence silence;
};

TEST_F(SilenceTest, BeginsWhereSomethingIsUnderWayAndNothingMoves) {
  look(false, 5, 100);
  EXPECT_FALSE(silence.lasts(1000, 0)) << "something has come since the start";
  look(false, 5, 200);
  look(false, 5, 300);
  EXPECT_FALSE(silence.lasts(1199, 1000));
  EXPECT_TRUE(silence.lasts(1200, 1000));
}

TEST_F(SilenceTest, IsBrokenByAnythingThatMoves) {
  look(false, 5, 100);
  look(false, 5, 200);
  look(false, 6, 300);
  EXPECT_FALSE(silence.lasts(10'000, 1000));
}

TEST_F(SilenceTest, IsNoneWhereNothingIsUnderWay) {
  look(false, 5, 100);
  look(false, 5, 200);
  look(true, 5, 300);
  EXPECT_FALSE(silence.lasts(10'000, 1000));
}

}  // namespace
}  // namespace silence_test
}  // namespace tern::rdma
