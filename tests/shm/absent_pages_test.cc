#include "shm/absent_pages.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "shm/segment.h"

namespace tern::shm {
namespace {

constexpr std::size_t kArenaPage = 4096;
constexpr std::size_t kPages = 64;

// What the kernel has found memory for.
auto blocks_of(const Segment& segment) {
  struct stat file {};
  EXPECT_EQ(::fstat(segment.fd(), &file), 0);
  return file.st_blocks;
}

// A daemon's mapping of an arena, and its client's.
class AbsentPages : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = Segment::create(1, kPages * kArenaPage, 0);
    ASSERT_TRUE(made) << made.error().text;
    daemon = std::move(*made);
    if (!can_leave_absent()) GTEST_SKIP() << can_leave_absent().error().text;
    const Status left = daemon.leave_absent_pages();
    ASSERT_TRUE(left) << left.error().text;
    auto mapped = Segment::map(duplicate(daemon.fd()), daemon.segment_bytes());
    ASSERT_TRUE(mapped) << mapped.error().text;
    client = std::move(*mapped);
  }

  // As code that the compiler does not know.
  static std::byte read(std::span<std::byte> memory, std::size_t at) {
    return std::byte{
        *static_cast<const volatile unsigned char*>(static_cast<void*>(memory.data() + at))};
  }

  Segment daemon, client;
};

TEST_F(AbsentPages, AreNobodysWhenTheDaemonUsesThem) {
  const auto before = blocks_of(client);
  (void)read(daemon.arena(), 5 * kArenaPage);
  EXPECT_TRUE(daemon.has_lost_pages());
  std::memset(daemon.arena().data(), 7, daemon.arena().size());
  EXPECT_EQ(blocks_of(client), before);
  EXPECT_EQ(client.arena()[5 * kArenaPage], std::byte{0});
}

TEST_F(AbsentPages, AreThereOnceTheClientHasTouchedThem) {
  client.arena()[5 * kArenaPage] = std::byte{3};
  EXPECT_EQ(read(daemon.arena(), 5 * kArenaPage), std::byte{3});
  daemon.arena()[5 * kArenaPage + 1] = std::byte{4};
  EXPECT_EQ(read(client.arena(), 5 * kArenaPage + 1), std::byte{4});
  EXPECT_FALSE(daemon.has_lost_pages());
}

TEST_F(AbsentPages, AreAllThereOncePopulated) {
  ASSERT_TRUE(populate(client.arena()));
  for (std::size_t page = 0; page < kPages; ++page)
    daemon.arena()[page * kArenaPage] = std::byte{1};
  EXPECT_FALSE(daemon.has_lost_pages());
}

TEST_F(AbsentPages, AreAnErrorOfASystemCall) {
  std::byte from[8]{};
  const iovec local{from, sizeof from}, remote{daemon.arena().data() + 9 * kArenaPage, sizeof from};
  EXPECT_EQ(::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_FALSE(daemon.has_lost_pages());
  client.arena()[9 * kArenaPage] = std::byte{3};
  EXPECT_EQ(::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0), 8);
}

}  // namespace
}  // namespace tern::shm
