// What anybody may send to a coordinator before a proof.

#include <algorithm>

#include "coordinator_rig.h"

namespace tern::daemon::coordinator_test {
namespace {

class UnprovenJoins : public CoordinatorTest {
 protected:
  void expire() { EXPECT_TRUE(coordinator_.expire(TimeSlice(clock_, 1))); }
};

TEST_F(UnprovenJoins, OneSourceHoldsABoundedNumberOfJoins) {
  constexpr LinkRef kCrowd = 5'000;
  for (std::size_t i = 0; i < Coordinator::kJoiners.of_one; ++i) {
    coordinator_.on_message(kCrowd + i % 7,
                            join_of(kCrowd + i % 7, static_cast<std::uint32_t>(i), 1024));
    EXPECT_EQ(last(kCrowd + i % 7, "refused"), nullptr) << i;
  }
  uid_ = std::string(31, '0') + "1";
  coordinator_.on_message(kCrowd, join_of(kCrowd, 0, 2));
  expect_refused(kCrowd, Errc::quota_exceeded, "1024 joins that came from source 5");
  // Another source, and a rank of this node, find their places.
  coordinator_.on_message(kA, join_of(kA, 1, 2));
  EXPECT_EQ(last(kA, "refused"), nullptr);
  coordinator_.on_message(kSelf, join_of(kSelf, 0, 2));
  EXPECT_EQ(last(kSelf, "refused"), nullptr);
}

TEST_F(UnprovenJoins, OneSourceSpeaksOfABoundedNumberOfUnknownGroups) {
  constexpr LinkRef kCrowd = 5'000;
  const auto join_another = [this](LinkRef from, std::size_t number) {
    const std::string digits = std::to_string(number);
    uid_ = std::string(32 - digits.size(), '0') + digits;
    coordinator_.on_message(from, join_of(from, 0, 2));
  };
  for (std::size_t i = 0; i < CoordinatedGroups::kStrangers.of_one; ++i) join_another(kCrowd, i);
  EXPECT_EQ(last(kCrowd, "refused"), nullptr);
  join_another(kCrowd, 9'000);
  expect_refused(kCrowd, Errc::quota_exceeded, "256 groups from source 5");
  EXPECT_EQ(coordinator_.groups(), 1 + CoordinatedGroups::kStrangers.of_one);
  join_another(kA, 9'001);
  EXPECT_EQ(last(kA, "refused"), nullptr);
  // They take no group of this node's users.
  EXPECT_TRUE(knows(id_));
  lose(kCrowd, "gone");
  EXPECT_EQ(coordinator_.groups(), 2u);
  join_another(kCrowd + 1, 9'002);
  EXPECT_EQ(last(kCrowd + 1, "refused"), nullptr);
}

TEST_F(UnprovenJoins, AJoinThatIsNotProvenInTimeIsRefused) {
  coordinator_.on_message(kA, join_of(kA, 0, 2));
  ASSERT_NE(last(kA, "challenge"), nullptr);
  clock_.advance_ns(Coordinator::kProofNs - 1);
  expire();
  EXPECT_EQ(last(kA, "refused"), nullptr);
  clock_.advance_ns(1);
  expire();
  expect_refused(kA, Errc::timeout, "no proof");
  std::set<LinkRef> in_use;
  coordinator_.add_links(in_use);
  EXPECT_TRUE(in_use.empty());
}

// The clock of a test stands still: a slice is over at once, or never.
TEST_F(UnprovenJoins, AreRefusedAsThereIsTimeFor) {
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    coordinator_.on_message(kA, join_of(kA, rank, 4));
  }
  clock_.advance_ns(Coordinator::kProofNs);
  const auto refused = [this] {
    return std::count_if(sent_.begin(), sent_.end(),
                         [](const auto& one) { return one.second["t"] == "refused"; });
  };
  EXPECT_FALSE(coordinator_.expire(TimeSlice(clock_, 0)));
  EXPECT_EQ(refused(), 1);
  EXPECT_FALSE(coordinator_.expire(TimeSlice(clock_, 0)));
  EXPECT_EQ(refused(), 2);
  expire();
  EXPECT_EQ(refused(), 3);
}

TEST_F(UnprovenJoins, AProvenJoinWaitsAsLongAsItsMemberLikes) {
  join(kA, 0, 2);
  clock_.advance_ns(2 * Coordinator::kStrangerNs);
  expire();
  EXPECT_EQ(last(kA, "refused"), nullptr);
  std::set<LinkRef> in_use;
  coordinator_.add_links(in_use);
  EXPECT_EQ(in_use, std::set<LinkRef>{kA});
}

TEST_F(UnprovenJoins, AJoinOfAGroupThatStaysUnknownIsRefusedInTheEnd) {
  uid_ = std::string(32, '7');
  coordinator_.on_message(kA, join_of(kA, 0, 2));
  clock_.advance_ns(Coordinator::kStrangerNs - 1);
  expire();
  EXPECT_EQ(last(kA, "refused"), nullptr);
  clock_.advance_ns(1);
  expire();
  expect_refused(kA, Errc::unknown_group, "mint a new id");
  EXPECT_EQ(coordinator_.groups(), 1u);
}

}  // namespace
}  // namespace tern::daemon::coordinator_test
