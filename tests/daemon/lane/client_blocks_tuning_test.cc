// Ops of tensors with client_blocks: the client has encoded what this node contributes, by what it
// was told with the op before.

#include "daemon/lane/shadow.h"
#include "op_tuning_rig.h"

namespace tern::daemon::op_tuning_test {
namespace {

// Of a tensor whose client encodes what this node contributes.
class ClientsOpTuning : public OpTuningTest, public testing::WithParamInterface<std::uint32_t> {
 protected:
  ClientsOpTuning() : OpTuningTest(GetParam()) {
    tensor->slots = shm::BlockSlots{6 * kChunk, kChunk, sizeof(float)};
  }
  bool leads() const { return GetParam() == 0; }
  std::uint32_t other() const { return leads() ? 1 : 0; }
  shm::EncodedBy next(OpId op) {
    const std::uint32_t packed = node.tuning.next_by_client(op);
    EXPECT_NE(packed, 0u);
    return shm::EncodedBy::of(packed);
  }
};
INSTANTIATE_TEST_SUITE_P(Nodes, ClientsOpTuning, testing::Values(0, 1));

TEST_P(ClientsOpTuning, ContributionsAreWhatTheClientHasMade) {
  publish(5, {.reduce = {kHalf, kHalf}, .broadcast = kHalf});
  const OpId op = begin_use(1, {kBits, 1});
  EXPECT_EQ(contribution(op, other()), by(kBits));
  EXPECT_EQ(contribution(op, 2, 2), by(kBits)) << "a probe is the client's, too";
  EXPECT_EQ(result(op), by(kHalf));
  publish(6, {.reduce = {kRaw, kRaw}, .broadcast = kHalf});
  EXPECT_EQ(contribution(op, other()), by(kBits));
  const TunedRecord record = described(op);
  EXPECT_EQ(record.choice, 5u);
  EXPECT_EQ(record.lead, kHalf);
  EXPECT_EQ(record.lead_contributions, kBits);
  EXPECT_FALSE(record.led);
  EXPECT_EQ(record.probe_chunks, 1u);
  EXPECT_FALSE(record.mixed);
}

// What the leading node says with an op is for all of the next one: no client can follow sooner.
TEST_P(ClientsOpTuning, TheNextOneIsSentAsTheLeadingNodeSaidWithTheLast) {
  publish(1, {.reduce = {kBits, kBits}, .broadcast = kHalf});
  OpId op = begin_use(1);
  wire::AnnounceBody body{};
  node.tuning.announce(op, body);
  EXPECT_EQ(body.lead, leads() ? kHalf + 1 : 0);
  EXPECT_EQ(body.lead_is_trial & 15u, leads() ? 2u : 4u) << "of the next op; or: made early";
  if (!leads()) {
    wire::AnnounceBody lead_body = lead(kHalf);
    lead_body.lead_is_trial = 2 | (kBits ^ kHalf) << 4;
    node.tuning.hear_lead(op, lead_body);
  }
  EXPECT_EQ(contribution(op, other()), by(kRaw)) << "the client had been told nothing";
  node.tuning.pass_on_lead(op);
  publish(2, {.reduce = {kRaw, kRaw}, .broadcast = kRaw, .probe_chunks = 2});
  EXPECT_EQ(next(op), (shm::EncodedBy{kBits, 2}));
  end(op);
  op = begin_use(2, {kBits, 0});
  node.tuning.announce(op, body);
  if (!leads()) {
    wire::AnnounceBody lead_body = lead(kRaw);
    lead_body.lead_is_trial = 2;
    node.tuning.hear_lead(op, lead_body);
  }
  EXPECT_EQ(contribution(op, other()), by(kBits));
  EXPECT_EQ(result(op), by(kHalf));
  EXPECT_TRUE(described(op).led);
  EXPECT_EQ(described(op).lead, kHalf);
  EXPECT_EQ(described(op).lead_contributions, kBits);
}

// An older leading node says what it sends this op by: the client follows one op later.
TEST_F(OpTuningOfAFollower, OfAClientFollowsAnOlderLeaderOneOpLate) {
  tensor->slots = shm::BlockSlots{6 * kChunk, kChunk, sizeof(float)};
  publish(1, {.reduce = {kHalf, kHalf}, .broadcast = kHalf});
  const OpId op = begin_use(1);
  node.tuning.hear_lead(op, lead(kBits));
  EXPECT_EQ(contribution(op, 0), by(kRaw));
  EXPECT_EQ(result(op), by(kBits));
  node.tuning.pass_on_lead(op);
  EXPECT_EQ(shm::EncodedBy::of(node.tuning.next_by_client(op)).recipe, kBits);
}

TEST_F(OpTuningOfAFollower, OfAClientGoesByItsOwnChoiceWhereItMayNotFollow) {
  tensor->slots = shm::BlockSlots{6 * kChunk, kChunk, sizeof(float)};
  publish(1, {.reduce = {kHalf, kHalf}, .broadcast = kBits});
  const OpId op = begin_use(1);
  node.tuning.hear_lead(op, lead(kForbidden));
  node.tuning.pass_on_lead(op);
  EXPECT_EQ(shm::EncodedBy::of(node.tuning.next_by_client(op)).recipe, kHalf);
}

TEST_F(OpTuningTest, OfElementsSaysNothingToTheClient) {
  publish(1, {.reduce = {kHalf, kHalf}, .broadcast = kHalf});
  EXPECT_EQ(node.tuning.next_by_client(begin_use(1)), 0u);
}

// The leading node has elements itself, and hears that another node's client cannot follow at once.
TEST_F(OpTuningTest, TheLeadingNodeSpeaksEarlyForTheClientsOfOthers) {
  publish(1, {.reduce = {kHalf, kHalf}, .broadcast = kHalf});
  OpId op = begin_use(1);
  wire::AnnounceBody body{};
  node.tuning.announce(op, body);
  EXPECT_EQ(body.lead_is_trial, 0u);
  wire::AnnounceBody early{};
  early.lead_is_trial = 4;
  node.tuning.hear_early(op, early);
  node.tuning.pass_on_lead(op);
  end(op);
  op = begin_use(2);
  publish(2, {.reduce = {kBits, kBits}, .broadcast = kBits});
  node.tuning.announce(op, body);
  EXPECT_EQ(body.lead, kBits + 1);
  EXPECT_EQ(body.lead_is_trial, 2u);
  node.tuning.pass_on_lead(op);
  end(op);
  op = begin_use(3);
  publish(3, {.reduce = {kRaw, kRaw}, .broadcast = kRaw});
  node.tuning.announce(op, body);
  EXPECT_EQ(contribution(op, 1), by(kBits)) << "to which it keeps itself";
}

// It need not have an encoder for every recipe: what it does not go by is given up.
TEST_P(ClientsOpTuning, WhatTheClientDoesNotGoByIsSaidAfterSomeOps) {
  publish(1, {.reduce = {kBits, kBits}, .broadcast = kBits});
  for (std::uint64_t use = 1; use < 7; ++use) {
    const OpId op = begin_use(use);
    node.tuning.settle(op);
    // The first one is encoded before anybody has said anything.
    const std::uint8_t expected = use == 5 ? std::uint8_t{kBits} : tuner::kNoCandidate;
    EXPECT_EQ(described(op).unheeded, expected) << use;
    EXPECT_EQ(next(op).recipe, kBits);
    end(op);
  }
}

TEST_P(ClientsOpTuning, AClientThatFollowsLateHeeds) {
  for (std::uint32_t version = 1; version < 20; ++version) {
    const tuner::CandidateIndex now = version / 2 % 2 == 0 ? kBits : kHalf;
    const tuner::CandidateIndex before = (version - 1) / 2 % 2 == 0 ? kBits : kHalf;
    publish(version, {.reduce = {now, now}, .broadcast = now});
    const OpId op = begin_use(version, {before, 0});
    node.tuning.settle(op);
    EXPECT_EQ(described(op).unheeded, tuner::kNoCandidate) << version;
    EXPECT_EQ(next(op).recipe, now);
    end(op);
  }
}

// No version of the choice says it: a client's look at the link, or one recipe for all peers.
TEST_P(ClientsOpTuning, ALogSaysWhatTheClientHasMade) {
  tensor->tuning->logged = true;
  publish(4, {.reduce = {kHalf, kBits}, .broadcast = kHalf});
  node.tuning.settle(begin_use(1, {kHalf, 1}));
  const auto events = node.events<event::ChoiceInUse>();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].choice.lead, kHalf);
  EXPECT_EQ(events[0].choice.lead_contributions, kHalf);
  EXPECT_EQ(events[0].choice.probe_chunks, 1u);
}

// ---- Samples

class ClientsSamples : public OpTuningTest {
 protected:
  ClientsSamples() {
    node.resources.shadow = &shadow;
    tensor->slots = shm::BlockSlots{6 * kChunk, kChunk, sizeof(float)};
  }
  std::uint64_t offered() const { return node.resources.counters->samples.load(); }

  Shadow shadow{recipes, 1, [] {}, &world.clock};
};

// When a contribution is sent, results of this node may lie where its own elements were.
TEST_F(ClientsSamples, AreOwnChunksBeforeAnybodyHasContributed) {
  const OpId op = begin_use(1);
  node.tuning.offer_contribution(op, 1);
  node.tuning.offer_whole(op);
  EXPECT_EQ(offered(), 0u);
  node.tuning.offer_grant(op, 1);
  EXPECT_EQ(offered(), 1u);
}

}  // namespace
}  // namespace tern::daemon::op_tuning_test
