#include "collective/op_rows.h"

#include <gtest/gtest.h>

namespace tern::collective {
namespace op_rows_test {

TEST(OpRows, WhatWasNotWrittenIsNone) {
  OpRows<int> rows(4, 3, 1, 7);
  EXPECT_EQ(rows.read(2, 1), 7);
  EXPECT_TRUE(rows.read(2).empty());
  rows.write(2, 1) = 5;
  EXPECT_EQ(rows.read(2, 0), 7);
  EXPECT_EQ(rows.read(2, 1), 5);
  EXPECT_EQ(rows.read(2).size(), 3u);
  EXPECT_EQ(rows.read(3, 1), 7);
}

TEST(OpRows, ARowIsAnothersOnceItsOpIsCleared) {
  OpRows<int> rows(100, 2, 1);
  for (OpId op = 0; op < 100; ++op) {
    EXPECT_EQ(rows.read(op, 1), 0);
    rows.write(op, 1) = 9;
    rows.clear(op);
    rows.clear(op);
    EXPECT_EQ(rows.read(op, 1), 0);
  }
  EXPECT_EQ(rows.rows(), 1u);
}

TEST(OpRows, ThereAreAsManyAsWereEverNeededAtOnce) {
  OpRows<std::uint64_t> rows(1000, 64, 8);
  for (OpId op = 0; op < 8; ++op) rows.write(op)[63] = op + 1;
  EXPECT_EQ(rows.rows(), 8u);
  for (OpId op = 8; op < 20; ++op) rows.write(op)[63] = op + 1;
  EXPECT_LE(rows.rows(), 32u);
  for (OpId op = 0; op < 20; ++op) EXPECT_EQ(rows.read(op, 63), op + 1) << "kept as rows come";
}

TEST(OpRows, NoneAtFirstIsAllowed) {
  OpRows<int> rows(3, 2, 0);
  rows.write(0, 0) = 1;
  rows.write(1, 0) = 2;
  EXPECT_EQ(rows.read(0, 0), 1);
  EXPECT_EQ(rows.read(1, 0), 2);
}

}  // namespace op_rows_test
}  // namespace tern::collective
