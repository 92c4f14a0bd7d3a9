#include "daemon/lane/mapping.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace tern::daemon {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

std::uint64_t page_bytes() { return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)); }

// How many pages of it the kernel has found memory for.
std::size_t resident_pages(const Region& region) {
  std::vector<unsigned char> pages(region.bytes / page_bytes());
  EXPECT_EQ(::mincore(region.base, region.bytes, pages.data()), 0);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char flags) { return flags & 1; }));
}

TEST(Mapping, PiecesHaveWholePages) {
  Mapping memory = *Mapping::make(3 * page_bytes());
  const Region first = memory.take(1), second = memory.take(page_bytes() + 1);
  EXPECT_EQ(first.bytes, page_bytes());
  EXPECT_EQ(second.base, first.base + page_bytes());
  EXPECT_EQ(second.bytes, 2 * page_bytes());
  std::memset(first.base, 1, first.bytes);
  std::memset(second.base, 2, second.bytes);
  EXPECT_EQ(memory.take(0).bytes, 0u);
}

TEST(Mapping, OfNothingHasNoPiece) {
  Mapping memory = *Mapping::make(0);
  EXPECT_EQ(memory.take(0).bytes, 0u);
  EXPECT_FALSE(memory.unmap_some());
  EXPECT_FALSE(Mapping().unmap_some());
}

TEST(Mapping, WhatTheKernelDoesNotMapIsAnError) {
  const auto none = Mapping::make(std::uint64_t{1} << 60);  // more than there are addresses
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Errc::out_of_memory);
  EXPECT_EQ(none.error().text, "cannot map 1152921504606846976 bytes: Cannot allocate memory");
}

TEST(Mapping, CostsNoPagesUntilTheyAreTouched) {
  Mapping memory = *Mapping::make(4 * kMiB);
  const Region all = memory.take(4 * kMiB);
  EXPECT_EQ(resident_pages(all), 0u);
  all.base[0] = std::byte{1};
  EXPECT_GT(resident_pages(all), 0u);
}

TEST(Mapping, IsUnmappedInParts) {
  Mapping memory = *Mapping::make(9 * kMiB);
  const Region all = memory.take(9 * kMiB);
  std::memset(all.base, 1, all.bytes);
  std::size_t left = resident_pages(all);
  EXPECT_EQ(left, all.bytes / page_bytes());
  int parts = 1;
  for (; memory.unmap_some(); ++parts) {
    const std::size_t now = resident_pages(all);
    EXPECT_LT(now, left);
    EXPECT_LE(left - now, 2 * kMiB / page_bytes());
    left = now;
  }
  EXPECT_GE(parts, 5);
  EXPECT_FALSE(memory.unmap_some());
}

TEST(Mapping, IsItsLastOwners) {
  Mapping first = *Mapping::make(page_bytes());
  Mapping second = std::move(first);
  const Region piece = second.take(page_bytes());
  piece.base[0] = std::byte{7};
  first = std::move(second);
  EXPECT_EQ(piece.base[0], std::byte{7});
  first = Mapping();
}

}  // namespace
}  // namespace tern::daemon
