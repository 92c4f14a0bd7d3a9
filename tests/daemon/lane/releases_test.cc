#include "daemon/lane/releases.h"

#include <gtest/gtest.h>

#include <vector>

#include "daemon/lane/lane_group.h"
#include "tests/daemon/lane/lane_rig.h"

namespace tern::daemon::releases_test {
namespace {

class ReleasesTest : public ::testing::Test {
 protected:
  ReleasesTest() { group.attach(lane.resources, lane.links, job); }

  // Two ranks of one node.
  static GroupSetup setup() {
    GroupSetup setup = lane_test::group_of(1, 1);
    setup.shape.ranks = {{0, 1}};
    setup.size = 2;
    setup.local_clients = {1, 2};
    return setup;
  }
  // An op that the first rank has submitted and the second has not.
  collective::OpId begin(TensorState& tensor) {
    const collective::OpId op =
        lane_test::submit(core.ops(), {tensor.id, 0}, lane_test::all_reduce_of(4));
    LaneOp begun;
    begun.tensor = &tensor;
    core.begin(op, begun);
    core.join(op, 0, {});
    return op;
  }
  // As its failure is told.
  void end(collective::OpId op) {
    core.ops().end(Errc::group_left, "ended");
    core.ops().release(lane_test::run_until(core.ops(), collective::ActionKind::complete).op);
    core.forget(op);
  }
  int settle() {
    return releases.settle(
        [this](std::uint32_t rank) {
          EXPECT_EQ(reports().ring().read_available(), 0u) << "the conductor hears of it first";
          forgotten.push_back(rank);
        },
        [](std::uint32_t) { return false; });
  }
  EventReports& reports() { return lane.resources.reports; }

  ManualClock clock;
  net::LoopbackNetwork network;
  net::LoopbackTransport transport{network, {"here", 7000}};
  lane_test::LaneSide lane{clock, transport, lane_test::kNear};
  LaneJob job;
  LaneGroup group{setup(), {}};
  GroupCore& core = group.core();
  Releases releases{core, group};
  TensorState tensors[2];
  std::vector<std::uint32_t> forgotten;
};

TEST_F(ReleasesTest, NothingIsSaidUnasked) {
  EXPECT_EQ(settle(), 0);
  EXPECT_FALSE(reports().take_urgent());
}

TEST_F(ReleasesTest, ATensorWaitsForItsOps) {
  tensors[0].id = 7;
  tensors[1].id = 8;
  const collective::OpId op = begin(tensors[0]);
  releases.add_tensor(&tensors[0], 1);
  releases.add_tensor(&tensors[1], 3);
  EXPECT_EQ(settle(), 1);
  auto dropped = lane_test::take_events<event::TensorDropped>(reports());
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].tensor, &tensors[1]);
  EXPECT_EQ(dropped[0].release, 3u);
  EXPECT_EQ(dropped[0].group, &group);
  EXPECT_EQ(settle(), 0);
  end(op);
  EXPECT_EQ(settle(), 1);
  dropped = lane_test::take_events<event::TensorDropped>(reports());
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].tensor, &tensors[0]);
  EXPECT_EQ(settle(), 0) << "it is said once";
}

TEST_F(ReleasesTest, ATensorThatIsDeclaredAgainStays) {
  tensors[0].id = 7;
  const collective::OpId op = begin(tensors[0]);
  releases.add_tensor(&tensors[0], 1);
  releases.keep_tensor(&tensors[0]);
  end(op);
  EXPECT_EQ(settle(), 0);
  EXPECT_FALSE(reports().take_urgent());
  releases.add_tensor(&tensors[0], 2);
  EXPECT_EQ(settle(), 1);
  const auto dropped = lane_test::take_events<event::TensorDropped>(reports());
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].release, 2u);
}

TEST_F(ReleasesTest, ARankWaitsUntilItHasHeardOfItsOps) {
  const collective::OpId op = begin(tensors[0]);
  releases.add_rank(0);
  EXPECT_EQ(settle(), 0);
  EXPECT_TRUE(forgotten.empty());
  core.told(op, 0);
  EXPECT_EQ(settle(), 1);
  EXPECT_EQ(forgotten, std::vector<std::uint32_t>{0});
  const auto released = lane_test::take_events<event::RankReleased>(reports());
  ASSERT_EQ(released.size(), 1u);
  EXPECT_EQ(released[0].local_rank, 0u);
  EXPECT_EQ(released[0].group, &group);
  EXPECT_EQ(settle(), 0);
}

TEST_F(ReleasesTest, AnOpHoldsNoRankThatHasNotSubmittedIt) {
  begin(tensors[0]);
  releases.add_rank(1);
  EXPECT_EQ(settle(), 1);
  EXPECT_EQ(forgotten, std::vector<std::uint32_t>{1});
}

}  // namespace
}  // namespace tern::daemon::releases_test
