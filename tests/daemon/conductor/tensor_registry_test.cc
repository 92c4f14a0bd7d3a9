#include "daemon/conductor/tensor_registry.h"

#include <sys/stat.h>

#include <fstream>
#include <latch>

#include "part_rig.h"
#include "tests/daemon/service/log_lines.h"
#include "tests/daemon/tuning/folder.h"

namespace tern::daemon::conductor_test {
namespace {

class TensorRegistryTest : public PartRig {
 protected:
  void SetUp() override {
    greet(connect(1));
    greet(connect(2));
    group_ = &add_group({1, 2});
    take_all();
  }
  void take_all() {
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) commands_of(lane);
  }
  shm::TensorDeclarePacket packet(const char* name) {
    auto made =
        shm::make_packet<shm::TensorDeclarePacket>(shm::PacketKind::tensor_declare, ++request_);
    made.group = group_->number;
    made.count = 1000;
    made.dtype = static_cast<std::uint8_t>(DType::f32);
    made.role = static_cast<std::uint8_t>(Role::gradient);
    std::strcpy(made.name, name);
    std::strcpy(made.recipe, "ef(3lc:s=1)");
    return made;
  }
  // What the client was told: ok, or the error.
  Errc declare(std::uint64_t client, const shm::TensorDeclarePacket& packet) {
    EXPECT_TRUE(tensors_.declare(*clients_.find(client), packet));
    const auto answer = answer_to(packet.header.request);
    EXPECT_TRUE(answer);
    if (answer->kind == shm::PacketKind::tensor_declared) return Errc::ok;
    text_ = answer->text;
    return answer->status;
  }
  Errc declare(std::uint64_t client, const char* name) { return declare(client, packet(name)); }
  void release(std::uint64_t client, std::uint64_t tensor) {
    auto made =
        shm::make_packet<shm::TensorReleasePacket>(shm::PacketKind::tensor_release, ++request_);
    made.group = group_->number;
    made.tensor = tensor;
    tensors_.release(clients_.at(client), made);
  }
  // Of the only tensor, which the first client has declared.
  void release_only() {
    const std::uint64_t id = only().state->id;
    release(1, id);
    const std::uint32_t last = only().releases;
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) tensors_.on_dropped(*group_, id, last);
    EXPECT_TRUE(group_->tensors.empty());
  }
  std::size_t drops_of(std::uint32_t lane) {
    std::size_t count = 0;
    for (const Command& command : commands_of(lane)) {
      count += std::holds_alternative<command::DropTensor>(command) ? 1 : 0;
    }
    return count;
  }
  const DeclaredTensor& only() const { return group_->tensors.all().begin()->second; }

  MemberGroup* group_ = nullptr;
  TensorRegistry tensors_{settings_, outlets_, {groups_, quotas_, kept_, refusals_, nullptr}};
  std::uint64_t request_ = 200;
  std::string text_;
};

TEST_F(TensorRegistryTest, LanesHearOfATensorOnce) {
  EXPECT_EQ(declare(1, "w"), Errc::ok);
  EXPECT_EQ(declare(2, "w"), Errc::ok);
  ASSERT_EQ(group_->tensors.size(), 1u);
  EXPECT_EQ(only().holders, 0b11u);
  EXPECT_TRUE(only().state->declared.lossy);
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    const auto taken = commands_of(lane);
    ASSERT_EQ(taken.size(), 1u);
    EXPECT_EQ(std::get<command::AddTensor>(taken[0]).tensor, only().state.get());
  }
}

TEST_F(TensorRegistryTest, RanksMustAgree) {
  ASSERT_EQ(declare(1, "w"), Errc::ok);
  auto other = packet("w");
  other.count = 999;
  EXPECT_EQ(declare(2, other), Errc::mismatch);
  EXPECT_EQ(
      text_,
      "w: rank 0 says 1000 f32 (gradient, recipe ef(3lc:s=1,scale=4096)), rank 1 says 999 f32 "
      "(gradient, recipe ef(3lc:s=1,scale=4096))");
  auto memory = packet("w");
  std::strcpy(memory.recipe, "none(3lc:s=1)");
  EXPECT_EQ(declare(2, memory), Errc::mismatch);
  auto sparser = packet("w");
  std::strcpy(sparser.recipe, "ef(3lc:s=1.5)");
  EXPECT_EQ(declare(2, sparser), Errc::ok);
}

