#include <latch>
#include <utility>
#include <vector>

#include "tensor_registry_rig.h"
#include "tests/daemon/service/log_lines.h"

namespace tern::daemon::conductor_test {
namespace {

class TensorRegistryReleaseTest : public TensorRegistryTest {};

TEST_F(TensorRegistryReleaseTest, TheLastHolderReleasesTheTensor) {
  ASSERT_EQ(declare(1, "w"), Errc::ok);
  ASSERT_EQ(declare(2, "w"), Errc::ok);
  take_all();
  tensors_.release_all(*group_, group_->ranks[0]);
  tensors_.release_left(TimeSlice(clock_, 1));
  EXPECT_EQ(drops_of(0), 0u);
  tensors_.release_all(*group_, group_->ranks[1]);
  tensors_.release_left(TimeSlice(clock_, 1));
  EXPECT_EQ(drops_of(0), 1u);
}

// Ranks of a node declare a name at different times: one may be done with it before the next comes.
TEST_F(TensorRegistryReleaseTest, ARankMayDeclareWhatTheOthersHaveJustReleased) {
  ASSERT_EQ(declare(1, "w"), Errc::ok);
  TensorState* const state = only().state.get();
  const std::uint64_t id = state->id;
  release(1, id);
  tensors_.on_dropped(*group_, id, 1);  // one lane so far
  take_all();
  ASSERT_EQ(declare(2, "w"), Errc::ok) << text_;
  EXPECT_EQ(group_->tensors.size(), 1u);
  EXPECT_EQ(only().holders, 0b10u);
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    const auto taken = commands_of(lane);
    ASSERT_EQ(taken.size(), 1u);
    EXPECT_EQ(std::get<command::AddTensor>(taken[0]).tensor, state);
  }
  // What lanes have said of the first release ends nothing, now or after the second.
  tensors_.on_dropped(*group_, id, 1);
  EXPECT_EQ(group_->tensors.size(), 1u);
  release(2, id);
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    const auto taken = commands_of(lane);
    ASSERT_EQ(taken.size(), 1u);
    EXPECT_EQ(std::get<command::DropTensor>(taken[0]).release, 2u);
  }
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) tensors_.on_dropped(*group_, id, 1);
  EXPECT_EQ(group_->tensors.size(), 1u);
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) tensors_.on_dropped(*group_, id, 2);
  EXPECT_TRUE(group_->tensors.empty());
}

TEST_F(TensorRegistryReleaseTest, ARankMustAgreeWithWhoHasJustReleased) {
  ASSERT_EQ(declare(1, "w"), Errc::ok);
  release(1, only().state->id);
  auto other = packet("w");
  other.count = 999;
  EXPECT_EQ(declare(2, other), Errc::mismatch);
  EXPECT_EQ(text_.find("w: a rank that has released it said 1000 f32"), 0u) << text_;
}

TEST_F(TensorRegistryReleaseTest, ANameThatWasReleasedMayBeDeclaredBeforeTheLanesHaveLetGo) {
  ASSERT_EQ(declare(1, "w"), Errc::ok);
  release(1, only().state->id);
  EXPECT_EQ(declare(1, "w"), Errc::ok);
  EXPECT_EQ(declare(1, "w"), Errc::already_exists);
  EXPECT_EQ(group_->tensors.named("w").size(), 2u);
}

TEST_F(TensorRegistryReleaseTest, StateThatWasNotKeptIsAReset) {
  ASSERT_EQ(declare(1, "w"), Errc::ok);
  const std::uint64_t first = only().state->id;
  only().state->lanes[0].state_touched = true;
  release(1, first);
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) tensors_.on_dropped(*group_, first, 1);
  // Whoever declares and releases without end has few lines.
  for (int i = 0; i < 128; ++i) log_.write({LogTopic::states, 1000}, "all lines at once");
  const LogLines lines;
  ASSERT_EQ(declare(1, "w"), Errc::ok);
  EXPECT_EQ(only().state->resets, 1u);
  EXPECT_EQ(counters_->state_resets, 1u);
  log_.tell_left_out();
  EXPECT_EQ(lines.seen(),
            std::vector<std::string>{
                "1 more lines about codec states that were reset were left out: uid 1000"});
}

