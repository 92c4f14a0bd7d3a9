// Frames of other nodes: where a payload goes before it comes, and what it says when it has.

#include <cstdio>
#include <cstring>
#include <utility>

#include "base/bump.h"
#include "base/overloaded.h"
#include "daemon/lane/fail_body.h"
#include "daemon/lane/lane_group.h"

namespace tern::daemon {

using collective::OpId;
using wire::FrameKind;

// What a lane does with the frames of one kind. False, from the first two: the peer breaks the
// protocol.
struct LaneGroup::FrameHandler {
  // Null: the kind has no meaning between groups.
  static const FrameHandler* of(std::uint8_t kind);

  // Where the payload goes, before it comes.
  bool (*place_payload)(LaneGroup& group, std::uint32_t node, const wire::FrameHeader& header,
                        net::PayloadPlace& place);
  // What it says, when it has come whole.
  bool (*accept_payload)(LaneGroup& group, std::uint32_t node, const wire::FrameHeader& header,
                         const net::PayloadPlace& place);
  // It is damaged; the header is good, and says whose it was.
  void (*give_up)(LaneGroup& group, std::uint32_t node, const wire::FrameHeader& header) =
      [](LaneGroup& group, std::uint32_t node, const wire::FrameHeader& header) {
        group.give_up_op(node, header);
      };
};

const LaneGroup::FrameHandler* LaneGroup::FrameHandler::of(std::uint8_t kind) {
  using Header = const wire::FrameHeader;
  using Place = net::PayloadPlace;
  static constexpr FrameHandler kAnnounce = {
      [](LaneGroup& group, std::uint32_t node, Header& header, Place& place) {
        return group.announcements_.place(node, header, place);
      },
      [](LaneGroup& group, std::uint32_t node, Header& header, const Place& place) {
        return group.announcements_.accept(node, header, place);
      }};
  static constexpr FrameHandler kGrant = {
      [](LaneGroup& group, std::uint32_t node, Header& header, Place& place) {
        return group.core_.peer(node).place_small(header, 0, place);
      },
      [](LaneGroup& group, std::uint32_t node, Header& header, const Place&) {
        return group.reduce_.accept_grant(node, header);
      }};
  static constexpr FrameHandler kContribution = {
      [](LaneGroup& group, std::uint32_t node, Header& header, Place& place) {
        return group.reduce_.place_contribution(node, header, place);
      },
      [](LaneGroup& group, std::uint32_t node, Header& header, const Place&) {
        group.reduce_.accept_contribution(node, header);
        return true;
      }};
  static constexpr FrameHandler kResult = {
      [](LaneGroup& group, std::uint32_t node, Header& header, Place& place) {
        return group.results_.place(node, header, place);
      },
      [](LaneGroup& group, std::uint32_t node, Header& header, const Place& place) {
        group.results_.accept(node, header, place);
        return true;
      }};
  static constexpr FrameHandler kOpFail = {
      [](LaneGroup& group, std::uint32_t node, Header& header, Place& place) {
        return group.core_.peer(node).place_small(header, sizeof(wire::OpFailBody), place);
      },
      [](LaneGroup& group, std::uint32_t, Header& header, const Place& place) {
        return group.accept_op_fail(header, place);
      }};
  static constexpr FrameHandler kVerify = {
      [](LaneGroup& group, std::uint32_t node, Header& header, Place& place) {
        return group.setup().shape.verify &&
               group.core_.peer(node).place_small(header, group.verifier_.payload_bytes(node),
                                                  place);
      },
      [](LaneGroup& group, std::uint32_t node, Header& header, const Place& place) {
        return group.accept_verify(node, header, place);
      }};
  static constexpr FrameHandler kSubmitted = {
      [](LaneGroup& group, std::uint32_t node, Header& header, Place& place) {
        return group.core_.peer(node).place_small(header, sizeof(wire::SubmittedBody), place);
      },
      [](LaneGroup& group, std::uint32_t node, Header& header, const Place& place) {
        return group.accept_submitted(node, header, place);
      }};
  static constexpr FrameHandler kOfASend = {
      [](LaneGroup& group, std::uint32_t node, Header& header, Place& place) {
        return group.point_to_point_.place_payload(node, header, place);
      },
      [](LaneGroup& group, std::uint32_t node, Header& header, const Place& place) {
        return group.point_to_point_.on_frame(node, header, place);
      },
      [](LaneGroup& group, std::uint32_t node, Header& header) {
        group.point_to_point_.on_bad_payload(node, header);
      }};
  // Every kind is named, so that the compiler asks of a new one what it is to a group.
  switch (static_cast<FrameKind>(kind)) {
    case FrameKind::announce:
      return &kAnnounce;
    case FrameKind::grant:
      return &kGrant;
    case FrameKind::contribution:
      return &kContribution;
    case FrameKind::result:
      return &kResult;
    case FrameKind::op_fail:
      return &kOpFail;
    case FrameKind::verify:
      return &kVerify;
    case FrameKind::submitted:
      return &kSubmitted;
    case FrameKind::send_offer:
    case FrameKind::send_accept:
    case FrameKind::send_piece:
    case FrameKind::send_end:
    case FrameKind::send_withdraw:
    case FrameKind::rank_left:
      return &kOfASend;
    case FrameKind::hello:  // from here on: of links, transports and conductors
    case FrameKind::hello_reply:
    case FrameKind::refuse:
    case FrameKind::ack:
    case FrameKind::heartbeat:
    case FrameKind::goodbye:
    case FrameKind::rdma_offer:
    case FrameKind::rdma_accept:
    case FrameKind::rdma_ready:
    case FrameKind::rdma_decline:
    case FrameKind::control:
      break;
  }
  return nullptr;
}

bool LaneGroup::place_payload(std::uint32_t node, const wire::FrameHeader& header,
                              net::PayloadPlace& place) {
  if (const FrameHandler* const handler = FrameHandler::of(header.kind)) {
    return handler->place_payload(*this, node, header, place);
  }
  // It is refused when it has come whole: nobody knows how long such frames are.
  LanePeer& peer = core_.peer(node);
  return header.payload_bytes <= peer.small.size() &&
         peer.place_small(header, header.payload_bytes, place);
}

bool LaneGroup::on_frame(std::uint32_t node, const wire::FrameHeader& header,
                         const net::PayloadPlace& place) {
  op_seen_ = true;
  const FrameHandler* const handler = FrameHandler::of(header.kind);
  return handler != nullptr && handler->accept_payload(*this, node, header, place);
}

void LaneGroup::on_bad_payload(std::uint32_t node, const wire::FrameHeader& header) {
  op_seen_ = true;
  bump(core_.resources().counters->bad_payloads, std::uint64_t{1});
  const FrameHandler* const handler = FrameHandler::of(header.kind);
  if (handler == nullptr) return on_abandoned(core_.peer(node));  // no op is known to be its
  handler->give_up(*this, node, header);
}

void LaneGroup::give_up_op(std::uint32_t node, const wire::FrameHeader& header) {
  on_abandoned(core_.peer(node));
  char text[120];
  std::snprintf(text, sizeof(text), "a payload from node %u did not match its checksum", node);
  core_.ops().fail_key({header.tensor, header.op_seq},
                       {Errc::corrupt_data, collective::kNoRank, text});
}

void LaneGroup::on_abandoned(LanePeer& peer) {
  const Receiving receiving = std::exchange(peer.receiving, Receiving{});
  const std::uint32_t node = core_.node_of(peer);
  std::visit(
      Overloaded{[](std::monostate) {}, [](const filling::ReceiveSlab&) {},
                 [&](const filling::Orphan& one) { reduce_.abandoned(one); },
                 [&](const filling::ResultBuffer& one) {
                   peer.results.give(one.buffer);
                   frame_acked(one.op);
                 },
                 [&](const filling::EagerSlab& one) { announcements_.abandoned(node, one); },
                 [&](const auto& of_a_send) { point_to_point_.on_abandoned(node, of_a_send); }},
      receiving.fills);
}

// ---- Frames that belong to no part --------------------------------------------------------------

bool LaneGroup::accept_op_fail(const wire::FrameHeader& header, const net::PayloadPlace& place) {
  const auto told = FailBody::read(place.body);
  if (!told) return false;
  core_.ops().on_op_fail({header.tensor, header.op_seq}, told->failure());
  return true;
}

bool LaneGroup::accept_verify(std::uint32_t node, const wire::FrameHeader& header,
                              const net::PayloadPlace& place) {
  const collective::OpKey key{header.tensor, header.op_seq};
  // Kept before on_verify, which may find that these were the last.
  OpId op = core_.ops().find(key);
  if (op != collective::kNoSlot && !verifier_.accept(op, node, place.body)) return false;
  return core_.ops().on_verify(node, key, op);
}

bool LaneGroup::accept_submitted(std::uint32_t node, const wire::FrameHeader& header,
                                 const net::PayloadPlace& place) {
  wire::SubmittedBody body;
  std::memcpy(&body, place.body.data(), sizeof(body));
  return core_.ops().on_submitted(node, {header.tensor, header.op_seq}, body.ranks);
}

}  // namespace tern::daemon
