#include "collective/share_tables.h"

#include <gtest/gtest.h>

namespace tern::collective {
namespace share_tables_test {

TEST(ShareTables, SayWhereEachShareBeginsAndTheLastEnds) {
  ShareTables tables(3);
  const std::uint64_t* const begins = tables.take(std::vector<std::uint64_t>{4, 0, 7});
  EXPECT_EQ(std::vector<std::uint64_t>(begins, begins + 4),
            (std::vector<std::uint64_t>{0, 4, 4, 11}));
  EXPECT_TRUE(tables.are(begins, std::vector<std::uint64_t>{4, 0, 7}));
  EXPECT_FALSE(tables.are(begins, std::vector<std::uint64_t>{4, 1, 6}));
}

TEST(ShareTables, KeepTheTablesOfOpsInFlightApartAndUseThemAgain) {
  ShareTables tables(1);
  const std::uint64_t* const first = tables.take(std::vector<std::uint64_t>{1});
  const std::uint64_t* const second = tables.take(std::vector<std::uint64_t>{2});
  EXPECT_EQ(first[1], 1u);
  EXPECT_EQ(second[1], 2u);
  tables.give(nullptr);
  tables.give(first);
  EXPECT_EQ(tables.take(std::vector<std::uint64_t>{3}), first);
}

}  // namespace share_tables_test
}  // namespace tern::collective
