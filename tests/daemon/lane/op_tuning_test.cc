#include "daemon/lane/op_tuning.h"

#include <gtest/gtest.h>

#include "daemon/lane/shadow.h"
#include "op_tuning_rig.h"

namespace tern::daemon::op_tuning_test {
namespace {

// Of ops whose contributions travel with their announcements.
class EagerOpTuning : public OpTuningTest, public testing::WithParamInterface<std::uint32_t> {
 protected:
  EagerOpTuning() : OpTuningTest(GetParam(), 6 * kChunk * sizeof(float)) {}
  bool leads() const { return GetParam() == 0; }
  // All nodes announce it; the leading one, if that is another, says so of the next one.
  void announce(OpId op, tuner::CandidateIndex next) {
    wire::AnnounceBody body{};
    node.tuning.announce(op, body);
    EXPECT_EQ(body.lead, leads() ? next + 1 : 0);
    if (!leads()) node.tuning.hear_lead(op, lead(next));
    node.tuning.pass_on_lead(op);
  }
  const codec::Recipe& block(OpId op) {
    return node.tuning.recipe(op, {0, Leg::reduce, (node.core.self() + 1) % 3});
  }
};
INSTANTIATE_TEST_SUITE_P(Nodes, EagerOpTuning, testing::Values(0, 1));

class EagerOpTuningOfTheLeader : public OpTuningTest {
 protected:
  EagerOpTuningOfTheLeader() : OpTuningTest(0, 6 * kChunk * sizeof(float)) {}
};

// ---- Choices

TEST_F(OpTuningTest, BlocksAreSentByTheChoiceForTheirReceiver) {
  publish(5, {.reduce = {kHalf, kBits}, .broadcast = kHalf});
  const OpId op = begin_use(1);
  EXPECT_EQ(contribution(op, 1), by(kHalf));
  EXPECT_EQ(contribution(op, 2), by(kBits));
  EXPECT_EQ(result(op), by(kHalf));
  EXPECT_EQ(described(op).choice, 5u);
  EXPECT_FALSE(described(op).mixed);
}

TEST_F(OpTuningTest, WithoutATunerItIsTheOpsOwnRecipe) {
  const OpId op = node.begin({.tensor = 6}, Node::by_recipe_of(*tensor));
  EXPECT_EQ(contribution(op, 1), tensor->declared.recipe);
  EXPECT_FALSE(node.tuning.describe(op));
}

TEST_F(OpTuningTest, ANewChoiceInTheMiddleOfAnOpIsFollowedAndSaid) {
  publish(5, {.reduce = {kHalf, kHalf}, .broadcast = kHalf});
  tensor->tuning->logged = true;
  const OpId op = begin_use(8);
  EXPECT_EQ(contribution(op, 1), by(kHalf));
  publish(6, {.reduce = {kHalf, kRaw}, .broadcast = kBits});
  EXPECT_EQ(contribution(op, 1), by(kHalf));  // the same for this one
  EXPECT_FALSE(described(op).mixed);
  EXPECT_EQ(contribution(op, 2, 5), by(kRaw));
  EXPECT_TRUE(described(op).mixed);
  EXPECT_EQ(described(op).choice, 5u);
  const auto events = node.events<event::ChunkChoice>();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].group, &node.group);
  EXPECT_EQ(events[0].tensor, 3u);
  EXPECT_EQ(events[0].use, 8u);
  EXPECT_EQ(events[0].chunk, 5u);
  EXPECT_EQ(events[0].leg, Leg::reduce);
  EXPECT_EQ(events[0].candidate, kRaw);
}

TEST_F(OpTuningTest, TheFirstContributionsOfAProbeAreRawAndResultsAreNot) {
  publish(1, {.reduce = {kHalf, kHalf}, .broadcast = kHalf, .probe_chunks = 1});
  const OpId op = begin_use(1);
  EXPECT_EQ(contribution(op, 1, 1), by(kRaw));  // the first of its owner
  EXPECT_EQ(contribution(op, 2, 2), by(kRaw));
  EXPECT_EQ(contribution(op, 1, 4), by(kHalf));
  EXPECT_EQ(result(op, 0), by(kHalf));
}

