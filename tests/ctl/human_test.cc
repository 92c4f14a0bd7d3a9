#include "ctl/human.h"

#include <gtest/gtest.h>

#include <limits>

namespace tern::ctl {
namespace {

TEST(Human, CountsHaveThousands) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(1'000), "1,000");
  EXPECT_EQ(human_count(18'446'744'073'709'551'615ULL), "18,446,744,073,709,551,615");
}

TEST(Human, BytesTakeTheUnitThatFits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1'023), "1023 B");
  EXPECT_EQ(human_bytes(1'024), "1 KiB");
  EXPECT_EQ(human_bytes(1.5 * 1024 * 1024), "1.5 MiB");
  EXPECT_EQ(human_bytes(1024.0 * 1024 - 1), "1 MiB");
  EXPECT_EQ(human_bytes(10.04 * 1024), "10 KiB");
}

TEST(Human, TimesTakeTheUnitThatFits) {
  EXPECT_EQ(human_seconds(0), "0 s");
  EXPECT_EQ(human_seconds(-1), "0 s");
  EXPECT_EQ(human_seconds(20e-6), "20 us");
  EXPECT_EQ(human_seconds(1.5e-3), "1.5 ms");
  EXPECT_EQ(human_seconds(0.9996), "1 s");
  EXPECT_EQ(human_seconds(12), "12 s");
  EXPECT_EQ(human_seconds(59.96), "1 min");
  EXPECT_EQ(human_seconds(125), "2 min 5 s");
  EXPECT_EQ(human_seconds(7'500), "2 h 5 min");
  EXPECT_EQ(human_seconds(273'600), "3 d 4 h");
  EXPECT_EQ(human_seconds(std::numeric_limits<double>::infinity()), "forever");
  EXPECT_EQ(human_seconds(std::numeric_limits<double>::quiet_NaN()), "0 s");
}

TEST(Human, RanksAreListedAsRanges) {
  EXPECT_EQ(human_ranks({}), "");
  EXPECT_EQ(human_ranks({3, 7}), "3,7");
  EXPECT_EQ(human_ranks({7, 3, 4}), "3,4,7");
  EXPECT_EQ(human_ranks({2, 1, 0, 3, 7, 3}), "0-3,7");
}

}  // namespace
}  // namespace tern::ctl
