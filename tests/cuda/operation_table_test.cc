#include "cuda/operation_table.h"

#include <gtest/gtest.h>

namespace tern::cuda {
namespace operation_table_test {

TEST(OperationTable, WhatIsNotThereIsSaid) {
  OperationTable table(2);
  EXPECT_EQ(table.wait(1, 0).code, Errc::unknown_ticket);
  EXPECT_FALSE(table.any_in({Stage::enqueuing, Stage::ended}));
}

}  // namespace operation_table_test
}  // namespace tern::cuda
