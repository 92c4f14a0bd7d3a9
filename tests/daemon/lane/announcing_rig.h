#pragma once

// What the nodes of a group announce to each other: each has its announcements and what is to be
// known for them, and the test says when what a node has heard comes to them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "daemon/lane/announcements.h"
#include "group_rig.h"

namespace tern::daemon::announcements_test {

using collective::Action;
using collective::ActionKind;
using collective::EagerForm;
using collective::OpId;
using group_test::AllNodes;
using group_test::kChunk;
using group_test::Node;
using group_test::Shape;
using group_test::Spec;

using Bytes = std::vector<std::byte>;

inline constexpr std::uint64_t kEager = kChunk * sizeof(float);
inline constexpr std::uint64_t kFew = 50;  // elements that travel with an announcement

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}
inline Bytes bytes_of(const Operand& operand) {
  const auto bytes = host_bytes(operand);
  return {bytes.begin(), bytes.end()};
}
inline std::vector<float> slice(const std::vector<float>& values, std::uint64_t begin,
                                std::uint64_t count) {
  const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

// An announcement as it has come to a node.
struct Heard {
  wire::FrameHeader header;
  wire::AnnounceBody body{};
  Bytes values;
};

// A node's announcements, and what is to be known for them.
struct Announcer final : BlockSink {
  explicit Announcer(Node& at) : node(at) {
    codec.blocks().attach(node.resources.codec, node.resources.trace, *node.resources.counters,
                          node.resources.clock);
    path.use(*node.resources.executor);
  }
  void on_block(const BlockRequest& request, const BlockCompletion& completion) override {
    if (request.verb == BlockVerb::reduce) return announcements.reduced(request, completion);
    announcements.gathered(request, completion);
  }

  // The next action, which must be of this kind.
  Action next(ActionKind kind) {
    const Action action = node.next();
    EXPECT_EQ(action.kind, kind);
    return action;
  }
  void announce() { announcements.announce(next(ActionKind::announce)); }
  // The op ends here: what it has of others is given back.
  void complete(OpId op) {
    EXPECT_EQ(next(ActionKind::complete).op, op);
    announcements.release(op);
    node.core.ops().release(op);
    node.core.forget(op);
  }
  // As a frame comes that has this body. False: the link ends.
  bool arrive(std::uint32_t from, const Spec& spec, wire::AnnounceBody body, const Bytes& values) {
    Receiving& receiving = node.core.peer(from).receiving = Receiving{};
    wire::FrameHeader header{};
    header.tensor = spec.tensor;
    header.op_seq = spec.use;
    net::PayloadPlace place;
    if (!place_for(from, values.size(), place)) return false;
    std::copy(values.begin(), values.end(), place.body.begin());
    body.eager_bytes = static_cast<std::uint32_t>(values.size());
    std::memcpy(place.prefix.data(), &body, sizeof(body));
    const bool well = announcements.accept(from, header, place);
    receiving = Receiving{};
    return well;
  }
  // Where an announcement goes that so many bytes of values come with.
  bool place_for(std::uint32_t from, std::size_t bytes, net::PayloadPlace& place) {
    wire::FrameHeader header{};
    header.payload_bytes = static_cast<std::uint32_t>(sizeof(wire::AnnounceBody) + bytes);
    return announcements.place(from, header, place);
  }
  // Places for values of that node that are free.
  int room_for(std::uint32_t from) {
    Receiving& receiving = node.core.peer(from).receiving = Receiving{};
    std::vector<filling::EagerSlab> taken;
    for (net::PayloadPlace place; place_for(from, 1, place);) {
      taken.push_back(std::get<filling::EagerSlab>(receiving.fills));
    }
    receiving = Receiving{};
    for (const auto& one : taken) announcements.abandoned(from, one);
    return static_cast<int>(taken.size());
  }

  Node& node;
  GroupClients clients{node.core};
  StateUpkeep upkeep{node.core.ops(), node.core.lane_ops()};
  Announcements announcements{
      node.core, {codec, path, node.tuning, upkeep, clients, node.verifier}, node.room.announced()};
  BlockCodec codec{node.core.ops(),
                   node.core.lane_ops(),
                   announcements.values(),
                   {node.core.setup().number, node.core.setup().seed, node.core.setup().size}};
  BlockPath path{codec, *this, 4};
};

class AnnouncementsTest : public AllNodes {
 protected:
  explicit AnnouncementsTest(const Shape& shape = {.ranks = {{0}, {1}}, .eager_bytes = kEager})
      : AllNodes(shape) {
    for (const auto& one : nodes) at.push_back(std::make_unique<Announcer>(*one));
  }
  Announcements& announcements(std::uint32_t self = 0) { return at[self]->announcements; }
  const LaneOp& lane_op(OpId op, std::uint32_t self = 0) { return node(self).core.lane_op(op); }

  // Its ranks submit the op, and it says so.
  OpId announce(std::uint32_t self, const Spec& spec, const std::vector<float>& values,
                const LaneOp& lane_op = {}) {
    const OpId op = node(self).enter(spec, lane_op);
    if (lane_op.encoding.lossy) node(self).core.ops().compress(op);
    node(self).give(op, values);
    at[self]->announce();
    settle();
    return op;
  }
  // What a node has heard of others, first to last.
  std::vector<Heard> heard(std::uint32_t self) {
    std::vector<Heard> all;
    for (const auto& frame : node(self).frames) {
      EXPECT_EQ(frame.header.kind, static_cast<std::uint8_t>(wire::FrameKind::announce));
      Heard& one = all.emplace_back();
      one.header = frame.header;
      std::memcpy(&one.body, frame.payload.data(), sizeof(one.body));
      one.values.assign(frame.payload.begin() + sizeof(one.body), frame.payload.end());
      EXPECT_EQ(one.body.eager_bytes, one.values.size());
    }
    return all;
  }
  // What the node has heard of the op comes to its announcements.
  void take_heard(std::uint32_t self, const Spec& spec) {
    for (const Heard& one : heard(self)) {
      EXPECT_TRUE(at[self]->arrive(one.header.source_node, spec, one.body, one.values));
    }
  }
  void reduce(std::uint32_t self) {
    announcements(self).reduce(at[self]->next(ActionKind::reduce_eager));
  }

  // Twice the ops in flight.
  static constexpr int kRoom = 8;
  std::vector<std::unique_ptr<Announcer>> at;  // by node
};

}  // namespace tern::daemon::announcements_test
