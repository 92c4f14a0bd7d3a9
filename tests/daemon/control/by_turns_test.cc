#include "daemon/control/by_turns.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tern::daemon {
namespace {

constexpr std::uint32_t kRoot = 0, kOwn = 900, kAlice = 1001, kBob = 1002;

class ByTurnsTest : public ::testing::Test {
 protected:
  std::vector<std::string> rest() {
    std::vector<std::string> order;
    while (!things_.empty()) order.push_back(things_.take());
    return order;
  }

  ByTurns<std::string> things_;
};

TEST_F(ByTurnsTest, GivesOneThingOfEachOwnerInTurn) {
  for (const char* const one : {"a1", "a2", "a3"}) things_.add(kAlice, one);
  things_.add(kBob, "b1");
  things_.add(kRoot, "root", true);
  things_.add(kBob, "b2");
  EXPECT_EQ(rest(), (std::vector<std::string>{"root", "a1", "b1", "a2", "b2", "a3"}));
}

TEST_F(ByTurnsTest, WhoComesFirstAgainAndAgainAlternatesWithTheOthers) {
  for (const char* const one : {"a1", "a2"}) things_.add(kAlice, one);
  things_.add(kBob, "b1");
  std::vector<std::string> order;
  things_.add(kRoot, "root1", true);
  // As a connection whose questions have all come.
  for (int next = 2; order.size() < 6;) {
    order.push_back(things_.take());
    if (order.back().starts_with("root")) things_.add(kRoot, "root" + std::to_string(next++), true);
  }
  EXPECT_EQ(order, (std::vector<std::string>{"root1", "a1", "root2", "b1", "root3", "a2"}));
}

TEST_F(ByTurnsTest, AllOfOneWhoComesFirstWaitForOneOther) {
  for (const char* const one : {"a1", "a2"}) things_.add(kAlice, one);
  things_.add(kBob, "b1");
  for (const char* const one : {"root1", "root2"}) things_.add(kRoot, one, true);
  things_.add(kOwn, "own1", true);
  EXPECT_EQ(rest(), (std::vector<std::string>{"root1", "a1", "own1", "b1", "root2", "a2"}));
}

TEST_F(ByTurnsTest, AnOwnersOtherThingsDoNotComeFirst) {
  things_.add(kAlice, "a1");
  things_.add(kRoot, "root1", true);
  for (const char* const one : {"sub1", "sub2"}) things_.add(kRoot, one);
  things_.add(kRoot, "root2", true);
  EXPECT_EQ(rest(), (std::vector<std::string>{"root1", "a1", "root2", "sub1", "sub2"}));
}

}  // namespace
}  // namespace tern::daemon