TEST_F(TensorRegistryTest, MalformedPacketsAreRefused) {
  auto nameless = packet("");
  EXPECT_EQ(declare(1, nameless), Errc::invalid_argument);
  auto endless = packet("w");
  std::memset(endless.recipe, 'r', sizeof(endless.recipe));
  EXPECT_EQ(declare(1, endless), Errc::invalid_argument);
  auto level = packet("w");
  std::strcpy(level.level, "reckless");
  EXPECT_EQ(declare(1, level), Errc::invalid_argument);
  auto dtype = packet("w");
  dtype.dtype = 200;
  EXPECT_EQ(declare(1, dtype), Errc::invalid_argument);
  auto role = packet("w");
  role.role = 99;
  EXPECT_EQ(declare(1, role), Errc::invalid_argument);
  auto empty = packet("w");
  empty.count = 0;
  EXPECT_EQ(declare(1, empty), Errc::invalid_argument);
  auto recipe = packet("w");
  std::strcpy(recipe.recipe, "3lx");
  EXPECT_EQ(declare(1, recipe), Errc::bad_recipe);
  EXPECT_TRUE(group_->tensors.empty());
  EXPECT_EQ(counters_->declarations_refused, 7u);
}

TEST_F(TensorRegistryTest, StrangersToTheGroupAreRefused) {
  greet(connect(3));
  EXPECT_EQ(declare(3, "w"), Errc::unknown_group);
}

TEST_F(TensorRegistryTest, ANameIsDeclaredOnceByEachRankAtATime) {
  ASSERT_EQ(declare(1, "w"), Errc::ok);
  EXPECT_EQ(declare(1, "w"), Errc::already_exists);
}

TEST_F(TensorRegistryTest, ANameThatIsDeclaredAgainIsAnotherTensorWithTheSameOwners) {
  ASSERT_EQ(declare(1, "w"), Errc::ok);
  const std::uint64_t first = only().state->id;
  release(1, first);
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    EXPECT_EQ(drops_of(lane), 1u);
    tensors_.on_dropped(*group_, first, 1);
  }
  EXPECT_TRUE(group_->tensors.empty());
  ASSERT_EQ(declare(1, "w"), Errc::ok);
  EXPECT_NE(only().state->id, first);
  EXPECT_EQ(only().state->id & shm::kSpreadMask, first & shm::kSpreadMask);
}

TEST_F(TensorRegistryTest, TheLastHolderReleasesTheTensor) {
  ASSERT_EQ(declare(1, "w"), Errc::ok);
  ASSERT_EQ(declare(2, "w"), Errc::ok);
  take_all();
  tensors_.release_all(*group_, group_->ranks[0]);
  EXPECT_EQ(drops_of(0), 0u);
  tensors_.release_all(*group_, group_->ranks[1]);
  EXPECT_EQ(drops_of(0), 1u);
}

// Ranks of a node declare a name at different times: one may be done with it before the next comes.
TEST_F(TensorRegistryTest, ARankMayDeclareWhatTheOthersHaveJustReleased) {
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

TEST_F(TensorRegistryTest, ARankMustAgreeWithWhoHasJustReleased) {
  ASSERT_EQ(declare(1, "w"), Errc::ok);
  release(1, only().state->id);
  auto other = packet("w");
  other.count = 999;
  EXPECT_EQ(declare(2, other), Errc::mismatch);
  EXPECT_EQ(text_.find("w: a rank that has released it said 1000 f32"), 0u) << text_;
}

TEST_F(TensorRegistryTest, LimitsAreOfTensorsAndState) {
  settings_.limits.max_tensors_per_user = 1;
  ASSERT_EQ(declare(1, "w"), Errc::ok);
  EXPECT_EQ(declare(1, "v"), Errc::quota_exceeded);
  EXPECT_NE(text_.find("max_tensors_per_user = 1 tensors"), std::string::npos);
  EXPECT_EQ(declare(2, "v"), Errc::quota_exceeded);
  settings_.limits.max_tensors_per_user = 10;
  settings_.limits.max_state_bytes = 1;
  EXPECT_EQ(declare(2, "v"), Errc::quota_exceeded);
  EXPECT_NE(text_.find("max_state_bytes = 1"), std::string::npos);
  EXPECT_EQ(counters_->quota_refusals, 3u);
}

// The generation of each name is remembered, which takes memory that no other limit counts.
TEST_F(TensorRegistryTest, NamesThatWereReleasedCountForTheUserInAllGroups) {
  const auto declare_and_release = [this](const char* name) {
    const Errc declared = declare(1, name);
    if (declared == Errc::ok) release_only();
    return declared;
  };
  settings_.limits.max_tensors_per_user = 3;
  EXPECT_EQ(declare_and_release("a"), Errc::ok);
  EXPECT_EQ(declare_and_release("b"), Errc::ok);
  group_ = &add_group({1, 2});
  EXPECT_EQ(declare_and_release("c"), Errc::ok);
  EXPECT_EQ(declare_and_release("d"), Errc::quota_exceeded);
  EXPECT_EQ(text_,
            "this user's groups remember 3 names of tensors, released ones too, and may remember "
            "max_tensors_per_user = 3: declare names again that were released, or leave the group "
            "and join again");
  EXPECT_EQ(counters_->quota_refusals, 1u);
  EXPECT_EQ(declare_and_release("c"), Errc::ok) << "the group remembers it already";
  EXPECT_EQ(declare(2, "c"), Errc::ok) << "another rank's is the same name";
}

TEST_F(TensorRegistryTest, StateThatWasNotKeptIsAReset) {
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

TEST_F(TensorRegistryTest, ADeclarationAndAReleaseLookAtNoOtherTensor) {
  for (int i = 0; i < 20; ++i) ASSERT_EQ(declare(1, ("w" + std::to_string(i)).c_str()), Errc::ok);
  std::vector<std::uint64_t> ids;
  for (const auto& [id, tensor] : group_->tensors.all()) ids.push_back(id);
  const std::uint64_t walks = group_->tensors.walks();
  ASSERT_EQ(declare(1, "v"), Errc::ok);
  ASSERT_EQ(declare(2, "v"), Errc::ok);
  EXPECT_EQ(declare(2, "v"), Errc::already_exists);
  for (const std::uint64_t id : ids) {
    release(1, id);
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) tensors_.on_dropped(*group_, id, 1);
  }
  EXPECT_EQ(group_->tensors.size(), 1u);
  EXPECT_EQ(group_->tensors.walks(), walks);
}

TEST_F(TensorRegistryTest, CodecStateIsChargedUntilTheTensorIsDropped) {
  ASSERT_EQ(declare(1, "w"), Errc::ok);
  const std::uint64_t bytes = only().state->state_bytes(), id = only().state->id;
  settings_.limits.max_state_bytes = 2 * bytes;
  ASSERT_EQ(declare(1, "v"), Errc::ok);
  EXPECT_EQ(declare(1, "u"), Errc::quota_exceeded);
  release(1, id);
  EXPECT_EQ(declare(1, "u"), Errc::quota_exceeded);  // lanes may still use it
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) tensors_.on_dropped(*group_, id, 1);
  EXPECT_EQ(declare(1, "u"), Errc::ok);
}

