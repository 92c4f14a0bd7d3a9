#include "base/free_slice.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tern {
namespace {

const void* at(std::uintptr_t address) {
  return reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr): an example
}

TEST(FreeSlice, EndsWhereAHugePageBegins) {
  constexpr std::uintptr_t kBegin = 10 * kFreeSliceBytes;
  EXPECT_EQ(without_last_slice(at(kBegin), 3 * kFreeSliceBytes), 2 * kFreeSliceBytes);
  EXPECT_EQ(without_last_slice(at(kBegin), 3 * kFreeSliceBytes + 1), 3 * kFreeSliceBytes);
  EXPECT_EQ(without_last_slice(at(kBegin + 4096), 3 * kFreeSliceBytes), 3 * kFreeSliceBytes - 4096);
}

TEST(FreeSlice, OfWhatFitsIntoOneNothingIsLeft) {
  constexpr std::uintptr_t kBegin = 10 * kFreeSliceBytes;
  EXPECT_EQ(without_last_slice(at(kBegin), kFreeSliceBytes), 0u);
  EXPECT_EQ(without_last_slice(at(kBegin + 4096), kFreeSliceBytes - 4096), 0u);
  EXPECT_EQ(without_last_slice(at(kBegin + 4096), 1), 0u);
  EXPECT_EQ(without_last_slice(nullptr, 0), 0u);
}

TEST(FreeSlice, NoneIsLargerThanASlice) {
  for (const std::uint64_t offset : {0u, 64u, 4096u, 1'000'000u}) {
    std::uint64_t bytes = 7 * kFreeSliceBytes + 12345;
    std::uint64_t freed = 0;
    while (bytes != 0) {
      const std::uint64_t left = without_last_slice(at(10 * kFreeSliceBytes + offset), bytes);
      ASSERT_LT(left, bytes);
      ASSERT_LE(bytes - left, kFreeSliceBytes);
      freed += bytes - left;
      bytes = left;
    }
    EXPECT_EQ(freed, 7 * kFreeSliceBytes + 12345);
  }
}

}  // namespace
}  // namespace tern
