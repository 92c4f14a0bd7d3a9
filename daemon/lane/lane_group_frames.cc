// Frames of other nodes: where a payload goes before it comes, and what it says when it has.

#include <cstdio>
#include <cstring>
#include <utility>

#include "base/bump.h"
#include "collective/op_plan.h"
#include "daemon/lane/lane_group.h"
#include "plan/plans.h"

namespace tern::daemon {

using collective::OpId;
using wire::FrameKind;

namespace {

// Payloads that are no blocks.
bool place_small(LanePeer& peer, const wire::FrameHeader& header, std::size_t bytes,
                 net::PayloadPlace& place) {
  if (header.payload_bytes != bytes) return false;
  place.body = std::span(peer.small).first(bytes);
  return true;
}

}  // namespace

// What a lane does with the frames of one kind. False, from either: the peer breaks the protocol.
struct LaneGroup::FrameHandler {
  // Null: the kind has no meaning between groups.
  static const FrameHandler* of(std::uint8_t kind);

  FrameKind kind;
  // Where the payload goes, before it comes.
  bool (*place_payload)(LaneGroup& group, std::uint32_t node, const wire::FrameHeader& header,
                        net::PayloadPlace& place);
  // What it says, when it has come whole.
  bool (*accept_payload)(LaneGroup& group, std::uint32_t node, const wire::FrameHeader& header,
                         const net::PayloadPlace& place);
};

const LaneGroup::FrameHandler* LaneGroup::FrameHandler::of(std::uint8_t kind) {
  using Header = const wire::FrameHeader;
  using Place = net::PayloadPlace;
  static constexpr FrameHandler kHandlers[] = {
      {FrameKind::announce,
       [](LaneGroup& group, std::uint32_t node, Header& header, Place& place) {
         return group.place_announce(node, header, place);
       },
       [](LaneGroup& group, std::uint32_t node, Header& header, const Place& place) {
         return group.accept_announce(node, header, place);
       }},
      {FrameKind::grant,
       [](LaneGroup& group, std::uint32_t node, Header& header, Place& place) {
         return place_small(group.core_.peer(node), header, 0, place);
       },
       [](LaneGroup& group, std::uint32_t node, Header& header, const Place&) {
         return group.reduce_.accept_grant(node, header);
       }},
      {FrameKind::contribution,
       [](LaneGroup& group, std::uint32_t node, Header& header, Place& place) {
         return group.reduce_.place_contribution(node, header, group.core_.peer(node).receiving,
                                                 place);
       },
       [](LaneGroup& group, std::uint32_t node, Header& header, const Place&) {
         group.reduce_.accept_contribution(node, header, group.core_.peer(node).receiving);
         return true;
       }},
      {FrameKind::result,
       [](LaneGroup& group, std::uint32_t node, Header& header, Place& place) {
         return group.results_.place(node, header, place);
       },
       [](LaneGroup& group, std::uint32_t node, Header& header, const Place& place) {
         group.results_.accept(node, header, place);
         return true;
       }},
      {FrameKind::op_fail,
       [](LaneGroup& group, std::uint32_t node, Header& header, Place& place) {
         return place_small(group.core_.peer(node), header, sizeof(wire::OpFailBody), place);
       },
       [](LaneGroup& group, std::uint32_t, Header& header, const Place& place) {
         return group.accept_op_fail(header, place);
       }},
      {FrameKind::verify,
       [](LaneGroup& group, std::uint32_t node, Header& header, Place& place) {
         return group.setup().shape.verify &&
                place_small(group.core_.peer(node), header, group.verifier_.payload_bytes(node),
                            place);
       },
       [](LaneGroup& group, std::uint32_t node, Header& header, const Place& place) {
         return group.accept_verify(node, header, place);
       }},
      {FrameKind::submitted,
       [](LaneGroup& group, std::uint32_t node, Header& header, Place& place) {
         return place_small(group.core_.peer(node), header, sizeof(wire::SubmittedBody), place);
       },
       [](LaneGroup& group, std::uint32_t node, Header& header, const Place& place) {
         return group.accept_submitted(node, header, place);
       }},
  };
  for (const FrameHandler& handler : kHandlers) {
    if (handler.kind == static_cast<FrameKind>(kind)) return &handler;
  }
  return nullptr;
}

bool LaneGroup::place_payload(std::uint32_t node, const wire::FrameHeader& header,
                              net::PayloadPlace& place) {
  if (PointToPoint::takes(header)) return point_to_point_.place_payload(node, header, place);
  if (const FrameHandler* const handler = FrameHandler::of(header.kind)) {
    return handler->place_payload(*this, node, header, place);
  }
  // It is refused when it has come whole: nobody knows how long such frames are.
  LanePeer& peer = core_.peer(node);
  return header.payload_bytes <= peer.small.size() &&
         place_small(peer, header, header.payload_bytes, place);
}

bool LaneGroup::on_frame(std::uint32_t node, const wire::FrameHeader& header,
                         const net::PayloadPlace& place) {
  op_seen_ = true;
  if (PointToPoint::takes(header)) return point_to_point_.on_frame(node, header, place);
  const FrameHandler* const handler = FrameHandler::of(header.kind);
  return handler != nullptr && handler->accept_payload(*this, node, header, place);
}

void LaneGroup::on_bad_payload(std::uint32_t node, const wire::FrameHeader& header) {
  op_seen_ = true;
  bump(core_.resources().counters->bad_payloads, std::uint64_t{1});
  if (PointToPoint::takes(header)) return point_to_point_.on_bad_payload(node, header);
  on_abandoned(core_.peer(node));
  char text[120];
  std::snprintf(text, sizeof(text), "a payload from node %u did not match its checksum", node);
  core_.ops().fail_key({header.tensor, header.op_seq},
                       {Errc::corrupt_data, collective::kNoRank, text});
}

void LaneGroup::on_abandoned(LanePeer& peer) {
  const Receiving receiving = std::exchange(peer.receiving, Receiving{});
  if (receiving.result_buffer != SlabPool::kNone) peer.results.give(receiving.result_buffer);
  if (receiving.op != collective::kNoSlot) frame_acked(receiving.op);
  announcements_.abandoned(core_.node_of(peer), receiving);
  if (receiving.orphaned) reduce_.give_orphan(receiving.receive_slab);
  point_to_point_.on_abandoned(core_.node_of(peer), receiving);
}

// ---- Announcements ------------------------------------------------------------------------------

bool LaneGroup::place_announce(std::uint32_t node, const wire::FrameHeader& header,
                               net::PayloadPlace& place) {
  if (header.payload_bytes < sizeof(wire::AnnounceBody)) return false;
  place.prefix = std::span(core_.peer(node).small).first(sizeof(wire::AnnounceBody));
  return announcements_.place_values(node, header.payload_bytes - sizeof(wire::AnnounceBody),
                                     place);
}

bool LaneGroup::accept_announce(std::uint32_t node, const wire::FrameHeader& header,
                                const net::PayloadPlace& place) {
  wire::AnnounceBody body;
  std::memcpy(&body, place.prefix.data(), sizeof(body));
  const bool sound = dtype_bytes(static_cast<DType>(body.dtype)) != 0 && body.rank < setup().size &&
                     body.root < setup().size && body.eager_bytes == place.body.size() &&
                     body.count <= plan::kMaxElements;
  OpId op = collective::kNoSlot;
  if (sound) {
    const auto tensor = tensors_.find(header.tensor);
    if (body.restart_streams != 0 && tensor != tensors_.end()) {
      upkeep_.restart_streams(*tensor->second);
    }
  }
  const bool ok = sound && core_.ops().on_announce(node, {header.tensor, header.op_seq}, body, op);
  const bool known = ok && op != collective::kNoSlot;
  // An unknown kind fails its op for all. Here the op has ended already, and its end is forgotten.
  const plan::Plan* const plan = plan::find(body.kind);
  if (ok && (plan == nullptr || plan->passes()) &&
      core_.ops().find({header.tensor, header.op_seq}) == collective::kNoSlot) {
    core_.tell_failure(node, {header.tensor, header.op_seq},
                       {Errc::mismatch, body.rank, collective::kUnknownKind});
  }
  if (known && node == OpTuning::kLeader) tuning_.hear_lead(op, body);
  if (known && node != OpTuning::kLeader) tuning_.hear_early(op, body);
  if (known && (body.flags & wire::kAnnounceClientBlocks) != 0) {
    verifier_.compare_blocks(op);
  }
  if (known) announcements_.begin_if_all_announced(op);
  const bool lives = known && !core_.op(op).failed;
  announcements_.accept_values(node, lives ? op : collective::kNoSlot, body);
  return ok;
}

// ---- The rest -----------------------------------------------------------------------------------

bool LaneGroup::accept_op_fail(const wire::FrameHeader& header, const net::PayloadPlace& place) {
  wire::OpFailBody body;
  std::memcpy(&body, place.body.data(), sizeof(body));
  body.text[sizeof(body.text) - 1] = '\0';
  if (body.code <= 0 || body.code >= kErrcCount) return false;
  core_.ops().on_op_fail({header.tensor, header.op_seq},
                         {static_cast<Errc>(body.code), body.rank, body.text});
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
