#include "daemon/metrics/counter_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plans.h"

namespace tern::daemon {
namespace {

// A word of the file is documented by the text of the same place.
template <typename Counters>
void expect_order(std::span<const CounterRow<Counters>> rows) {
  std::vector<std::uint64_t> words(rows.size());
  auto& counters = counters_in<Counters>(words);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    (counters.*rows[i].value).store(i + 1, std::memory_order_relaxed);
  }
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(words[i], i + 1) << rows[i].text.name;
}

TEST(CounterTable, HasTheOrderOfTheWords) {
  expect_order(conductor_counters());
  expect_order(lane_counters());
}

TEST(CounterTable, HasACounterOfEveryKindInTheOrderOfThePlans) {
  const auto texts = kind_counters();
  ASSERT_EQ(texts.size(), plan::known().size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(texts[i].name, std::string("ops_of_") + plan::known()[i]->name);
  }
  EXPECT_EQ(counter_blocks(3)[kKindBlock].texts.size(), texts.size());
  EXPECT_EQ(counter_blocks(3)[kKindBlock].instances, 3u);
}

TEST(CounterTable, SaysOneLineAndAUnitOfEveryCounterAndNothingTwice) {
  std::set<std::string_view> names;
  for (const auto& block : counter_blocks(3)) {
    for (const auto& text : block.texts) {
      EXPECT_TRUE(names.insert(text.name).second) << text.name;
      EXPECT_FALSE(text.unit.empty()) << text.name;
      EXPECT_FALSE(text.help.empty()) << text.name;
      EXPECT_NE(text.help.back(), '.') << text.name;
      // As the file has room for them.
      EXPECT_LT(text.name.size(), 48u);
      EXPECT_LT(text.unit.size(), 16u);
      EXPECT_LT(text.help.size(), 160u);
      EXPECT_EQ(text.unit == "ns", text.name.ends_with("_ns")) << text.name;
    }
  }
}

}  // namespace
}  // namespace tern::daemon