// Its group's account pays, whoever declares: else a rank of another user would have no limit.
TEST_F(TensorRegistryTest, CodecStateOfAnotherUsersRankIsOfTheGroupsAccount) {
  ASSERT_EQ(declare(1, "w"), Errc::ok);
  settings_.limits.max_state_bytes = 2 * only().state->state_bytes();
  clients_.find(2)->credentials.uid = kBob;
  EXPECT_EQ(declare(2, "v"), Errc::ok);
  EXPECT_EQ(declare(2, "u"), Errc::quota_exceeded);
}

class ReplayedTensor : public TensorRegistryTest {
 protected:
  // Of this node.
  std::string log() const { return folder_.file("run-0.log"); }
  shm::TensorDeclarePacket declaration() {
    auto made = packet("w");
    std::strcpy(made.recipe, "replay:run");
    return made;
  }

  const tuning_test::Folder folder_;
  std::unique_ptr<Tuning> tuning_ = make_tuning();
  Disposal helpers_;
  TensorRegistry replaying_ = registry_with(tuning_.get());

 private:
  std::unique_ptr<Tuning> make_tuning() {
    TuningSettings tuning;
    tuning.choice_directory = folder_.path();
    return std::move(*Tuning::create(tuning, clock_, writing_));
  }
  TensorRegistry registry_with(Tuning* tuning) {
    return {settings_,
            {clock_, counters_, answers_, commands_, post_, disposal_, sealing_, helpers_, log_},
            {groups_, quotas_, kept_, refusals_, tuning}};
  }
};

// A log may be long, and its disk slow. This one is not there before somebody writes it.
TEST_F(ReplayedTensor, IsDeclaredWhenAHelperHasReadItsLog) {
  ASSERT_EQ(::mkfifo(log().c_str(), 0600), 0);
  Client& client = *clients_.find(1);
  const auto replayed = declaration();
  EXPECT_FALSE(replaying_.declare(client, replayed));
  EXPECT_FALSE(replaying_.declare(client, replayed)) << "still being read";
  EXPECT_FALSE(answer_to(replayed.header.request));
  EXPECT_TRUE(replaying_.declare(*clients_.find(2), packet("v"))) << "nobody else waits";
  std::ofstream(log()) << tuner::choice_log_head() << "op w 0 0 0 raw raw\n";
  client.reading->wait();
  EXPECT_TRUE(replaying_.declare(client, replayed));
  EXPECT_EQ(client.reading, nullptr);
  const auto answer = answer_to(replayed.header.request);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->kind, shm::PacketKind::tensor_declared) << answer->text;
}

