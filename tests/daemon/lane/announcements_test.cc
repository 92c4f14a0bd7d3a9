#include "daemon/lane/announcements.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "announcing_rig.h"
#include "lane_rig.h"

namespace tern::daemon::announcements_test {
namespace {

using group_test::ramp;
using group_test::raw_block;

// ---- Of ops whose values do not fit

TEST_F(AnnouncementsTest, AnOpThatIsTooLargeIsAnnouncedWithoutValues) {
  const Spec spec{.tensor = 2, .count = 4 * kChunk, .use = 3};
  const OpId op = announce(0, spec, ramp(spec.count, 1, 1));
  const auto all = heard(1);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].header.tensor, 2u);
  EXPECT_EQ(all[0].header.op_seq, 3u);
  EXPECT_EQ(all[0].body.count, spec.count);
  EXPECT_EQ(all[0].body.kind, static_cast<std::uint16_t>(shm::OpKind::all_reduce));
  EXPECT_EQ(all[0].body.rank, 0u);
  EXPECT_EQ(all[0].body.flags, 0u);
  EXPECT_TRUE(all[0].values.empty());
  EXPECT_EQ(lane_op(op).bytes_sent, 0u);
  node(0).hear(1, spec);
  EXPECT_TRUE(node(0).core.op(op).has_started()) << "the action is done";
}

TEST_F(AnnouncementsTest, FlagsOfAnotherNodeAreNotRepeated) {
  const Spec spec{.count = 4 * kChunk, .flags = wire::kAnnounceDeclines};
  announce(0, spec, ramp(spec.count, 1, 1));
  ASSERT_EQ(heard(1).size(), 1u);
  EXPECT_EQ(heard(1)[0].body.flags, 0u);
}

TEST_F(AnnouncementsTest, StreamsThatWereLostAreSaidOnce) {
  const Spec spec{.count = 4 * kChunk};
  const auto tensor = node(0).declare(spec, "raw");
  tensor->lanes[0].streams.lost = true;
  announce(0, spec, ramp(spec.count, 1, 1), Node::by_recipe_of(*tensor));
  announce(0, {.tensor = 4, .count = spec.count}, ramp(spec.count, 1, 1),
           Node::by_recipe_of(*tensor));
  const auto all = heard(1);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].body.restart_streams, 1u);
  EXPECT_EQ(all[1].body.restart_streams, 0u);
}

// ---- Of ops whose elements travel with them

TEST_F(AnnouncementsTest, ElementsTravelWithTheAnnouncement) {
  const Spec spec{.count = kFew};
  const auto values = ramp(kFew, 1, 0.5f);
  const OpId op = announce(0, spec, values);
  const auto all = heard(1);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].values, bytes_of(values));
  EXPECT_EQ(all[0].body.flags, 0u);
  EXPECT_EQ(lane_op(op).bytes_raw, kFew * sizeof(float));
  EXPECT_EQ(lane_op(op).bytes_sent, kFew * sizeof(float));
  EXPECT_EQ(node(0).resources.counters->blocks.load(), 1u);
  EXPECT_EQ(node(0).resources.counters->block_bytes.load(),
            sizeof(wire::AnnounceBody) + kFew * sizeof(float));
  EXPECT_TRUE(announcements().values().kept(op, 0).empty()) << "they are read in the input";
}

TEST_F(AnnouncementsTest, AllNodesMakeTheResultOfWhatHasCome) {
  const Spec spec{.count = kFew};
  const std::vector<OpId> ops{announce(0, spec, ramp(kFew, 1, 0.5f)),
                              announce(1, spec, ramp(kFew, 10, 2))};
  for (std::uint32_t self = 0; self < 2; ++self) {
    take_heard(self, spec);
    EXPECT_EQ(at[self]->room_for(1 - self), kRoom - 1);
    reduce(self);
    EXPECT_EQ(node(self).got(ops[self]), ramp(kFew, 11, 2.5f)) << self;
    at[self]->complete(ops[self]);
    EXPECT_EQ(at[self]->room_for(1 - self), kRoom);
    node(self).expect_all_memory_is_free();
  }
}

