#include "client_lib/delivery.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <vector>

namespace tern::client_lib {
namespace {

class DeliveryTest : public ::testing::Test {
 protected:
  static constexpr shm::CopyProgress::Shape kShape{2, 3};

  DeliveryTest() {
    std::iota(from.begin(), from.end(), std::uint8_t{1});
    delivery.begin(progress, {reinterpret_cast<const std::byte*>(from.data()), to.data(), 100});
  }
  bool came(std::size_t begin, std::size_t bytes) const {
    return std::memcmp(&from[begin], &to[begin], bytes) == 0;
  }

  alignas(64) std::array<std::byte, kShape.bytes()> block{};
  shm::CopyProgress progress{block.data(), kShape};
  std::vector<std::uint8_t> from = std::vector<std::uint8_t>(100);
  std::vector<std::uint8_t> to = std::vector<std::uint8_t>(100);
  Delivery delivery;
};

TEST_F(DeliveryTest, TakesWhatIsListedAndNoMore) {
  EXPECT_FALSE(delivery.has_more());
  progress.deliver(0, 0, {10, 20});
  progress.deliver(1, 0, {60, 5});
  ASSERT_TRUE(delivery.has_more());
  delivery.copy_listed();
  EXPECT_FALSE(delivery.has_more());
  EXPECT_TRUE(came(10, 20));
  EXPECT_TRUE(came(60, 5));
  EXPECT_EQ(to[9], 0);
  EXPECT_EQ(to[30], 0);
  EXPECT_EQ(to[65], 0);
}

TEST_F(DeliveryTest, CopiesTheRestOnceAtTheEnd) {
  progress.deliver(0, 0, {60, 5});
  progress.deliver(1, 0, {10, 20});
  delivery.copy_listed();
  // What has been taken is not looked at again.
  from[12] = from[62] = 250;
  delivery.copy_rest(100);
  EXPECT_TRUE(came(0, 10));
  EXPECT_TRUE(came(30, 30));
  EXPECT_TRUE(came(65, 35));
  EXPECT_NE(to[12], 250);
  EXPECT_NE(to[62], 250);
}

TEST_F(DeliveryTest, BeyondWhatCameNothingIsCopied) {
  progress.deliver(0, 0, {10, 20});
  delivery.copy_listed();
  delivery.copy_rest(50);
  EXPECT_TRUE(came(0, 50));
  EXPECT_EQ(to[50], 0);
  EXPECT_EQ(to[99], 0);
}

TEST_F(DeliveryTest, ListsMaySayMoreThanCame) {
  progress.deliver(0, 0, {60, 5});
  delivery.copy_listed();
  delivery.copy_rest(20);
  EXPECT_TRUE(came(0, 20));
  EXPECT_EQ(to[20], 0);
  EXPECT_EQ(to[59], 0);
}

TEST_F(DeliveryTest, WithoutListsAllIsTheRest) {
  delivery.copy_rest(100);
  EXPECT_TRUE(came(0, 100));
}

TEST_F(DeliveryTest, PiecesThatOverlapOrLieOutsideDoNoHarm) {
  progress.deliver(0, 0, {90, 11});
  progress.deliver(0, 1, {~std::uint64_t{0}, 2});
  progress.deliver(0, 2, {20, 40});
  progress.deliver(1, 0, {30, 10});
  progress.deliver(1, 1, {101, 0});
  delivery.copy_listed();
  EXPECT_EQ(to[90], 0);
  EXPECT_TRUE(came(20, 40));
  delivery.copy_rest(100);
  EXPECT_TRUE(came(0, 100));
}

TEST_F(DeliveryTest, ACountBeyondTheListIsCutOff) {
  for (std::uint32_t i = 0; i < 3; ++i) progress.deliver(0, i, {std::uint64_t{30} * i, 10});
  auto* const mark = reinterpret_cast<shm::DeliveredMark*>(block.data() + sizeof(shm::CopiedMark));
  mark->records = 1000;
  delivery.copy_listed();
  EXPECT_FALSE(delivery.has_more());
  delivery.copy_rest(100);
  EXPECT_TRUE(came(0, 100));
}

}  // namespace
}  // namespace tern::client_lib
