// Pages that cannot be had. Here they are beyond the end of a file, which the kernel answers as it
// does where it has no memory.

#include "shm/page_guard.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "base/fd.h"

namespace tern::shm {
namespace {

constexpr std::size_t kBytesOfAPage = 4096;

// A mapping whose first page is there and whose others are not.
class Truncated {
 public:
  explicit Truncated(std::size_t pages) : bytes_(pages * kBytesOfAPage) {
    EXPECT_EQ(::ftruncate(file_.get(), kBytesOfAPage), 0);
    void* const at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    EXPECT_NE(at, MAP_FAILED);
    memory_ = static_cast<std::byte*>(at);
  }
  Truncated(const Truncated&) = delete;
  Truncated& operator=(const Truncated&) = delete;
  ~Truncated() { ::munmap(memory_, bytes_); }

  std::span<std::byte> span() const noexcept { return {memory_, bytes_}; }
  std::byte read(std::size_t i) const noexcept {
    return std::byte{*static_cast<const volatile unsigned char*>(static_cast<void*>(memory_ + i))};
  }

 private:
  Fd file_{::memfd_create("truncated", MFD_CLOEXEC)};
  std::size_t bytes_;
  std::byte* memory_ = nullptr;
};

TEST(PageGuard, LeavesPagesThatAreThere) {
  const Truncated memory(1);
  auto guard = PageGuard::over(memory.span());
  ASSERT_TRUE(guard);
  memory.span()[0] = std::byte{5};
  EXPECT_EQ(memory.read(0), std::byte{5});
  EXPECT_FALSE(guard->has_replaced());
}

TEST(PageGuard, ReadsAndWritesGoOnWhereAPageCannotBeHad) {
  const Truncated memory(1000);
  auto guard = PageGuard::over(memory.span());
  ASSERT_TRUE(guard);
  // More than are replaced at a time, and the last byte.
  std::memset(memory.span().data(), 7, memory.span().size());
  EXPECT_TRUE(guard->has_replaced());
  EXPECT_EQ(memory.read(500 * kBytesOfAPage), std::byte{7});
  EXPECT_EQ(memory.read(1000 * kBytesOfAPage - 1), std::byte{7});
}

TEST(PageGuard, ManyThreadsMayMeetIt) {
  const Truncated memory(2000);
  auto guard = PageGuard::over(memory.span());
  ASSERT_TRUE(guard);
  std::vector<std::jthread> threads;
  for (std::size_t first = 0; first < 8; ++first) {
    threads.emplace_back([&, first] {
      for (std::size_t page = first; page < 2000; page += 8) memory.read(page * kBytesOfAPage);
    });
  }
  threads.clear();
  EXPECT_TRUE(guard->has_replaced());
}

TEST(PageGuard, ConcernsItsOwnMappingAlone) {
  const Truncated one(2), other(2);
  auto guard_of_one = PageGuard::over(one.span());
  auto guard_of_other = PageGuard::over(other.span());
  ASSERT_TRUE(guard_of_one && guard_of_other);
  one.read(kBytesOfAPage);
  EXPECT_TRUE(guard_of_one->has_replaced());
  EXPECT_FALSE(guard_of_other->has_replaced());
  // The next one finds nothing of the one before.
  *guard_of_one = PageGuard();
  auto next = PageGuard::over(other.span());
  ASSERT_TRUE(next);
  EXPECT_FALSE(next->has_replaced());
}

// A watch that is made anew meanwhile must never be taken for one over all of memory.
TEST(PageGuard, OthersMayComeAndGoMeanwhile) {
  const Truncated memory(2000), another(2);
  auto guard = PageGuard::over(memory.span());
  ASSERT_TRUE(guard);
  std::atomic<bool> wrong{false};
  std::jthread others([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      auto other = PageGuard::over(another.span());
      if (!other || other->has_replaced()) wrong = true;
    }
  });
  for (std::size_t page = 1; page < 2000; page += 16) memory.read(page * kBytesOfAPage);
  others.request_stop();
  others.join();
  EXPECT_FALSE(wrong) << "a page of one was charged to the other";
  EXPECT_TRUE(guard->has_replaced());
}

using PageGuardDeathTest = ::testing::Test;

TEST(PageGuardDeathTest, OtherFaultsEndTheProcessAsBefore) {
  EXPECT_DEATH(
      {
        const Truncated guarded(2);
        const Truncated other(2);
        auto guard = PageGuard::over(guarded.span());
        guarded.read(kBytesOfAPage);
        other.read(kBytesOfAPage);
      },
      "");
}

TEST(PageGuardDeathTest, WhatIsAboutToBeUnmappedIsNotGuarded) {
  EXPECT_DEATH(
      {
        const Truncated memory(4);
        auto guard = PageGuard::over(memory.span());
        guard->shrink(2 * kBytesOfAPage);
        memory.read(kBytesOfAPage);
        memory.read(3 * kBytesOfAPage);
      },
      "");
}

}  // namespace
}  // namespace tern::shm
