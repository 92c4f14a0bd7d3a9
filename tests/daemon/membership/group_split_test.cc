#include "daemon/membership/group_split.h"

#include <gtest/gtest.h>

#include <set>

#include "daemon/membership/hmac.h"

namespace tern::daemon {
namespace {

using Ranks = std::vector<std::uint32_t>;

TEST(GroupSplit, RanksOfAColourAreInOrderOfKeyThenOfRank) {
  const std::vector<SplitRank> said{{1, 0, 0}, {0, 5, 1}, {0, -5, 2}, {1, 0, 3}, {0, 5, 4}};
  const auto divided = divide(said);
  ASSERT_EQ(divided.size(), 2u);
  EXPECT_EQ(divided.at(0), (Ranks{2, 1, 4}));
  EXPECT_EQ(divided.at(1), (Ranks{0, 3}));
}

TEST(GroupSplit, NegativeColoursAreTogether) {
  const std::vector<SplitRank> said{{-1, 0, 0}, {-7, 0, 1}, {0, 0, 2}};
  const auto divided = divide(said);
  ASSERT_EQ(divided.size(), 2u);
  EXPECT_EQ(divided.at(-1), (Ranks{0, 1}));
  EXPECT_EQ(divided.at(0), (Ranks{2}));
}

TEST(GroupSplit, IdsDifferByEpochSequenceAndColour) {
  const GroupId parent = *mint_group_id("host", 7000);
  std::set<std::string> uids{to_hex(parent.uid)}, secrets{to_hex(parent.secret)};
  std::size_t made = 1;
  for (const std::int64_t epoch : {1, 2, 11}) {
    for (const std::int64_t sequence : {0, 1, 11}) {
      const GroupId gathering = gathering_id(parent, {epoch, "f00d", sequence});
      EXPECT_EQ(gathering, gathering_id(parent, {epoch, "f00d", sequence}));
      EXPECT_EQ(gathering.host, "host");
      EXPECT_EQ(gathering.port, 7000);
      uids.insert(to_hex(gathering.uid)), secrets.insert(to_hex(gathering.secret)), ++made;
      for (const std::int64_t color : {0, 1, 10}) {
        const GroupId child = child_id(gathering, color);
        uids.insert(to_hex(child.uid)), secrets.insert(to_hex(child.secret)), ++made;
      }
    }
  }
  EXPECT_EQ(uids.size(), made);
  EXPECT_EQ(secrets.size(), made);
}

// A process knows the secret, the epoch and how often it has split.
TEST(GroupSplit, IdsNeedTheIncarnation) {
  const GroupId parent = *mint_group_id("host", 7000);
  EXPECT_NE(gathering_id(parent, {1, "f00d", 0}).uid, gathering_id(parent, {1, "beef", 0}).uid);
}

TEST(GroupSplit, IdsNeedTheSecret) {
  const GroupId parent = *mint_group_id("host", 7000);
  GroupId guess = parent;
  guess.secret[31] ^= std::byte{1};
  EXPECT_NE(gathering_id(guess, {1, "f00d", 0}).uid, gathering_id(parent, {1, "f00d", 0}).uid);
}

TEST(GroupSplit, ItsTextHasAllThatARankSays) {
  const SplitTerms terms{"p", 1, 2, 3, 4};
  std::set<std::string> texts{text_of(terms)};
  for (const SplitTerms& other :
       {SplitTerms{"q", 1, 2, 3, 4}, SplitTerms{"p", 0, 2, 3, 4}, SplitTerms{"p", 1, 0, 3, 4},
        SplitTerms{"p", 1, 2, 0, 4}, SplitTerms{"p", 1, 2, 3, 0}}) {
    texts.insert(text_of(other));
  }
  EXPECT_EQ(texts.size(), 6u);
}

}  // namespace
}  // namespace tern::daemon