// What a node's own ranks have is made once, and kept for the result.
class WithTwoRanksOnANode : public AnnouncementsTest {
 protected:
  WithTwoRanksOnANode() : AnnouncementsTest({.ranks = {{0, 1}, {2}}, .eager_bytes = kEager}) {}
};

TEST_F(WithTwoRanksOnANode, TheSumOfItsRanksTravels) {
  const Spec spec{.count = kFew};
  const OpId op = node(0).enter(spec);
  node(0).give(op, ramp(kFew, 1, 1), 0);
  node(0).give(op, ramp(kFew, 2, 0), 1);
  at[0]->announce();
  settle();
  const auto all = heard(1);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].values, bytes_of(ramp(kFew, 3, 1)));
  EXPECT_EQ(bytes_of(announcements().values().kept(op, 0)), all[0].values);
  EXPECT_FALSE(announcements().values().keeps_block(op, 0));
  announcements().release(op);
  EXPECT_TRUE(announcements().values().kept(op, 0).empty());
}

// As many as the node has places for, and more.
TEST_F(WithTwoRanksOnANode, TheNodesOwnPlacesComeBackWithTheirOps) {
  for (std::uint64_t use = 1; use <= std::uint64_t{2} * kRoom; ++use) {
    const Spec spec{.count = kFew, .use = use};
    const OpId op = node(0).enter(spec);
    at[0]->announce();
    ASSERT_FALSE(announcements().values().kept(op, 0).empty());
    EXPECT_TRUE(at[0]->arrive(1, spec, group_test::announcement(spec, 2), Bytes(kFew * 4)));
    reduce(0);
    at[0]->complete(op);
  }
}

TEST_F(WithTwoRanksOnANode, WhatMovesGoesToEachNodeThatGetsIt) {
  // Of nine elements each rank has three, which go to all. The rig's inputs have room for nine.
  const Spec spec{.count = 9, .kind = shm::OpKind::all_gather};
  const OpId op = node(0).enter(spec);
  node(0).give(op, std::vector<float>{1, 2, 3, 0, 0, 0, 0, 0, 0}, 0);
  node(0).give(op, std::vector<float>{4, 5, 6, 0, 0, 0, 0, 0, 0}, 1);
  at[0]->announce();
  settle();
  ASSERT_EQ(heard(1).size(), 1u);
  EXPECT_EQ(heard(1)[0].values, bytes_of(ramp(6, 1, 1)));
  EXPECT_TRUE(announcements().values().kept(op, 0).empty());
  EXPECT_TRUE(at[0]->arrive(1, spec, group_test::announcement(spec, 2), bytes_of(ramp(3, 7, 1))));
  reduce(0);
  EXPECT_EQ(node(0).got(op, 0), ramp(9, 1, 1));
  EXPECT_EQ(node(0).got(op, 1), ramp(9, 1, 1));
}

// ---- Of ops that bring a block

class WithBlocks : public AnnouncementsTest {
 protected:
  WithBlocks()
      : AnnouncementsTest(
            {.ranks = {{0}, {1}}, .eager_bytes = kEager, .eager_form = EagerForm::blocks}) {}

  // The first node knows what a block is that comes from the other, and makes the result.
  OpId reduce_with(const Bytes& block) {
    const OpId op = announce(0, spec, ramp(kFew, 1, 0.37f));
    auto body = group_test::announcement(spec, 1);
    body.flags = wire::kAnnounceBlock;
    EXPECT_TRUE(at[0]->arrive(1, spec, body, block));
    reduce(0);
    return op;
  }

  const Spec spec{.count = kFew, .role = Role::gradient};
};

TEST_F(WithBlocks, ARecipeMakesABlockOfIt) {
  const auto tensor = node(0).declare(spec, "bf16");
  const auto values = ramp(kFew, 1, 0.37f);
  const OpId op = announce(0, spec, values, Node::by_recipe_of(*tensor));
  const auto all = heard(1);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].body.flags, wire::kAnnounceBlock);
  EXPECT_EQ(all[0].values, group_test::lossy_block("bf16", values));
  EXPECT_EQ(lane_op(op).bytes_raw, kFew * sizeof(float));
  EXPECT_EQ(lane_op(op).bytes_sent, all[0].values.size());
  EXPECT_TRUE(at[0]->upkeep.has_saved(op)) << "so that it can be taken back";
  EXPECT_TRUE(announcements().values().keeps_block(op, 0));
  EXPECT_EQ(bytes_of(announcements().values().kept(op, 0)), all[0].values)
      << "this node adds what the others add";
}

