#include "daemon/conductor/tensor_registry.h"

#include <sys/stat.h>

#include <fstream>

#include "tensor_registry_rig.h"
#include "tests/daemon/tuning/folder.h"

namespace tern::daemon::conductor_test {
namespace {

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
