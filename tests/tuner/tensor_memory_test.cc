#include "tuner/tensor_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace tern::tuner {
namespace tensor_memory_test {

std::vector<std::string> names_of(const TensorMemory& memory) {
  std::vector<std::string> names;
  for (const auto& entry : memory.entries()) names.push_back(entry.name);
  return names;
}

TEST(TensorMemory, KeepsWhatIsRenewed) {
  TensorMemory memory(2);
  EXPECT_EQ(memory.use("a"), nullptr);
  EXPECT_TRUE(memory.renew("a").empty());
  memory.renew("a")["raw"].wire = 0.5;
  const TensorMemory::Records* const known = memory.use("a");
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(known->at("raw").wire, 0.5);
}

TEST(TensorMemory, TheLongestUnusedMakesRoom) {
  TensorMemory memory(3);
  for (const char* name : {"c", "b", "a"}) memory.renew(name);
  memory.use("c");
  memory.renew("d");
  EXPECT_THAT(names_of(memory), testing::ElementsAre("a", "c", "d"));
  memory.renew("a");
  EXPECT_THAT(names_of(memory), testing::ElementsAre("c", "d", "a"));
  EXPECT_EQ(memory.use("b"), nullptr);
}

// Of many that were recalled none goes before another comes.
TEST(TensorMemory, WithLessRoomShrinksWithEachThatComes) {
  TensorMemory memory(3);
  for (const char* name : {"a", "b", "c"}) memory.renew(name);
  memory.set_most(1);
  memory.use("a");
  EXPECT_THAT(names_of(memory), testing::ElementsAre("b", "c", "a"));
  memory.renew("d");
  EXPECT_THAT(names_of(memory), testing::ElementsAre("a", "d"));
  memory.renew("e");
  EXPECT_THAT(names_of(memory), testing::ElementsAre("e"));
}

// Its places stay right where it is moved, as when a memory is recalled.
TEST(TensorMemory, IsMoved) {
  TensorMemory from(2);
  for (const char* name : {"a", "b"}) from.renew(name);
  TensorMemory memory(1);
  memory = std::move(from);
  memory.use("a");
  memory.renew("c");
  EXPECT_THAT(names_of(memory), testing::ElementsAre("a", "c"));
}

}  // namespace tensor_memory_test
}  // namespace tern::tuner
