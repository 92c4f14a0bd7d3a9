#include "shm/streamed_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tern::shm {
namespace {

constexpr std::size_t kRoom = 1 << 14;

std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

// What is not the part stays as it was.
void expect_copied(std::size_t to, std::size_t from, std::size_t bytes, std::uint64_t whole) {
  const std::vector<std::byte> source = random_bytes(kRoom, 1);
  const std::vector<std::byte> before = random_bytes(kRoom, 2);
  std::vector<std::byte> target = before;
  copy_part(target.data() + to, source.data() + from, bytes, whole);
  std::vector<std::byte> expected = before;
  std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), bytes,
              expected.begin() + static_cast<std::ptrdiff_t>(to));
  EXPECT_EQ(target, expected) << bytes << " bytes from " << from << " to " << to;
}

TEST(StreamedCopy, CopiesFromAnyPlaceToAnyPlace) {
  for (std::size_t to = 0; to < 66; ++to) {
    for (const std::size_t from : {0u, 1u, 15u, 16u, 63u})
      expect_copied(to, from, 1000, kStreamedBytes);
  }
}

TEST(StreamedCopy, CopiesAnyNumberOfBytes) {
  for (std::size_t bytes = 0; bytes < 300; ++bytes) {
    for (const std::size_t to : {0u, 1u, 63u}) expect_copied(to, 3, bytes, kStreamedBytes);
  }
  expect_copied(0, 0, kRoom, kStreamedBytes);
}

TEST(StreamedCopy, CopiesPartsOfLessAsWell) {
  for (const std::size_t bytes : {0u, 1u, 64u, 1000u}) {
    expect_copied(5, 7, bytes, kStreamedBytes - 1);
  }
}

}  // namespace
}  // namespace tern::shm