TEST_F(OpTuningTest, ALogIsReplayedOpByOpAndBlockByBlock) {
  ReplayedLane lane;
  lane.nodes = 3;
  lane.ops.push_back({.use = 2});
  lane.candidates = {kBits, kHalf, kRaw};
  lane.chunks.push_back({3, std::uint64_t{4} * 2, kBits});
  tensor->tuning->replay.push_back(lane);
  publish(5, {.reduce = {kBits, kBits}, .broadcast = kHalf});
  OpId op = begin_use(1);
  EXPECT_EQ(contribution(op, 1), by(kRaw));  // before its first line
  end(op);
  op = begin_use(3);
  node.tuning.hear_lead(op, lead(kHalf));
  EXPECT_EQ(contribution(op, 1, 4), by(kBits));
  EXPECT_EQ(contribution(op, 1, 1), by(kHalf));
  EXPECT_EQ(contribution(op, 2, 5), by(kRaw));
  EXPECT_EQ(result(op), by(kBits));
  EXPECT_EQ(described(op).lead, tuner::kNoCandidate);
  wire::AnnounceBody body{};
  node.tuning.announce(op, body);
  EXPECT_EQ(body.lead, 0u);  // nobody follows a log
}

TEST_F(OpTuningTest, AnOpIsCompressedIfAnyOfItsBlocksIs) {
  publish(1, {.reduce = {kRaw, kRaw}, .broadcast = kRaw});
  OpId op = begin_use(1);
  EXPECT_FALSE(node.tuning.compresses(op));
  end(op);
  publish(2, {.reduce = {kRaw, kHalf}, .broadcast = kRaw});
  op = begin_use(2);
  EXPECT_TRUE(node.tuning.compresses(op));
  LaneOp lossy = Node::by_recipe_of(*tensor);
  EXPECT_TRUE(node.tuning.compresses(node.begin({.tensor = 9}, lossy)));
  EXPECT_FALSE(node.tuning.compresses(node.begin({.tensor = 12})));
}

// ---- The leading node

TEST_F(OpTuningTest, TheLeadingNodeSaysWhatItSendsBy) {
  publish(1, {.reduce = {kBits, kBits}, .broadcast = kBits, .trial = true});
  const OpId op = begin_use(1);
  wire::AnnounceBody body{};
  node.tuning.announce(op, body);
  EXPECT_EQ(body.lead, kBits + 1);
  EXPECT_EQ(body.lead_is_trial, 1u);
  EXPECT_EQ(body.candidates, kList);
}

// What an older node takes for a trial; it sends both legs as the results are.
TEST_F(OpTuningTest, TheLeadingNodeSaysHowItsLegsDiffer) {
  publish(1, {.reduce = {kHalf, kHalf}, .broadcast = kBits});
  const OpId op = begin_use(1);
  wire::AnnounceBody body{};
  node.tuning.announce(op, body);
  EXPECT_EQ(body.lead, kBits + 1);
  EXPECT_EQ(body.lead_is_trial, (kHalf ^ kBits) << 4);
}

TEST_F(OpTuningOfAFollower, SendsEachLegAsTheLeadingNodeDoes) {
  publish(1, {.reduce = {kHalf, kHalf}, .broadcast = kRaw});
  OpId op = begin_use(1);
  wire::AnnounceBody body = lead(kBits);
  body.lead_is_trial = (kRaw ^ kBits) << 4;
  node.tuning.hear_lead(op, body);
  EXPECT_EQ(contribution(op, 0), by(kRaw));
  EXPECT_EQ(result(op), by(kBits));
  EXPECT_EQ(described(op).lead, kBits);
  EXPECT_EQ(described(op).lead_contributions, kRaw);
  EXPECT_FALSE(described(op).lead_is_trial);
  end(op);
  // Not by a recipe that it may not use.
  op = begin_use(2);
  body.lead_is_trial = (kForbidden ^ kBits) << 4;
  node.tuning.hear_lead(op, body);
  EXPECT_EQ(contribution(op, 0), by(kHalf));
}

TEST_F(OpTuningOfAFollower, SaysNothingOfItsChoice) {
  publish(1, {.reduce = {kHalf, kHalf}, .broadcast = kBits});
  const OpId op = begin_use(1);
  wire::AnnounceBody body{};
  node.tuning.announce(op, body);
  EXPECT_EQ(body.lead, 0u);
  EXPECT_EQ(body.candidates, 0u);
}

TEST_F(OpTuningOfAFollower, SendsBothLegsAsTheLeadingNodeDoes) {
  publish(1, {.reduce = {kHalf, kHalf}, .broadcast = kRaw});
  const OpId op = begin_use(1);
  node.tuning.hear_lead(op, lead(kBits));
  EXPECT_EQ(contribution(op, 0), by(kBits));
  EXPECT_EQ(contribution(op, 2), by(kBits));
  EXPECT_EQ(result(op), by(kBits));
  EXPECT_EQ(described(op).lead, kBits);
  // And keeps to it.
  publish(2, {.reduce = {kRaw, kRaw}, .broadcast = kRaw});
  EXPECT_EQ(contribution(op, 2), by(kBits));
  EXPECT_FALSE(described(op).mixed);
}

