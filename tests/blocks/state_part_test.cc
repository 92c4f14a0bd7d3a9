#include "blocks/state_part.h"

#include <gtest/gtest.h>

#include <cstring>

#include "codec/recipe.h"
#include "tests/blocks/layouts.h"
#include "wire/state_part.h"

namespace tern::blocks {
namespace state_part_test {

constexpr std::uint64_t kCount = 40;  // chunks of 16; this node owns the first and the last

std::vector<std::byte> part_of(float value, codec::Memory memory = codec::Memory::ef,
                               std::uint64_t count = kCount) {
  std::vector<std::byte> part(sizeof(wire::StatePartHeader) + kCount * sizeof(float));
  wire::StatePartHeader header{};
  header.magic = wire::kStatePartMagic;
  header.memory = static_cast<std::uint8_t>(memory);
  header.count = count;
  std::memcpy(part.data(), &header, sizeof(header));
  for (std::uint64_t i = 0; i < kCount; ++i) {
    std::memcpy(part.data() + sizeof(header) + i * sizeof(float), &value, sizeof(value));
  }
  return part;
}

float float_of(const StatePart& part, std::uint64_t element) {
  float value = 0;
  std::memcpy(&value, part.bytes().data() + sizeof(wire::StatePartHeader) + element * sizeof(float),
              sizeof(value));
  return value;
}

TEST(BlocksStatePart, HoldsBothHomesOfTheResidual) {
  const Layout layout = layout_of(kCount, 16);
  Contributions contributions(layout, codec::parse_recipe("3lc:s=1").value());
  StatePart(part_of(3.0f)).give(contributions);
  StatePart part(part_of(5.0f));
  part.take(contributions);
  EXPECT_EQ(float_of(part, 15), 5.0f);  // the daemon's
  EXPECT_EQ(float_of(part, 16), 3.0f);  // what was given
  EXPECT_EQ(float_of(part, 31), 3.0f);
  EXPECT_EQ(float_of(part, 32), 5.0f);
}

TEST(BlocksStatePart, OfForeignBytesHasNoResidual) {
  const Layout layout = layout_of(kCount, 16);
  Contributions contributions(layout, codec::parse_recipe("3lc:s=1").value());
  StatePart(part_of(3.0f)).give(contributions);
  for (std::vector<std::byte> bytes :
       {std::vector<std::byte>(8), std::vector<std::byte>(500), part_of(7.0f, codec::Memory::diana),
        part_of(7.0f, codec::Memory::ef, kCount + 1)}) {
    const std::vector<std::byte> before = bytes;
    StatePart part(std::move(bytes));
    part.take(contributions);
    part.give(contributions);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), part.bytes().begin()));
  }
  StatePart check(part_of(0.0f));
  check.take(contributions);
  EXPECT_EQ(float_of(check, 16), 3.0f);
}

}  // namespace state_part_test
}  // namespace tern::blocks
