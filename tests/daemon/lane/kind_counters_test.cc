#include "daemon/lane/kind_counters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tern::daemon {
namespace {

TEST(KindCounters, EachKindHasANumberOfItsOwn) {
  KindCounters kinds;
  for (std::size_t i = 0; i < plan::known().size(); ++i) {
    for (std::size_t times = 0; times <= i; ++times) kinds.count(plan::known()[i]->number);
  }
  for (std::size_t i = 0; i < plan::known().size(); ++i) {
    EXPECT_EQ(kinds.succeeded(plan::known()[i]->number), i + 1) << plan::known()[i]->name;
  }
}

TEST(KindCounters, CountsWhereItIsTold) {
  std::vector<std::uint64_t> words(plan::known().size());
  KindCounters kinds;
  kinds.count_in(words);
  kinds.count(plan::kBroadcast.number);
  kinds.count(plan::kBroadcast.number);
  EXPECT_EQ(kinds.succeeded(plan::kBroadcast.number), 2u);
  const auto place = std::ranges::find(plan::known(), &plan::kBroadcast) - plan::known().begin();
  EXPECT_EQ(words[static_cast<std::size_t>(place)], 2u);
  EXPECT_EQ(std::ranges::count(words, 0u), static_cast<std::ptrdiff_t>(words.size()) - 1);
}

}  // namespace
}  // namespace tern::daemon