// What was read for one declaration has the nodes and lanes of its group.
TEST_F(ReplayedTensor, GivesItsLogToNoOtherDeclaration) {
  ASSERT_EQ(::mkfifo(log().c_str(), 0600), 0);
  Client& client = *clients_.find(1);
  const auto replayed = declaration();
  ASSERT_FALSE(replaying_.declare(client, replayed));
  std::ofstream(log()) << tuner::choice_log_head() << "op w 0 0 0 raw raw\n";
  client.reading->wait();
  group_->ranks[0].phase = MemberRank::Phase::left;
  EXPECT_TRUE(replaying_.declare(client, replayed));
  EXPECT_EQ(answer_to(replayed.header.request)->status, Errc::unknown_group);
  EXPECT_EQ(client.reading, nullptr);

  MemberGroup& other = add_group({1});
  auto tuned = packet("v");
  tuned.group = other.number;
  std::strcpy(tuned.recipe, "auto");
  client.reading = std::make_shared<ReplayReading>(ReplayTerms{}, std::vector<std::string>{});
  EXPECT_TRUE(replaying_.declare(client, tuned));
  ASSERT_EQ(other.tensors.size(), 1u);
  EXPECT_TRUE(other.tensors.any().state->tuning->replay.empty());
}

TEST_F(ReplayedTensor, TakesMemoryThatItsUserPaysFor) {
  {
    std::ofstream file(log());
    file << tuner::choice_log_head();
    for (int use = 0; use < 1000; ++use) file << "op w " << use << " 0 0 raw raw\n";
  }
  Client& client = *clients_.find(1);
  const auto replayed = declaration();
  if (!replaying_.declare(client, replayed)) {
    client.reading->wait();
    EXPECT_TRUE(replaying_.declare(client, replayed));
  }
  ASSERT_EQ(group_->tensors.size(), 1u);
  const TensorState& state = *only().state;
  EXPECT_GE(state.state_bytes(), state.codec.bytes() + 1000 * sizeof(ReplayedLane::Op));
  settings_.limits.max_state_bytes = state.state_bytes() - 1;
  ASSERT_TRUE(replaying_.declare(*clients_.find(2), packet("v")));
  EXPECT_EQ(port_.told.back().status, Errc::quota_exceeded);
}

TEST_F(ReplayedTensor, IsRefusedAfterItsLogHasBeenReadInVain) {
  std::ofstream(log()) << "tern-choices 99\n";
  Client& client = *clients_.find(1);
  const auto replayed = declaration();
  if (!replaying_.declare(client, replayed)) {
    client.reading->wait();
    EXPECT_TRUE(replaying_.declare(client, replayed));
  }
  const auto answer = answer_to(replayed.header.request);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, Errc::bad_recipe);
  EXPECT_TRUE(group_->tensors.empty());
}

// Each is small, and all together would take the conductor long.
TEST_F(TensorRegistryTest, StatesOfAGroupThatEndsAreFreedByTheDisposalAndChargedMeanwhile) {
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

// The clock of a test stands still: a slice is over at once, or never.
TEST_F(TensorRegistryTest, OfAGroupThatEndsAsManyTensorsAreForgottenAsThereIsTimeFor) {
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

TEST_F(TensorRegistryTest, OfAGroupThatEndsAsManyNamesAreForgottenAsThereIsTimeFor) {
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

TEST_F(TensorRegistryTest, AJobThatIsBackGoesOnWithStateOfAGroupThatIsStillToBeForgotten) {
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

TEST_F(TensorRegistryTest, ANameThatWasReleasedMayBeDeclaredBeforeTheLanesHaveLetGo) {
  ASSERT_EQ(declare(1, "w"), Errc::ok);
  release(1, only().state->id);
  EXPECT_EQ(declare(1, "w"), Errc::ok);
  EXPECT_EQ(declare(1, "w"), Errc::already_exists);
  EXPECT_EQ(group_->tensors.named("w").size(), 2u);
}

TEST_F(TensorRegistryTest, StatisticsNeedADeclaredTensor) {
  auto asks = shm::make_packet<shm::TensorReleasePacket>(shm::PacketKind::tensor_stats, 900);
  asks.group = group_->number;
  tensors_.tell_stats(clients_.at(1), asks);
  EXPECT_EQ(answer_to(900)->status, Errc::unknown_tensor);
  ASSERT_EQ(declare(1, "w"), Errc::ok);
  asks.tensor = only().state->id;
  asks.header.request = 901;
  tensors_.tell_stats(clients_.at(1), asks);
  EXPECT_EQ(answer_to(901)->kind, shm::PacketKind::tensor_stats_reply);
}

}  // namespace
}  // namespace tern::daemon::conductor_test
