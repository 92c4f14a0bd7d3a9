#include "client_lib/copy_regions.h"

#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "tests/client_lib/fake_daemon.h"

namespace tern::client_lib {
namespace copy_regions_test {
namespace {

using testing::Answers;
using testing::FakeDaemon;

class CopyRegionsTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kTimeoutMs = 10'000;
  static constexpr std::uint64_t kPage = 4096;

  void SetUp() override {
    std::vector<Fd> fds;
    ConnectOptions options;
    options.job = "job";
    options.arena_bytes = kPage;
    ASSERT_TRUE(questions.hello(options, Deadline::after_ms(kTimeoutMs), fds).has_value());
  }
  Errc make(std::uint64_t bytes, std::uint32_t features = shm::kFeatureRegions) {
    const Status made = regions.make(questions, mutex, features, bytes);
    return made ? Errc::ok : made.error().code;
  }
  std::size_t made() { return daemon.request_count(shm::PacketKind::region_create); }
  std::size_t given_back() { return daemon.request_count(shm::PacketKind::region_free); }

  FakeDaemon daemon;
  Questions questions{*shm::PacketSocket::connect(daemon.path(), kTimeoutMs), kTimeoutMs};
  std::mutex mutex;
  CopyRegions regions;
};

TEST_F(CopyRegionsTest, ThereAreNoneUntilOneIsMade) {
  EXPECT_FALSE(regions.allocate(64));
  EXPECT_FALSE(regions.give_back(questions, mutex));
  EXPECT_EQ(make(kPage), Errc::ok);
  EXPECT_TRUE(regions.allocate(64));
}

TEST_F(CopyRegionsTest, AnOlderDaemonIsNotAsked) {
  EXPECT_EQ(make(kPage, 0), Errc::unsupported);
  EXPECT_EQ(made(), 0u);
  EXPECT_FALSE(regions.allocate(64));
}

TEST_F(CopyRegionsTest, PlacesLieBesideEachOtherInTheRegionsMemory) {
  ASSERT_EQ(make(2 * kPage), Errc::ok);
  const auto first = regions.allocate(kPage), second = regions.allocate(kPage);
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->region, 0u) << "that is the arena";
  EXPECT_EQ(first->region, second->region);
  EXPECT_EQ(first->memory, second->memory) << "of the region";
  EXPECT_NE(first->offset, second->offset);
  std::memset(first->memory + first->offset, 1, kPage);
  std::memset(second->memory + second->offset, 2, kPage);
  EXPECT_EQ(first->memory[first->offset + kPage - 1], std::byte{1});
  EXPECT_FALSE(regions.allocate(64)) << "it is full";
  regions.free(first->region, first->offset);
  EXPECT_EQ(regions.allocate(kPage)->offset, first->offset);
}

TEST_F(CopyRegionsTest, AnotherRegionsOffsetIsNotFreed) {
  ASSERT_EQ(make(kPage), Errc::ok);
  const auto place = regions.allocate(kPage);
  ASSERT_TRUE(place);
  regions.free(place->region + 1, place->offset);
  EXPECT_FALSE(regions.allocate(64));
}

TEST_F(CopyRegionsTest, IdleOnesGiveWayToALargerOne) {
  ASSERT_EQ(make(kPage), Errc::ok);
  ASSERT_EQ(make(2 * kPage), Errc::ok);
  EXPECT_EQ(made(), 2u);
  EXPECT_EQ(given_back(), 1u);
  EXPECT_TRUE(regions.allocate(2 * kPage));
  EXPECT_FALSE(regions.allocate(64)) << "the smaller one is gone";
}

TEST_F(CopyRegionsTest, OnesInUseStay) {
  ASSERT_EQ(make(kPage), Errc::ok);
  const auto used = regions.allocate(64);
  ASSERT_TRUE(used);
  ASSERT_EQ(make(2 * kPage), Errc::ok);
  EXPECT_EQ(given_back(), 0u);
  const auto large = regions.allocate(2 * kPage);
  ASSERT_TRUE(large);
  EXPECT_NE(large->region, used->region);
  EXPECT_FALSE(regions.give_back(questions, mutex)) << "both hold something";
  used->memory[used->offset] = std::byte{7};
  regions.free(used->region, used->offset);
  EXPECT_TRUE(regions.give_back(questions, mutex));
  EXPECT_EQ(given_back(), 1u);
  std::memset(large->memory + large->offset, 3, 2 * kPage);
}

TEST_F(CopyRegionsTest, AnIdleOneOfTheSameSizeIsKept) {
  ASSERT_EQ(make(kPage), Errc::ok);
  ASSERT_EQ(make(kPage), Errc::ok);
  EXPECT_EQ(given_back(), 0u);
  EXPECT_TRUE(regions.allocate(kPage));
  EXPECT_TRUE(regions.allocate(kPage));
  EXPECT_FALSE(regions.allocate(kPage));
}

TEST_F(CopyRegionsTest, AllIdleOnesAreGivenBackAtOnce) {
  ASSERT_EQ(make(kPage), Errc::ok);
  ASSERT_EQ(make(kPage), Errc::ok);
  EXPECT_TRUE(regions.give_back(questions, mutex));
  EXPECT_EQ(given_back(), 2u);
  EXPECT_FALSE(regions.give_back(questions, mutex));
  EXPECT_FALSE(regions.allocate(64));
}

TEST_F(CopyRegionsTest, ARefusalIsTold) {
  daemon.set_answers(Answers::refuse);
  EXPECT_NE(make(kPage), Errc::ok);
  EXPECT_FALSE(regions.allocate(64));
  daemon.set_answers(Answers::normal);
  EXPECT_EQ(make(kPage), Errc::ok);
}

}  // namespace
}  // namespace copy_regions_test
}  // namespace tern::client_lib