// The clock of a test stands still: a slice is over at once, or never.
class RanksThatHaveLeft : public TensorRegistryTest {
 protected:
  void SetUp() override {
    TensorRegistryTest::SetUp();
    for (const char* name : {"a", "b", "c"}) EXPECT_EQ(declare(1, name), Errc::ok);
    take_all();
  }
  void leave(std::size_t rank) {
    group_->ranks[rank].phase = MemberRank::Phase::left;
    tensors_.release_all(*group_, group_->ranks[rank]);
  }
  std::size_t held() const {
    std::size_t held = 0;
    for (const auto& [id, tensor] : group_->tensors.all()) held += tensor.holders != 0 ? 1 : 0;
    return held;
  }
  int release_one() { return tensors_.release_left(TimeSlice(clock_, 0)); }
  int release_left() { return tensors_.release_left(TimeSlice(clock_, 1)); }
};

TEST_F(RanksThatHaveLeft, ReleaseAsManyTensorsAsThereIsTimeFor) {
  EXPECT_EQ(release_left(), 0);
  leave(0);
  EXPECT_EQ(held(), 3u);
  EXPECT_EQ(release_one(), 1);
  EXPECT_EQ(held(), 2u);
  EXPECT_EQ(drops_of(0), 1u);
  EXPECT_TRUE(tensors_.has_to_release());
  EXPECT_EQ(release_left(), 2);
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(drops_of(0), 2u);
  EXPECT_FALSE(tensors_.has_to_release());
}

TEST_F(RanksThatHaveLeft, ReleaseOneAfterTheOther) {
  ASSERT_EQ(declare(2, "d"), Errc::ok);
  ASSERT_EQ(declare(2, "a"), Errc::ok);
  leave(0);
  leave(1);
  while (tensors_.has_to_release()) release_one();
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(drops_of(0), 4u) << "each once";
}

// What is waiting for the lanes takes more memory as a command than as a tensor.
TEST_F(RanksThatHaveLeft, ReleaseNoMoreThanLanesTake) {
  leave(0);
  while (!commands_.has_backlog()) commands_.send_to_all(command::SetWeight{});
  EXPECT_EQ(release_left(), 0);
  EXPECT_EQ(held(), 3u);
  take_all();
  commands_.flush();
  EXPECT_FALSE(commands_.has_backlog());
  EXPECT_EQ(release_left(), 3);
}

TEST_F(RanksThatHaveLeft, MayBeFollowedByOneThatHoldsTheSameTensors) {
  leave(0);
  EXPECT_EQ(release_one(), 1);
  ASSERT_EQ(drops_of(0), 1u);
  for (const char* name : {"a", "b", "c"}) ASSERT_EQ(declare(2, name), Errc::ok) << text_;
  take_all();
  EXPECT_EQ(release_left(), 2);
  EXPECT_EQ(drops_of(0), 0u);
  EXPECT_EQ(held(), 3u) << "by the other rank";
}

TEST_F(RanksThatHaveLeft, ReleaseNothingOnceTheirGroupIsRemoved) {
  leave(0);
  EXPECT_EQ(release_one(), 1);
  take_all();
  group_->phase = MemberGroup::Phase::removing;
  EXPECT_EQ(release_left(), 0);
  EXPECT_EQ(drops_of(0), 0u) << "lanes may have let go of the group";
  EXPECT_FALSE(tensors_.has_to_release());
  tensors_.on_group_removed(*group_);
  EXPECT_EQ(tensors_.forget_groups(TimeSlice(clock_, 1)), 1);
  EXPECT_TRUE(groups_.all().empty());
}

TEST_F(RanksThatHaveLeft, ReleaseNothingOfAGroupThatIsForgotten) {
  leave(0);
  group_->phase = MemberGroup::Phase::removing;
  tensors_.on_group_removed(*group_);
  EXPECT_EQ(tensors_.forget_groups(TimeSlice(clock_, 1)), 1);
  EXPECT_EQ(release_left(), 0);
  EXPECT_FALSE(tensors_.has_to_release());
}

