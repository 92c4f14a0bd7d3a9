#include "daemon/conductor/lane_commands.h"

#include "part_rig.h"

namespace tern::daemon::conductor_test {
namespace {

class LaneCommandsTest : public PartRig {};

TEST_F(LaneCommandsTest, ReachTheLaneThatTheyAreForAndWakeIt) {
  commands_.send(1, command::Goodbye{});
  EXPECT_TRUE(commands_of(0).empty());
  EXPECT_EQ(commands_of(1).size(), 1u);
  EXPECT_EQ(woken_, std::vector<std::uint32_t>{1});
}

TEST_F(LaneCommandsTest, ThatDoNotFitWaitInOrder) {
  constexpr std::uint32_t kMany = 5000;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    commands_.send(0, command::SetWeight{nullptr, i});
  }
  EXPECT_TRUE(commands_.has_backlog());
  std::uint32_t next = 0;
  while (next < kMany) {
    const auto taken = commands_of(0);
    ASSERT_FALSE(taken.empty());
    for (const Command& command : taken) {
      EXPECT_EQ(std::get<command::SetWeight>(command).weight, next++);
    }
    commands_.flush();
  }
  EXPECT_FALSE(commands_.has_backlog());
  EXPECT_EQ(commands_.flush(), 0);
}

TEST_F(LaneCommandsTest, OfAGroupNameEachLanesOwnPart) {
  greet(connect(1));
  const MemberGroup& group = add_group({1});
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    bool found = false;
    for (const Command& command : commands_of(lane)) {
      const auto* add = std::get_if<command::AddGroup>(&command);
      found = found || (add != nullptr && add->group == group.lanes[lane].get());
    }
    EXPECT_TRUE(found) << lane;
  }
}

TEST_F(LaneCommandsTest, AFailureGoesToTheLanesThatKnowTheOp) {
  greet(connect(1));
  const MemberGroup& group = add_group({1});
  commands_of(0);
  commands_of(1);
  commands_.send_fail(group, 0b10, {nullptr, 5, 6, Errc::timeout, 0, Sentence("late")});
  EXPECT_TRUE(commands_of(0).empty());
  const auto taken = commands_of(1);
  ASSERT_EQ(taken.size(), 1u);
  const auto& fail = std::get<command::FailOp>(taken[0]);
  EXPECT_EQ(fail.group, group.lanes[1].get());
  EXPECT_EQ(fail.tensor, 5u);
  EXPECT_STREQ(fail.text.c_str(), "late");
}

}  // namespace
}  // namespace tern::daemon::conductor_test