TEST_F(WithBlocks, AllNodesMakeTheSameResultOfBlocks) {
  const std::vector<float> values[] = {ramp(kFew, 1, 0.37f), ramp(kFew, 3, 0.11f)};
  std::vector<std::unique_ptr<TensorState>> tensors;
  std::vector<OpId> ops;
  std::vector<float> expected(kFew);
  for (std::uint32_t self = 0; self < 2; ++self) {
    tensors.push_back(node(self).declare(spec, "bf16"));
    ops.push_back(announce(self, spec, values[self], Node::by_recipe_of(*tensors.back())));
    const auto rounded = group_test::decoded(group_test::lossy_block("bf16", values[self]), kFew);
    std::transform(expected.begin(), expected.end(), rounded.begin(), expected.begin(),
                   std::plus<>());
  }
  for (std::uint32_t self = 0; self < 2; ++self) {
    take_heard(self, spec);
    reduce(self);
    EXPECT_EQ(node(self).got(ops[self]), expected) << self;
    at[self]->complete(ops[self]);
    EXPECT_EQ(at[self]->room_for(1 - self), kRoom);
  }
}

TEST_F(WithBlocks, WithoutARecipeElementsTravelAsTheyAre) {
  const auto values = ramp(kFew, 1, 0.37f);
  const OpId op = announce(0, spec, values);
  ASSERT_EQ(heard(1).size(), 1u);
  EXPECT_EQ(heard(1)[0].body.flags, 0u);
  EXPECT_EQ(heard(1)[0].values, bytes_of(values));
  EXPECT_FALSE(at[0]->upkeep.has_saved(op));
}

TEST_F(WithBlocks, ABlockThatMakesNoSenseFailsTheOpAndIsCounted) {
  const OpId op = reduce_with(raw_block(DType::f32, ramp(kFew - 1, 1, 1)));
  const collective::Op& about = node(0).core.op(op);
  EXPECT_TRUE(about.failed());
  EXPECT_EQ(about.status, Errc::corrupt_data);
  EXPECT_STREQ(about.text,
               "what node 1 contributes with its announcement: the block's sizes differ from the "
               "chunk's");
  EXPECT_EQ(node(0).resources.counters->bad_blocks.load(), 1u);
  node(0).core.ops().done(at[0]->next(ActionKind::fail_remote));
  at[0]->complete(op);
  EXPECT_EQ(at[0]->room_for(1), kRoom);
  node(0).expect_all_memory_is_free();
}

TEST_F(WithBlocks, ABlockThatMakesSenseFailsNothing) {
  const OpId op = reduce_with(raw_block(DType::f32, ramp(kFew, 1, 1)));
  EXPECT_FALSE(node(0).core.op(op).failed()) << node(0).core.op(op).text;
  EXPECT_EQ(node(0).resources.counters->bad_blocks.load(), 0u);
  EXPECT_EQ(node(0).got(op)[0], 2.0f);
}

// ---- To each owner its chunk

class WithChunks : public AnnouncementsTest {
 protected:
  WithChunks()
      : AnnouncementsTest(
            {.ranks = {{0}, {1}, {2}}, .eager_bytes = kEager, .eager_form = EagerForm::chunks}) {}

  // The elements of the one chunk that the node owns.
  std::vector<float> owned_by(std::uint32_t owner, OpId op, const std::vector<float>& values) {
    const collective::ChunkMap& chunks = node(0).core.op(op).chunks;
    EXPECT_EQ(chunks.owned(owner), 1u);
    const std::uint32_t number = chunks.chunk(owner, 0);
    return slice(values, chunks.begin(number), chunks.size(number));
  }
};

