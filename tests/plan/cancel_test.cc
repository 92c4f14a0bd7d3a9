#include "plan/cancel.h"

#include <gtest/gtest.h>

#include "plan/plans.h"

namespace tern::plan {
namespace {

TEST(Cancel, NamesTheOpAndIsNoOperation) {
  const shm::SubmitEntry entry = cancel_entry(7, 9);
  EXPECT_TRUE(cancels(entry));
  EXPECT_EQ(entry.ticket, 7u);
  EXPECT_EQ(entry.group, 9u);
  EXPECT_EQ(find(entry.kind), nullptr);
}

TEST(Cancel, AnOperationIsNone) {
  shm::SubmitEntry entry{};
  for (const Plan* plan : {&kAllReduce, &kBroadcast, &kBarrier}) {
    entry.kind = plan->number;
    EXPECT_FALSE(cancels(entry)) << plan->name;
  }
}

}  // namespace
}  // namespace tern::plan