// It is sent before the leading node's announcement of it can have come.
TEST_P(EagerOpTuning, IsSentAsTheLeadingNodeSaidWithTheLastOne) {
  publish(1, {.reduce = {kHalf, kHalf}, .broadcast = kHalf});
  OpId op = begin_use(1);
  EXPECT_EQ(block(op), by(kHalf)) << "nobody has said anything yet";
  EXPECT_EQ(described(op).lead, tuner::kNoCandidate);
  // Chosen for the next one, while this one is under way.
  publish(2, {.reduce = {kBits, kBits}, .broadcast = kBits});
  announce(op, kBits);
  end(op);
  publish(3, {.reduce = {kRaw, kRaw}, .broadcast = kRaw});
  op = begin_use(2);
  EXPECT_EQ(block(op), by(kBits));
  EXPECT_EQ(described(op).lead, kBits);
  announce(op, kRaw);
  EXPECT_EQ(described(op).lead, kBits) << "as this one was sent";
  end(op);
  op = begin_use(3);
  EXPECT_EQ(block(op), by(kRaw));
}

// Where each owner's chunk is encoded before its announcement is sent, time goes by between two.
TEST_F(EagerOpTuningOfTheLeader, TellsAllNodesTheSameWhateverIsChosenMeanwhile) {
  publish(1, {.reduce = {kHalf, kHalf}, .broadcast = kHalf});
  const OpId op = begin_use(1);
  for (std::uint32_t version = 2; version < 4; ++version) {
    wire::AnnounceBody body{};
    node.tuning.announce(op, body);
    EXPECT_EQ(body.lead, kHalf + 1);
    publish(version, {.reduce = {kBits, kBits}, .broadcast = kBits});
  }
}

TEST_P(EagerOpTuning, OthersHaveSentItAlikeIfTheirBlocksAre) {
  publish(1, {.reduce = {kBits, kBits}, .broadcast = kRaw});
  const OpId op = begin_use(1);
  block(op);
  wire::BlockHeader header;
  header.codec = static_cast<std::uint8_t>(wire::CodecId::staged);
  header.stages.quantizer = static_cast<std::uint8_t>(wire::QuantizerId::integer);
  header.stages.bits = 4;
  node.tuning.compare(op, header);
  EXPECT_TRUE(described(op).alike);
  node.tuning.compare(op, wire::BlockHeader{});
  EXPECT_FALSE(described(op).alike);
}

TEST_F(OpTuningOfAFollower, HearsOfALeadBeforeItsOwnSubmission) {
  publish(1, {.reduce = {kHalf, kHalf}, .broadcast = kHalf});
  const OpId op = begin_use(1);
  node.tuning.forget(op);
  node.tuning.hear_lead(op, lead(kBits));
  node.tuning.begin(op);
  EXPECT_EQ(result(op), by(kBits));
}

TEST_F(OpTuningOfAFollower, DoesNotFollowALeadThatItCannot) {
  publish(1, {.reduce = {kHalf, kHalf}, .broadcast = kHalf});
  std::uint64_t use = 1;
  for (const wire::AnnounceBody& body :
       {lead(kBits, kList + 1), lead(kForbidden), lead(200), wire::AnnounceBody{}}) {
    const OpId op = begin_use(use++);
    node.tuning.hear_lead(op, body);
    EXPECT_EQ(contribution(op, 0), by(kHalf)) << use;
    EXPECT_EQ(result(op), by(kHalf)) << use;
    EXPECT_EQ(described(op).lead, tuner::kNoCandidate) << use;
    end(op);
  }
}

TEST_F(OpTuningOfAFollower, LogsAChoiceWhenItChanges) {
  tensor->tuning->logged = true;
  publish(4, {.reduce = {kHalf, kHalf}, .broadcast = kHalf, .probe_chunks = 1});
  const auto settle_use = [&](std::uint64_t use, const wire::AnnounceBody& body) {
    const OpId op = begin_use(use);
    node.tuning.hear_lead(op, body);
    node.tuning.settle(op);
    node.tuning.settle(op);  // once
    end(op);
    return node.events<event::ChoiceInUse>();
  };
  auto events = settle_use(1, {});
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].use, 1u);
  EXPECT_EQ(events[0].choice.version, 4u);
  EXPECT_EQ(events[0].choice.lead, ChoiceUsed::kVersion);
  EXPECT_TRUE(settle_use(2, {}).empty());
  EXPECT_TRUE(settle_use(3, lead(kHalf)).empty());  // the same as here
  events = settle_use(4, lead(kBits));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].use, 4u);
  EXPECT_EQ(events[0].choice.lead, kBits);
  EXPECT_EQ(events[0].choice.probe_chunks, 1u);
  EXPECT_TRUE(settle_use(5, lead(kBits)).empty());
  EXPECT_EQ(settle_use(7, lead(kBits)).size(), 1u);  // not the next one
}

