// How much of a turn a lane gives to commands and entries. What ops do is tested in tests/sim.

#include "daemon/lane/lane.h"

#include <gtest/gtest.h>

#include <memory>
#include <variant>
#include <vector>

#include "tests/daemon/lane/lane_rig.h"

namespace tern::daemon::lane_turns_test {
namespace {

using lane_test::TestClient;

// Every look at it takes a tenth of a millisecond, or what a test says: a command costs one, and a
// refused entry two.
class LookingTakesTime final : public Clock {
 public:
  static constexpr std::uint64_t kLookNs = 100'000;
  std::uint64_t now_ns() const noexcept override { return now_ns_ += look_ns; }
  std::uint64_t look_ns = kLookNs;

 private:
  mutable std::uint64_t now_ns_ = 1'000'000'000;
};

class LaneTurns : public ::testing::Test {
 protected:
  static LaneSettings settings() {
    LaneSettings settings;
    settings.chunk_bytes = 16 << 10;
    settings.receive_slabs = settings.send_slabs = settings.result_slabs = 2;
    return settings;
  }
  int do_work() { return lane_.do_work(clock_.now_ns()).work; }
  void add(TestClient& client) {
    ASSERT_TRUE(lane_.commands().push(Command{command::AddClient{&client.memory}}));
    while (lane_.commands().read_available() > 0) do_work();
  }
  // Of no group that there is: each is refused.
  static void fill(TestClient& client, std::uint64_t entries) {
    for (std::uint64_t ticket = 1; ticket <= entries; ++ticket) client.submit(ticket);
  }
  static std::size_t refused(TestClient& client) {
    std::size_t count = 0;
    while (client.next_completion()) ++count;
    return count;
  }

  LookingTakesTime clock_;
  net::LoopbackNetwork network_;
  net::LoopbackTransport transport_{network_, {"here", 7000}};
  TestClient alice_{11}, bob_{12}, carol_{13};
  Lane lane_{settings(), LaneClients::Surroundings{clock_, transport_}, {7, 7}};
};

TEST_F(LaneTurns, GiveEntriesATimeAndThoseLeftComeFirst) {
  for (TestClient* client : {&alice_, &bob_, &carol_}) add(*client);
  for (TestClient* client : {&alice_, &bob_, &carol_}) fill(*client, 30);
  clock_.look_ns = 5'000;
  for (int round = 0; round < 3; ++round) {
    // Ten of a client take a tenth of a millisecond: what it has left, and the others', is for
    // later turns.
    for (TestClient* client : {&alice_, &bob_, &carol_}) {
      do_work();
      EXPECT_EQ(refused(*client), 10u) << "round " << round;
    }
  }
  EXPECT_EQ(refused(alice_) + refused(bob_) + refused(carol_), 0u);
}

TEST_F(LaneTurns, TakeSomeEntriesOfEachClient) {
  for (TestClient* client : {&alice_, &bob_, &carol_}) add(*client);
  for (TestClient* client : {&alice_, &bob_, &carol_}) fill(*client, 40);
  clock_.look_ns = 500;
  do_work();
  for (TestClient* client : {&alice_, &bob_, &carol_}) EXPECT_EQ(refused(*client), 32u);
  do_work();
  for (TestClient* client : {&alice_, &bob_, &carol_}) EXPECT_EQ(refused(*client), 8u);
}

TEST_F(LaneTurns, GiveCommandsATimeAndEntriesWaitForThoseBeforeThem) {
  add(alice_);
  constexpr std::size_t kCommands = 100;
  for (std::size_t i = 0; i < kCommands; ++i) {
    ASSERT_TRUE(lane_.commands().push(Command{command::DropRegion{99, 1}}));  // nobody's
  }
  fill(alice_, 1);
  std::size_t before = kCommands;
  while (before > 0) {
    EXPECT_GT(do_work(), 0);
    const std::size_t left = lane_.commands().read_available();
    // Once for themselves, and once for the entry.
    EXPECT_LE(before - left, 2 * 20u);
    EXPECT_LT(left, before);
    EXPECT_EQ(refused(alice_), left > 0 ? 0u : 1u) << left << " commands are older";
    before = left;
  }
}

// An operation of a few KiB takes several rounds, and a look is a part of each.
TEST_F(LaneTurns, LookAtTheClockThreeTimesWhereThereIsNothingToDo) {
  add(alice_);
  const std::uint64_t begin_ns = clock_.now_ns();
  const Lane::Round round = lane_.do_work(begin_ns);
  EXPECT_EQ(round.work, 0);
  EXPECT_EQ(round.ended_ns - begin_ns, 3 * LookingTakesTime::kLookNs);
}

TEST_F(LaneTurns, EndInASleepWithoutAnEndOnceAllIsPublishedAndThereIsNoClient) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  const auto sleeps_for_a_second = [this] {
    const std::uint64_t before = clock_.now_ns(), deadline = lane_.next_deadline_ns();
    return deadline > before + kSecond && deadline < clock_.now_ns() + kSecond;
  };
  EXPECT_TRUE(sleeps_for_a_second());
  EXPECT_EQ(do_work(), 0);
  EXPECT_EQ(lane_.next_deadline_ns(), ~std::uint64_t{0});
  add(alice_);
  EXPECT_TRUE(sleeps_for_a_second());
  ASSERT_TRUE(lane_.commands().push(Command{command::DropClient{&alice_.memory}}));
  while (do_work() > 0) {
  }
  ASSERT_EQ(lane_.client_count(), 0u);
  EXPECT_TRUE(sleeps_for_a_second()) << "the gauges are older than the last change";
  clock_.look_ns = kSecond;
  do_work();
  EXPECT_EQ(lane_.next_deadline_ns(), ~std::uint64_t{0});
}

// A daemon that ends loses all links at once, of which there may be more than events have room.
TEST_F(LaneTurns, TellOneLossOfEachGroup) {
  constexpr std::size_t kGroups = 100;
  std::vector<std::unique_ptr<LaneGroup>> groups;
  for (std::size_t i = 0; i < kGroups; ++i) {
    groups.push_back(std::make_unique<LaneGroup>(lane_test::group_of(64, i + 1), EagerRoom()));
    ASSERT_TRUE(lane_.commands().push(Command{command::AddGroup{groups.back().get()}}));
    do_work();
  }
  ASSERT_TRUE(lane_.commands().push(Command{command::Goodbye{}}));
  do_work();
  std::size_t lost = 0;
  for (Event event; lane_.events().pop(event);) {
    lost += std::holds_alternative<event::LinkLost>(event.what) ? 1 : 0;
  }
  EXPECT_EQ(lost, kGroups);
}

}  // namespace
}  // namespace tern::daemon::lane_turns_test
