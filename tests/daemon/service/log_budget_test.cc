#include "daemon/service/log_budget.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

constexpr std::uint64_t kBudgetSecond = 1'000'000'000;

TEST(LogBudget, AdmitsSomeAtOnceAndThenOneASecond) {
  LogBudget<int> budget(3);
  int admitted = 0;
  for (int i = 0; i < 10; ++i) admitted += budget.admits(7, 5) ? 1 : 0;
  EXPECT_EQ(admitted, 3);
  EXPECT_FALSE(budget.admits(7, 5 + kBudgetSecond - 1));
  EXPECT_TRUE(budget.admits(7, 5 + kBudgetSecond));
  EXPECT_FALSE(budget.admits(7, 5 + kBudgetSecond));
  EXPECT_TRUE(budget.admits(8, 5));
}

TEST(LogBudget, CountsWhatIsLeftOut) {
  LogBudget<int> budget(1);
  for (int i = 0; i < 10; ++i) budget.admits(7, 5);
  budget.admits(8, 5);
  // However late it is asked.
  budget.admits(9, 100 * kBudgetSecond);
  const std::vector<std::pair<int, std::uint64_t>> left_out{{7, 9}};
  EXPECT_EQ(budget.take_left_out(), left_out);
  EXPECT_TRUE(budget.take_left_out().empty());
}

TEST(LogBudget, IsNotEscapedByNewNames) {
  LogBudget<int> budget(1);
  std::size_t admitted = 0;
  for (int party = 0; party < 1'000; ++party) admitted += budget.admits(party, 5) ? 1 : 0;
  EXPECT_EQ(admitted, LogBudget<int>::kMostParties);
  EXPECT_EQ(budget.take_others_left_out(), 1'000 - admitted);
  EXPECT_EQ(budget.take_others_left_out(), 0u);
  EXPECT_TRUE(budget.admits(10'000, 5 + kBudgetSecond));
}

}  // namespace
}  // namespace tern::daemon
