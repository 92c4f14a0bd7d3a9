#include "daemon/tensor/zeroed_array.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace tern::daemon {
namespace zeroed_array_test {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

// Whether the page of this address has memory of its own.
bool is_resident(const float* value) {
  auto* const begin = const_cast<float*>(value);
  char* const page =
      reinterpret_cast<char*>(begin) - reinterpret_cast<std::uintptr_t>(begin) % kPageBytes;
  unsigned char resident = 0;
  return ::mincore(page, 1, &resident) == 0 && (resident & 1) != 0;
}

TEST(ZeroedArray, HasZeros) {
  ZeroedArray<std::uint64_t> array;
  EXPECT_FALSE(array);
  ASSERT_TRUE(array.allocate(5));
  EXPECT_TRUE(array);
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(array[i], 0u);
}

TEST(ZeroedArray, OfNothingCanBeHadAndFreed) {
  ZeroedArray<float> array;
  EXPECT_FALSE(array.free_some()) << "it has not been allocated";
  ASSERT_TRUE(array.allocate(0));
  EXPECT_FALSE(array.free_some());
  EXPECT_FALSE(array);
}

// Others of the process wait for the lock of its mappings while a slice is freed.
TEST(ZeroedArray, IsFreedInSlicesFromItsEnd) {
  constexpr std::uint64_t kSlice = kFreeSliceBytes / sizeof(float);
  constexpr std::uint64_t kCount = 5 * kSlice + 77;
  ZeroedArray<float> array;
  ASSERT_TRUE(array.allocate(kCount));
  std::fill_n(array.get(), kCount, 1.0f);
  const float* const begin = array.get();
  std::uint64_t slices = 1;
  while (array.free_some()) {
    // The first and the last slice may be short: one is freed at least, two less at most.
    if (slices >= 2) {
      EXPECT_FALSE(is_resident(begin + kCount - slices * kSlice + kSlice)) << slices;
    }
    EXPECT_EQ(*begin, 1.0f);
    ++slices;
  }
  EXPECT_GE(slices, 5u);
  EXPECT_LE(slices, 7u);
  EXPECT_FALSE(array);
  EXPECT_FALSE(array.free_some());
}

// What lies in the page of its end, or behind it, is somebody else's.
TEST(ZeroedArray, LeavesItsNeighboursAlone) {
  constexpr std::uint64_t kCount = kFreeSliceBytes / sizeof(float) + 3;
  std::array<ZeroedArray<float>, 6> arrays;
  for (auto& array : arrays) {
    ASSERT_TRUE(array.allocate(kCount));
    std::fill_n(array.get(), kCount, 1.0f);
  }
  for (const std::size_t freed : {1u, 3u, 5u}) {
    while (arrays[freed].free_some()) {
    }
  }
  for (const std::size_t kept : {0u, 2u, 4u}) {
    EXPECT_EQ(std::count(arrays[kept].get(), arrays[kept].get() + kCount, 1.0f),
              static_cast<std::ptrdiff_t>(kCount))
        << kept;
  }
}

TEST(ZeroedArray, MovesWhole) {
  ZeroedArray<float> array;
  ASSERT_TRUE(array.allocate(2 * kFreeSliceBytes));
  array[7] = 3.0f;
  ZeroedArray<float> other = std::move(array);
  EXPECT_EQ(other[7], 3.0f);
  EXPECT_FALSE(array.free_some());  // NOLINT(bugprone-use-after-move): it has nothing any more
  EXPECT_TRUE(other.free_some());
}

}  // namespace
}  // namespace zeroed_array_test
}  // namespace tern::daemon
