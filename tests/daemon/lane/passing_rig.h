#pragma once

// A node's sends and recvs on one lane, and a rank of the node that submits them.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "daemon/lane/point_to_point.h"
#include "group_rig.h"
#include "lane_rig.h"
#include "plan/recv.h"
#include "plan/send.h"

namespace tern::daemon::point_to_point_test {

using collective::Mailbox;
using group_test::AllNodes;
using group_test::kMillisecond;
using group_test::Node;
using group_test::OneNode;
using group_test::World;
using wire::FrameKind;

inline constexpr std::size_t kEager = 64;

inline group_test::Shape passing_shape() { return {.ranks = {{0}, {1}}, .eager_bytes = kEager}; }

// A rank of the node, whose arena the test reads and writes.
struct PassingRank {
  PassingRank(Node& at, PointToPoint& all, std::uint64_t id) : node(at), passing(all), client(id) {
    passing.attach(node.resources);
    node.resources.clients.add(client.memory);
  }

  std::uint64_t submit(const plan::Plan& plan, std::uint32_t peer, std::uint64_t count,
                       std::uint64_t offset = 0) {
    shm::SubmitEntry entry{};
    entry.ticket = ++tickets;
    entry.kind = plan.number;
    entry.dtype = static_cast<std::uint8_t>(DType::u8);
    entry.root = peer;
    entry.sequence = 7;
    entry.count = count;
    entry.input_offset = entry.output_offset = offset;
    passing.submit({*node.resources.clients.find(client.memory.id), 0, plan}, entry);
    return entry.ticket;
  }
  std::byte* arena() { return client.memory.segment.arena().data(); }
  int run() {
    return passing.run(16, [this] { return node.resources.memory.room().contributions; });
  }

  Node& node;
  PointToPoint& passing;
  lane_test::TestClient client;
  std::uint64_t tickets = 0;
};

// Node 0 with rank 0, whose links are open; the test says what node 1 sends.
class OfNode0 : public AllNodes {
 protected:
  OfNode0() : AllNodes(passing_shape()), rank(node(0), passing, 1) {}

  static wire::FrameHeader header(FrameKind kind, std::uint64_t number = 0) {
    wire::FrameHeader header;
    header.kind = static_cast<std::uint8_t>(kind);
    header.tensor = std::uint64_t{1} << 32;  // from rank 1 to rank 0
    header.op_seq = number;
    header.chunk = 7;
    return header;
  }
  static std::vector<std::byte> offer_payload(std::uint64_t count, bool eager = true) {
    wire::SendOfferBody body{};
    body.count = count;
    body.dtype = static_cast<std::uint8_t>(DType::u8);
    body.eager = eager ? 1 : 0;
    std::vector<std::byte> payload(sizeof(body) + (eager ? count : 0), std::byte{0x33});
    std::memcpy(payload.data(), &body, sizeof(body));
    return payload;
  }
  static std::vector<std::byte> failure_payload(std::int32_t code) {
    wire::OpFailBody body{};
    body.code = code;
    std::memset(body.text, 'x', sizeof(body.text));  // it does not end
    std::vector<std::byte> payload(sizeof(body));
    std::memcpy(payload.data(), &body, sizeof(body));
    return payload;
  }
  bool place(wire::FrameHeader& header, std::size_t bytes, net::PayloadPlace& place) {
    header.payload_bytes = static_cast<std::uint32_t>(bytes);
    node(0).core.peer(1).receiving = Receiving{};
    return passing.place_payload(1, header, place);
  }
  // What a frame fills that place() has found a place for.
  template <typename What>
  const What& filled() {
    return std::get<What>(node(0).core.peer(1).receiving.fills);
  }
  // As a link does with a frame that comes whole, or damaged. False: it ends.
  bool arrive(wire::FrameHeader header, const std::vector<std::byte>& payload,
              bool damaged = false) {
    net::PayloadPlace at;
    if (!place(header, payload.size(), at)) return false;
    const std::size_t split = at.prefix.size();
    if (split + at.body.size() != 0) {
      EXPECT_EQ(split + at.body.size(), payload.size());
      std::copy_n(payload.begin(), split, at.prefix.begin());
      std::copy_n(payload.begin() + static_cast<std::ptrdiff_t>(split), at.body.size(),
                  at.body.begin());
    }
    if (damaged) passing.on_bad_payload(1, header);
    const bool well = damaged || passing.on_frame(1, header, at);
    node(0).core.peer(1).receiving = Receiving{};
    return well;
  }
  void run() {
    while (rank.run() > 0) settle();
    settle_acks();
  }
  void expect_end(std::uint64_t ticket, Errc code, const std::string& text = "") {
    const auto completion = rank.client.next_completion();
    ASSERT_TRUE(completion.has_value());
    EXPECT_EQ(completion->ticket, ticket);
    EXPECT_EQ(static_cast<Errc>(completion->status), code) << completion->detail;
    EXPECT_EQ(std::string(completion->detail), text);
  }
  std::size_t heard(FrameKind kind) { return node(1).frames_of(kind).size(); }

  PointToPoint passing{node(0).core, node(0).group, node(0).room.offered()};
  PassingRank rank;
};

}  // namespace tern::daemon::point_to_point_test