// Each is small, and all together would take the conductor long.
TEST_F(TensorRegistryReleaseTest, StatesOfAGroupThatEndsAreFreedByTheDisposalAndChargedMeanwhile) {
  std::latch begun(1), may_end(1);
  Disposal disposal;
  TensorRegistry tensors(
      settings_,
      {clock_, counters_, answers_, commands_, post_, disposal, sealing_, reading_, log_},
      {groups_, quotas_, kept_, refusals_, nullptr});
  settings_.tensors.state_ttl_ns = 0;
  constexpr std::uint32_t kOwner = 7;
  group_->account = kOwner;
  disposal.take(kOwner, [&] {
    begun.count_down();
    may_end.wait();
    return false;
  });
  begun.wait();
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    auto declaration = packet(name);
    declaration.count = 1 << 20;
    EXPECT_TRUE(tensors.declare(*clients_.find(1), declaration));
  }
  const std::uint64_t bytes = group_->tensors.state_bytes();
  ASSERT_GT(bytes, 16u << 20);
  tensors.on_group_removed(*group_);
  EXPECT_EQ(tensors.forget_groups(TimeSlice(clock_, 1)), 1);
  EXPECT_EQ(disposal.bytes_of(kOwner), bytes);
  EXPECT_EQ(disposal.count(), 2u) << "one thing, which has turns";
  may_end.count_down();
}

TEST_F(TensorRegistryReleaseTest, OfAGroupThatEndsAsManyTensorsAreForgottenAsThereIsTimeFor) {
  for (const char* name : {"a", "b", "c"}) ASSERT_EQ(declare(1, name), Errc::ok);
  tensors_.on_group_removed(*group_);
  EXPECT_EQ(tensors_.forget_groups(TimeSlice(clock_, 0)), 1);
  EXPECT_EQ(group_->tensors.size(), 2u);
  EXPECT_TRUE(tensors_.has_groups_to_forget());
  EXPECT_EQ(tensors_.forget_groups(TimeSlice(clock_, 1)), 1);
  EXPECT_TRUE(groups_.all().empty());
  EXPECT_FALSE(tensors_.has_groups_to_forget());
  EXPECT_EQ(tensors_.forget_groups(TimeSlice(clock_, 1)), 0);
}

TEST_F(TensorRegistryReleaseTest, OfAGroupThatEndsAsManyNamesAreForgottenAsThereIsTimeFor) {
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_EQ(declare(1, name), Errc::ok);
    release_only();
  }
  ASSERT_EQ(group_->names.size(), 3u);
  tensors_.on_group_removed(*group_);
  EXPECT_EQ(tensors_.forget_groups(TimeSlice(clock_, 0)), 1);
  EXPECT_EQ(group_->names.size(), 2u);
  EXPECT_TRUE(tensors_.has_groups_to_forget());
  EXPECT_EQ(tensors_.forget_groups(TimeSlice(clock_, 1)), 1);
  EXPECT_TRUE(groups_.all().empty());
}

TEST_F(TensorRegistryReleaseTest, AJobThatIsBackGoesOnWithStateOfAGroupThatIsStillToBeForgotten) {
  settings_.tensors.state_ttl_ns = 60'000'000'000;
  for (const char* name : {"a", "b"}) ASSERT_EQ(declare(1, name), Errc::ok);
  for (const auto& [id, tensor] : group_->tensors.all()) {
    tensor.state->lanes[0].state_touched = true;
  }
  MemberGroup* const last = group_;
  last->phase = MemberGroup::Phase::removing;
  tensors_.on_group_removed(*last);
  EXPECT_EQ(tensors_.forget_groups(TimeSlice(clock_, 0)), 1);
  ASSERT_EQ(last->tensors.size(), 1u) << "one is kept, and one is still to be";
  group_ = &add_group({1, 2});
  for (const char* name : {"a", "b"}) ASSERT_EQ(declare(1, name), Errc::ok);
  EXPECT_TRUE(last->tensors.empty());
  EXPECT_EQ(tensors_.forget_groups(TimeSlice(clock_, 1)), 1);
  EXPECT_EQ(counters_->state_resets, 0u);
  EXPECT_EQ(kept_.bytes(), 0u) << "all of it is in use again";
}

}  // namespace
}  // namespace tern::daemon::conductor_test
