#include "daemon/lane/snapshot_table.h"

#include <gtest/gtest.h>

#include <thread>

namespace tern::daemon {
namespace snapshot_table_test {

// A row is whole if both are alike.
struct Row {
  std::uint64_t one = 0, other = 0;
};

constexpr std::size_t kRows = 8;
using Table = SnapshotTable<Row, kRows>;

std::vector<Row> rows_of(std::size_t count, std::uint64_t value) {
  return std::vector<Row>(count, Row{value, value});
}

TEST(SnapshotTable, IsReadAsItWasWrittenLast) {
  Table table;
  EXPECT_TRUE(table.read().empty());
  table.write(rows_of(3, 7));
  table.write(rows_of(2, 8));
  const auto rows = table.read();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].other, 8u);
}

TEST(SnapshotTable, RowsBeyondItsSizeAreLeftOut) {
  Table table;
  table.write(rows_of(kRows + 1, 7));
  EXPECT_EQ(table.read().size(), kRows);
}

TEST(SnapshotTable, NobodyReadsAMixture) {
  Table table;
  table.write(rows_of(kRows, 0));
  constexpr std::uint64_t kTimes = 20'000;
  std::jthread writer([&] {
    for (std::uint64_t i = 1; i <= kTimes; ++i) table.write(rows_of(1 + i % kRows, i));
  });
  std::uint64_t seen = 0;
  while (seen < kTimes) {
    const auto rows = table.read();
    ASSERT_FALSE(rows.empty());
    const std::uint64_t value = rows[0].one;
    ASSERT_GE(value, seen);
    ASSERT_EQ(rows.size(), value == 0 ? kRows : 1 + value % kRows);
    for (const Row& row : rows) {
      ASSERT_EQ(row.one, value);
      ASSERT_EQ(row.other, value);
    }
    seen = value;
  }
}

}  // namespace snapshot_table_test
}  // namespace tern::daemon