TEST_F(WithChunks, EachOwnerHearsOfItsChunkAlone) {
  const Spec spec{.count = 3 * kChunk - 8};
  const auto values = ramp(spec.count, 1, 1);
  const OpId op = announce(0, spec, values);
  std::uint64_t elements = 0, sent = 0;
  for (const std::uint32_t owner : {1u, 2u}) {
    const auto all = heard(owner);
    ASSERT_EQ(all.size(), 1u) << owner;
    const auto chunk = owned_by(owner, op, values);
    EXPECT_EQ(all[0].body.flags, wire::kAnnounceBlock);
    EXPECT_EQ(all[0].values, raw_block(DType::f32, chunk)) << owner;
    EXPECT_EQ(node(0).core.peer(owner).work.sent_bytes, chunk.size() * sizeof(float));
    elements += chunk.size();
    sent += all[0].values.size();
  }
  EXPECT_EQ(lane_op(op).bytes_raw, elements * sizeof(float));
  EXPECT_EQ(lane_op(op).bytes_sent, sent);
  EXPECT_TRUE(announcements().values().kept(op, 0).empty()) << "what is sent is copied";
}

TEST_F(WithChunks, ARecipeMakesABlockOfEachChunk) {
  const Spec spec{.count = 3 * kChunk};
  const auto tensor = node(0).declare(spec, "bf16");
  const auto values = ramp(spec.count, 1, 0.37f);
  const OpId op = announce(0, spec, values, Node::by_recipe_of(*tensor));
  for (const std::uint32_t owner : {1u, 2u}) {
    ASSERT_EQ(heard(owner).size(), 1u) << owner;
    EXPECT_EQ(heard(owner)[0].values, group_test::lossy_block("bf16", owned_by(owner, op, values)));
  }
  EXPECT_TRUE(at[0]->upkeep.has_saved(op));
}

// Of two chunks, which are this node's and node 2's.
TEST_F(WithChunks, WhoOwnsNothingHearsThatTheOpIsThere) {
  const Spec spec{.tensor = 2, .count = kChunk + 1};
  const OpId op = announce(0, spec, ramp(spec.count, 1, 1));
  ASSERT_EQ(node(0).core.op(op).chunks.owned(1), 0u);
  ASSERT_EQ(heard(1).size(), 1u);
  EXPECT_TRUE(heard(1)[0].values.empty());
  EXPECT_EQ(heard(1)[0].body.flags, 0u);
  EXPECT_EQ(heard(1)[0].body.count, spec.count);
  ASSERT_EQ(heard(2).size(), 1u);
  EXPECT_FALSE(heard(2)[0].values.empty());
  EXPECT_EQ(heard(2)[0].body.flags, wire::kAnnounceBlock);
}

TEST_F(WithChunks, ItBeginsWhenTheLastNodeHasAnnouncedIt) {
  const Spec spec{.count = 3 * kChunk};
  const OpId op = announce(0, spec, ramp(spec.count, 1, 1));
  EXPECT_EQ(lane_op(op).started_ns, 0u);
  for (const std::uint32_t other : {1u, 2u}) {
    announce(other, spec, ramp(spec.count, 1, 1));
    EXPECT_EQ(lane_op(op).started_ns, 0u);
    world.clock.advance_ns(1);
    auto all = heard(0);
    ASSERT_EQ(all.size(), other);
    EXPECT_TRUE(at[0]->arrive(other, spec, all.back().body, all.back().values));
    EXPECT_TRUE(announcements().values().keeps_block(op, other));
  }
  EXPECT_EQ(lane_op(op).started_ns, world.clock.now_ns());
}

TEST_F(WithChunks, ItBeginsWithItsOwnAnnouncementWhereThatIsTheLast) {
  const Spec spec{.count = 3 * kChunk};
  for (const std::uint32_t other : {1u, 2u}) announce(other, spec, ramp(spec.count, 1, 1));
  take_heard(0, spec);
  const OpId op = announce(0, spec, ramp(spec.count, 1, 1));
  EXPECT_EQ(lane_op(op).started_ns, world.clock.now_ns());
}

TEST_F(WithChunks, ANodeThatIsLostIsPassedOver) {
  node(0).core.peer(2).link->say_goodbye();
  ASSERT_TRUE(node(0).core.peer(2).is_lost());
  announce(0, {.count = 3 * kChunk}, ramp(3 * kChunk, 1, 1));
  EXPECT_EQ(heard(1).size(), 1u);
  EXPECT_EQ(heard(2).size(), 0u);
}

