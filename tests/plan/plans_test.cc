#include "plan/plans.h"

#include <gtest/gtest.h>

#include "shm/layout.h"

namespace tern::plan {
namespace {

constexpr Plan kOther{.number = 900, .name = "other", .extents = kAllReduce.extents};
const Registration kRegistration(kOther);

TEST(Plans, AreFoundByTheNumbersOfTheFormat) {
  EXPECT_EQ(find(static_cast<std::uint16_t>(shm::OpKind::all_reduce)), &kAllReduce);
  EXPECT_EQ(find(static_cast<std::uint16_t>(shm::OpKind::broadcast)), &kBroadcast);
  EXPECT_EQ(find(static_cast<std::uint16_t>(shm::OpKind::barrier)), &kBarrier);
}

TEST(Plans, ANumberWithoutAPlanIsNone) {
  EXPECT_EQ(find(0), nullptr);
  EXPECT_EQ(find(static_cast<std::uint16_t>(shm::OpKind::cancel)), nullptr);
  EXPECT_EQ(find(0xffff), nullptr);
}

TEST(Plans, ARegisteredOneIsFound) { EXPECT_EQ(find(900), &kOther); }

TEST(Plans, HaveNamesForPeople) {
  EXPECT_STREQ(name_of(1), "all_reduce");
  EXPECT_STREQ(name_of(900), "other");
  EXPECT_STREQ(name_of(4), "unknown");
  EXPECT_STREQ(name_of(0x10001), "unknown");
}

}  // namespace
}  // namespace tern::plan
