#include "daemon/membership/declared_tensors.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

DeclaredTensor declared(std::uint64_t id, const char* name, std::uint64_t count = 0) {
  DeclaredTensor made;
  made.state = std::make_shared<TensorState>();
  made.state->id = id;
  made.state->name = name;
  codec::Recipe recipe;
  EXPECT_TRUE(codec::parse_recipe_quick("ef(3lc:s=1)", recipe));
  if (count != 0) {
    EXPECT_TRUE(
        made.state->codec.allocate(recipe, {.count = count, .chunk_elements = 64, .nodes = 2}));
  }
  return made;
}

TEST(DeclaredTensors, AreFoundByIdAndByName) {
  DeclaredTensors tensors;
  tensors.add(declared(1, "w"));
  tensors.add(declared(2, "v"));
  tensors.add(declared(3, "w"));
  EXPECT_EQ(tensors.find(2)->state->name, "v");
  EXPECT_EQ(tensors.find(4), nullptr);
  ASSERT_EQ(tensors.named("w").size(), 2u);
  EXPECT_EQ(tensors.named("w")[0], tensors.find(1));
  tensors.remove(1);
  ASSERT_EQ(tensors.named("w").size(), 1u);
  EXPECT_EQ(tensors.named("w")[0], tensors.find(3));
  EXPECT_TRUE(tensors.named("u").empty());
  EXPECT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors.walks(), 0u);
  EXPECT_EQ(tensors.all().size(), 2u);
  EXPECT_EQ(tensors.walks(), 1u);
}

TEST(DeclaredTensors, AreFoundOneAfterTheOther) {
  DeclaredTensors tensors;
  EXPECT_EQ(tensors.after({}), nullptr);
  tensors.add(declared(1, "w"));
  tensors.add(declared(3, "v"));
  EXPECT_EQ(tensors.after({}), tensors.find(1));
  EXPECT_EQ(tensors.after(1), tensors.find(3));
  EXPECT_EQ(tensors.after(2), tensors.find(3));
  EXPECT_EQ(tensors.after(3), nullptr);
}

TEST(DeclaredTensors, KnowWhatTheirCodecStatesTake) {
  DeclaredTensors tensors;
  tensors.add(declared(1, "plain"));
  EXPECT_EQ(tensors.state_bytes(), 0u);
  DeclaredTensor small = declared(2, "small", 100), large = declared(3, "large", 1000);
  const std::uint64_t of_small = small.state->state_bytes(), of_large = large.state->state_bytes();
  tensors.add(std::move(small));
  tensors.add(std::move(large));
  EXPECT_EQ(tensors.state_bytes(), of_small + of_large);
  tensors.remove(2);
  EXPECT_EQ(tensors.state_bytes(), of_large);
}

}  // namespace
}  // namespace tern::daemon
