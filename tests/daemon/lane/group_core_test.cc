#include "daemon/lane/group_core.h"

#include <gtest/gtest.h>

#include <cstring>

#include "group_rig.h"

namespace tern::daemon::group_core_test {
namespace {

using collective::ActionKind;
using collective::OpId;
using group_test::AllNodes;
using wire::FrameKind;

class GroupCoreTest : public AllNodes {
 protected:
  GroupCoreTest() : AllNodes({.ranks = {{0}, {1}, {2}}}) {}

  GroupCore& core() { return node(0).core; }
  FrameMemory& memory() { return node(0).resources.memory; }
  // A frame whose body is a slab that so many receivers have to acknowledge.
  BlockFrame lent_frame(OpId op, std::uint32_t receivers) {
    BlockFrame frame{core().block_header(wire::Leg::broadcast, op, 0), {}, {}, 0};
    frame.header.kind = static_cast<std::uint8_t>(FrameKind::announce);  // a peer takes any
    frame.cookie = memory().reserve(node(0).job, wire::Leg::broadcast);
    const std::uint32_t slab = memory().result_slabs().take();
    frame.body = memory().result_slabs().slab(slab).first(100);
    memory().lend(frame.cookie, receivers,
                  {nullptr, collective::kNoSlot, &memory().result_slabs(), slab});
    return frame;
  }
  std::uint32_t lent() {
    return memory().result_slabs().count() - memory().result_slabs().free_count();
  }
};

TEST_F(GroupCoreTest, AHeaderNamesTheGroupTheOpAndTheSender) {
  const OpId op = node(1).begin({.tensor = 4, .use = 6});
  const wire::FrameHeader header = node(1).core.header(FrameKind::grant, op);
  EXPECT_EQ(header.kind, static_cast<std::uint8_t>(FrameKind::grant));
  EXPECT_EQ(header.group, core().setup().token);
  EXPECT_EQ(header.epoch, core().setup().epoch);
  EXPECT_EQ(header.tensor, 4u);
  EXPECT_EQ(header.op_seq, 6u);
  EXPECT_EQ(header.source_node, 1u);
}

TEST_F(GroupCoreTest, ABlockGoesAsAContributionOrAsAResult) {
  const OpId op = node(0).begin({});
  const wire::FrameHeader contribution = core().block_header(wire::Leg::reduce, op, 3);
  const wire::FrameHeader result = core().block_header(wire::Leg::broadcast, op, 3);
  EXPECT_EQ(contribution.kind, static_cast<std::uint8_t>(FrameKind::contribution));
  EXPECT_EQ(contribution.leg, static_cast<std::uint8_t>(wire::Leg::reduce));
  EXPECT_EQ(contribution.chunk, 3u);
  EXPECT_EQ(result.kind, static_cast<std::uint8_t>(FrameKind::result));
  EXPECT_EQ(result.leg, static_cast<std::uint8_t>(wire::Leg::broadcast));
}

TEST_F(GroupCoreTest, WhatIsToldToAllReachesEveryPeerThatIsLeft) {
  const OpId op = node(0).begin({});
  const std::vector<std::byte> payload(3, std::byte{1}), values(2, std::byte{2});
  core().tell_all(core().header(FrameKind::announce, op), payload, values);
  settle();
  std::vector<std::byte> both = payload;
  both.insert(both.end(), values.begin(), values.end());
  for (const std::uint32_t other : {1u, 2u}) {
    ASSERT_EQ(node(other).frames.size(), 1u);
    EXPECT_EQ(node(other).frames[0].payload, both);
    EXPECT_EQ(node(other).frames[0].node, 0u);
  }
  core().peer(1).link->close();
  core().tell_all(core().header(FrameKind::announce, op), payload);
  settle();
  EXPECT_EQ(node(1).frames.size(), 1u);
  EXPECT_EQ(node(2).frames.size(), 2u);
}

TEST_F(GroupCoreTest, TellsOneNodeAloneOfAFailure) {
  core().tell_failure(2, {4, 6}, {Errc::mismatch, 1, "unknown kind of operation"});
  settle();
  EXPECT_TRUE(node(1).frames.empty());
  ASSERT_EQ(node(2).frames.size(), 1u);
  const wire::FrameHeader& header = node(2).frames[0].header;
  EXPECT_EQ(header.kind, static_cast<std::uint8_t>(FrameKind::op_fail));
  EXPECT_EQ(header.tensor, 4u);
  EXPECT_EQ(header.op_seq, 6u);
  wire::OpFailBody body;
  ASSERT_EQ(node(2).frames[0].payload.size(), sizeof(body));
  std::memcpy(&body, node(2).frames[0].payload.data(), sizeof(body));
  EXPECT_EQ(body.code, static_cast<std::int32_t>(Errc::mismatch));
  EXPECT_EQ(body.rank, 1u);
  EXPECT_STREQ(body.text, "unknown kind of operation");
  core().peer(2).link->close();
  core().tell_failure(2, {4, 7}, {Errc::mismatch, 1, "again"});
  settle();
  EXPECT_EQ(node(2).frames.size(), 1u);
}

TEST_F(GroupCoreTest, KnowsWhatAllDaemonsUnderstand) {
  EXPECT_TRUE(core().all_have(wire::kFeatureLossyMoves));
  EXPECT_FALSE(core().all_have(std::uint64_t{1} << 63)) << "nobody knows this one";
}

TEST_F(GroupCoreTest, ASentBlockIsCountedAndItsMemoryComesBackAfterTheLastAcknowledgement) {
  const OpId op = node(0).begin({});
  std::vector<std::byte> prefix(wire::kBlockHeaderBytes, std::byte{7});
  BlockFrame frame = lent_frame(op, 2);
  frame.prefix = prefix;
  core().send_to_all(frame);
  EXPECT_EQ(node(0).resources.counters->blocks.load(), 2u);
  EXPECT_EQ(node(0).resources.counters->block_bytes.load(), 2u * (100 + prefix.size()));
  EXPECT_EQ(lent(), 1u);
  settle_acks();
  EXPECT_EQ(lent(), 0u);
  for (const std::uint32_t other : {1u, 2u}) {
    ASSERT_EQ(node(other).frames.size(), 1u);
    EXPECT_EQ(node(other).frames[0].payload.size(), 100 + prefix.size());
    EXPECT_EQ(node(other).frames[0].payload[0], std::byte{7});
  }
}

TEST_F(GroupCoreTest, OnALostLinkAFrameCountsAsAcknowledged) {
  const OpId op = node(0).begin({});
  core().peer(1).link->close();
  const BlockFrame frame = lent_frame(op, 2);
  core().send_to_all(frame);
  EXPECT_EQ(lent(), 1u);  // the other one's
  settle_acks();
  EXPECT_EQ(lent(), 0u);
  core().send(1, lent_frame(op, 1));
  EXPECT_EQ(lent(), 0u);
  node(0).expect_all_memory_is_free();
}

TEST_F(GroupCoreTest, AFrameThatBorrowsIsTracedUntilItsLastAcknowledgement) {
  const OpId op = node(0).begin({.tensor = 4});
  node(0).resources.trace.start();
  const std::uint64_t sent_ns = world.clock.now_ns();
  core().send_to_all(lent_frame(op, 2));
  settle();
  world.clock.advance_ns(group_test::kMillisecond * 10);
  settle();
  const auto events = node(0).resources.trace.read(0, 10).events;
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, TraceKind::wire);
  EXPECT_EQ(events[0].begin_ns, sent_ns);
  EXPECT_EQ(events[0].end_ns, world.clock.now_ns());
  EXPECT_EQ(events[0].tensor, 4u);
  EXPECT_EQ(events[0].bytes, 100u);
}

TEST_F(GroupCoreTest, AnOpThatEndsWaitsForTheLastFrameThatBorrowsItsMemory) {
  const OpId op = node(0).begin({.tensor = 2});
  core().pin(op);
  core().pin(op);
  EXPECT_FALSE(core().unpin(op));
  core().pin(op);
  core().ops().fail(op, {Errc::cancelled, collective::kNoRank, "enough"});
  node(0).carry_out_next(ActionKind::fail_remote);
  node(0).carry_out_next(ActionKind::complete);
  EXPECT_FALSE(core().unpin(op));
  EXPECT_TRUE(core().unpin(op));
}

TEST_F(GroupCoreTest, NothingWaitsForTheFramesOfAnOpThatGoesOn) {
  const OpId op = node(0).begin({});
  core().pin(op);
  EXPECT_FALSE(core().unpin(op));
}

TEST_F(GroupCoreTest, KnowsWhosePeerALinkIs) {
  EXPECT_EQ(core().node_of(core().peer(2)), 2u);
  LanePeer& foreign = node(0).links.peer(group_test::id_of(2), 12345, group_test::endpoint_of(2));
  EXPECT_EQ(core().node_of(foreign), collective::kNoSlot);
}

TEST_F(GroupCoreTest, IsReadyWhenAllItsLinksAreOpen) {
  EXPECT_TRUE(core().all_links_open());
  core().peer(2).link->say_goodbye();
  EXPECT_FALSE(core().all_links_open());
  core().renew_peer(2);
  EXPECT_FALSE(core().all_links_open());
  settle();
  EXPECT_EQ(node(2).lost, std::vector<std::uint32_t>{0});
  node(2).core.renew_peer(0);
  settle();
  EXPECT_TRUE(core().all_links_open());
  EXPECT_EQ(core().peer(2).groups, 1u);
}

// Otherwise ranks that submit before and after the hello of the new link would not agree.
TEST_F(GroupCoreTest, KnowsWhatADaemonUnderstandsWhileItsLinkIsRenewed) {
  core().peer(2).link->say_goodbye();
  core().renew_peer(2);
  ASSERT_EQ(core().peer(2).link->peer_features(), 0u) << "it has said no hello";
  EXPECT_TRUE(core().all_have(wire::kFeatureLossyMoves));
}

TEST_F(GroupCoreTest, ItsJobAndItsLinksKnowThatItUsesThem) {
  EXPECT_EQ(node(0).job.groups, 1u);
  EXPECT_EQ(node(0).job.weight, core().setup().weight);
  EXPECT_EQ(core().peer(1).groups, 1u);
  GroupCore other(core().setup(), node(0));
  other.attach(node(0).resources, node(0).links, node(0).job);
  EXPECT_EQ(node(0).job.groups, 2u);
  EXPECT_EQ(&other.peer(1), &core().peer(1));
  EXPECT_EQ(core().peer(1).groups, 2u);
  other.detach();
  EXPECT_EQ(node(0).job.groups, 1u);
  EXPECT_EQ(core().peer(1).groups, 1u);
}

}  // namespace
}  // namespace tern::daemon::group_core_test