TEST_F(OpTuningTest, NoticesResultsThatWereMadeOtherwise) {
  publish(1, {.reduce = {kHalf, kHalf}, .broadcast = kHalf});
  const OpId op = begin_use(1);
  wire::BlockHeader header;
  header.codec = static_cast<std::uint8_t>(wire::CodecId::bf16);
  node.tuning.compare(op, header);
  EXPECT_TRUE(described(op).alike);
  header.codec = static_cast<std::uint8_t>(wire::CodecId::raw);
  header.flags = wire::kBlockNonfiniteRaw;  // it could not be made as here
  node.tuning.compare(op, header);
  EXPECT_TRUE(described(op).alike);
  header.flags = 0;
  node.tuning.compare(op, header);
  EXPECT_FALSE(described(op).alike);
  header.codec = static_cast<std::uint8_t>(wire::CodecId::bf16);
  node.tuning.compare(op, header);
  EXPECT_FALSE(described(op).alike);
}

// ---- Samples

class OpTuningSamples : public OpTuningTest {
 protected:
  OpTuningSamples() { node.resources.shadow = &shadow; }
  std::uint64_t offered() const { return node.resources.counters->samples.load(); }
  // Of what the shadow measured since the last call, which tensor it was.
  std::vector<std::uint64_t> measured() {
    shadow.do_work();
    std::vector<std::uint64_t> tensors;
    for (ShadowResult result; shadow.pop(result);) tensors.push_back(result.tensor);
    return tensors;
  }

  Shadow shadow{recipes, 1, [] {}, &world.clock};
};

TEST_F(OpTuningSamples, AreTakenOnceForEachTimeThatOneIsWanted) {
  const OpId op = begin_use(1);
  node.give(op, ramp(6 * kChunk, 1, 0.5f));
  node.tuning.offer_contribution(op, 1);
  EXPECT_EQ(offered(), 1u);
  EXPECT_FALSE(tensor->tuning->sample_wanted.load());
  const auto tensors = measured();
  ASSERT_FALSE(tensors.empty());
  EXPECT_EQ(tensors.front(), kTensorNumber);
  node.tuning.offer_contribution(op, 2);
  EXPECT_EQ(offered(), 1u);
  tensor->tuning->sample_wanted.store(true);
  node.tuning.offer_whole(op);
  EXPECT_EQ(offered(), 2u);
}

// Whose blocks are mostly headers.
TEST_F(OpTuningSamples, AreNotOfTheFewElementsOfALastChunk) {
  const Spec spec{.tensor = 3, .count = 4 * kChunk + 4, .use = 1};
  LaneOp lane_op = Node::by_recipe_of(*tensor);
  lane_op.encoding.tuning = tensor->tuning.get();
  const OpId op = node.begin(spec, lane_op);
  node.tuning.offer_contribution(op, 4);
  EXPECT_EQ(offered(), 0u);
  EXPECT_TRUE(tensor->tuning->sample_wanted.load());
  node.tuning.offer_contribution(op, 2);
  EXPECT_EQ(offered(), 1u);
}

TEST_F(OpTuningSamples, WaitWhileTheShadowIsFull) {
  const OpId op = begin_use(1);
  node.tuning.offer_contribution(op, 1);
  tensor->tuning->sample_wanted.store(true);
  node.tuning.offer_contribution(op, 2);
  EXPECT_EQ(offered(), 1u);
  EXPECT_TRUE(tensor->tuning->sample_wanted.load());
  shadow.do_work();
  node.tuning.offer_contribution(op, 2);
  EXPECT_EQ(offered(), 2u);
}

TEST_F(OpTuningSamples, AreNotTakenWhereNobodyMeasures) {
  node.resources.shadow = nullptr;
  const OpId op = begin_use(1);
  node.tuning.offer_contribution(op, 1);
  node.tuning.offer_whole(op);
  EXPECT_EQ(offered(), 0u);
  EXPECT_TRUE(tensor->tuning->sample_wanted.load());
}

TEST_F(OpTuningSamples, AGrantOffersOneOnlyWhereNothingIsContributed) {
  const OpId op = begin_use(1);
  node.tuning.offer_grant(op, 0);
  EXPECT_EQ(offered(), 0u);
  // Of one chunk, which is this node's.
  const Spec spec{.tensor = 6, .count = 10};
  LaneOp lane_op = Node::by_recipe_of(*tensor);
  lane_op.encoding.tuning = tensor->tuning.get();
  node.tuning.offer_grant(node.begin(spec, lane_op), 0);
  EXPECT_EQ(offered(), 1u);
}

}  // namespace
}  // namespace tern::daemon::op_tuning_test