TEST_F(WithChunks, ManyOpsOneAfterTheOtherLeaveAllPlacesFree) {
  for (std::uint64_t use = 1; use <= std::uint64_t{2} * kRoom; ++use) {
    const Spec spec{.count = 3 * kChunk, .use = use};
    const OpId op = announce(0, spec, ramp(spec.count, 1, 1));
    node(0).core.ops().fail(op, {Errc::cancelled, 0, "enough"});
    node(0).core.ops().done(at[0]->next(ActionKind::fail_remote));
    at[0]->complete(op);
  }
  node(0).expect_all_memory_is_free();
}

// ---- Values that come

TEST_F(AnnouncementsTest, MoreBytesThanAnAnnouncementBringsAreABreach) {
  net::PayloadPlace place;
  EXPECT_TRUE(at[0]->place_for(1, 0, place));
  EXPECT_TRUE(place.body.empty());
  EXPECT_TRUE(std::holds_alternative<std::monostate>(node(0).core.peer(1).receiving.fills));
  EXPECT_FALSE(at[0]->place_for(1, kEager + 1, place));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(node(0).core.peer(1).receiving.fills));
  EXPECT_TRUE(at[0]->place_for(1, kEager, place));
  EXPECT_EQ(place.body.size(), kEager);
  announcements().abandoned(1, std::get<filling::EagerSlab>(node(0).core.peer(1).receiving.fills));
  EXPECT_EQ(at[0]->room_for(1), kRoom);
}

TEST_F(AnnouncementsTest, MoreValuesThanOpsCanBeInFlightAreABreach) {
  std::vector<filling::EagerSlab> filled;
  net::PayloadPlace place;
  for (int i = 0; i < kRoom; ++i) {
    ASSERT_TRUE(at[0]->place_for(1, 4, place)) << i;
    filled.push_back(std::get<filling::EagerSlab>(node(0).core.peer(1).receiving.fills));
  }
  EXPECT_FALSE(at[0]->place_for(1, 4, place));
  announcements().abandoned(1, filled.back());
  EXPECT_TRUE(at[0]->place_for(1, 4, place));
}

TEST_F(AnnouncementsTest, ValuesThatNobodyWantsAreThrownAway) {
  const Spec spec{.count = kFew};
  const OpId op = node(0).enter(spec);
  node(0).core.ops().fail(op, {Errc::cancelled, 0, "enough"});
  EXPECT_TRUE(at[0]->arrive(1, spec, group_test::announcement(spec, 1), Bytes(kFew * 4)));
  EXPECT_TRUE(announcements().values().kept(op, 1).empty());
  EXPECT_EQ(at[0]->room_for(1), kRoom);
}

TEST_F(AnnouncementsTest, ValuesThatComeBeforeTheOpIsSubmittedAreKept) {
  const Spec spec{.count = kFew};
  EXPECT_TRUE(
      at[0]->arrive(1, spec, group_test::announcement(spec, 1), bytes_of(ramp(kFew, 10, 1))));
  const OpId op = announce(0, spec, ramp(kFew, 1, 1));
  reduce(0);
  EXPECT_EQ(node(0).got(op), ramp(kFew, 11, 2));
}

// ---- Memory that is not there

TEST_F(AnnouncementsTest, AnInputWithALostPageGoesNowhere) {
  lane_test::TestClient client(0);  // as the group's setup calls the rank's
  node(0).resources.clients.add(client.memory);
  at[0]->clients.attach(node(0).resources.clients);
  const OpId op = node(0).enter({.count = kFew});
  lane_test::take_first_page(client);  // nobody has read it
  const auto arena = client.memory.segment.arena();
  const Region region{arena.data(), arena.size()};
  node(0).change_rank(op, [&](OpRank& rank) { rank.input = {&region, 0, kFew * sizeof(float)}; });
  at[0]->announce();
  settle();
  EXPECT_TRUE(heard(1).empty());
  EXPECT_EQ(node(0).core.op(op).status, Errc::rank_lost);
}

}  // namespace
}  // namespace tern::daemon::announcements_test
