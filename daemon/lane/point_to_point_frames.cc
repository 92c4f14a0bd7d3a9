// Frames of other nodes: where a payload goes before it comes, and what it says when it has.

#include <cstring>

#include "collective/pass_failures.h"
#include "daemon/lane/fail_body.h"
#include "daemon/lane/point_to_point.h"

namespace tern::daemon {

using collective::Envelope;
using collective::Mailbox;
using collective::PassId;
using wire::FrameKind;

namespace {

// Of the header of an offer; its type and count are in the payload.
Envelope parties_of(const wire::FrameHeader& header) noexcept {
  Envelope envelope;
  envelope.source = static_cast<std::uint32_t>(header.tensor >> 32);
  envelope.destination = static_cast<std::uint32_t>(header.tensor);
  envelope.tag = header.chunk;
  return envelope;
}

}  // namespace

// ---- A handler for each kind of frame -----------------------------------------------------------

struct PointToPoint::FrameHandler {
  // Null: the kind is none of sends and recvs.
  static const FrameHandler* of(std::uint8_t kind);

  // Where the payload goes, before it comes.
  bool (*place_payload)(PointToPoint& self, std::uint32_t node, const wire::FrameHeader& header,
                        net::PayloadPlace& place);
  // What it says, when it has come whole.
  bool (*accept_payload)(PointToPoint& self, std::uint32_t node, const wire::FrameHeader& header,
                         const net::PayloadPlace& place);
  // It is damaged; the header is good, and says whose it was.
  void (*give_up)(PointToPoint& self, std::uint32_t node, const wire::FrameHeader& header,
                  const collective::Failure& why);
};

const PointToPoint::FrameHandler* PointToPoint::FrameHandler::of(std::uint8_t kind) {
  using Self = PointToPoint;
  using Header = const wire::FrameHeader;
  using Place = net::PayloadPlace;
  using Failure = collective::Failure;
  constexpr auto kPlaceNothing = [](Self& self, std::uint32_t node, Header& header, Place& place) {
    return self.core_.peer(node).place_small(header, 0, place);
  };
  constexpr auto kHasNoPayload = [](Self&, std::uint32_t, Header&, const Failure&) {};
  static constexpr FrameHandler kSendOffer = {
      [](Self& self, std::uint32_t node, Header& header, Place& place) {
        return self.place_offer(node, header, place);
      },
      [](Self& self, std::uint32_t node, Header& header, const Place& place) {
        return self.accept_offer(node, header, place, false);
      },
      [](Self& self, std::uint32_t node, Header& header, const Failure&) {
        self.accept_offer(node, header, {}, true);
      }};
  static constexpr FrameHandler kSendAccept = {
      kPlaceNothing,
      [](Self& self, std::uint32_t node, Header& header, const Place&) {
        return self.mailbox_.on_accept(node, header.op_seq);
      },
      kHasNoPayload};
  static constexpr FrameHandler kSendPiece = {
      [](Self& self, std::uint32_t node, Header& header, Place& place) {
        return self.pieces_.place(node, header, place);
      },
      [](Self& self, std::uint32_t node, Header&, const Place& place) {
        self.pieces_.accept(node, place);
        return true;
      },
      [](Self& self, std::uint32_t node, Header&, const Failure&) { self.pieces_.damaged(node); }};
  static constexpr FrameHandler kSendEnd = {
      [](Self& self, std::uint32_t node, Header& header, Place& place) {
        // It ends well without one.
        const std::size_t bytes = header.payload_bytes == 0 ? 0 : sizeof(wire::OpFailBody);
        return self.core_.peer(node).place_small(header, bytes, place);
      },
      [](Self& self, std::uint32_t node, Header& header, const Place& place) {
        if (place.body.empty()) return self.mailbox_.on_end(node, header.op_seq, {});
        const auto told = FailBody::read(place.body);
        return told && self.mailbox_.on_end(node, header.op_seq, told->failure());
      },
      [](Self& self, std::uint32_t node, Header& header, const Failure& why) {
        self.mailbox_.on_end(node, header.op_seq, why);
      }};
  static constexpr FrameHandler kSendWithdraw = {
      [](Self& self, std::uint32_t node, Header& header, Place& place) {
        return self.core_.peer(node).place_small(header, sizeof(wire::OpFailBody), place);
      },
      [](Self& self, std::uint32_t node, Header& header, const Place& place) {
        const auto told = FailBody::read(place.body);
        return told && self.mailbox_.on_withdraw(node, header.op_seq, told->failure());
      },
      [](Self& self, std::uint32_t node, Header& header, const Failure& why) {
        self.mailbox_.on_withdraw(node, header.op_seq, why);
      }};
  static constexpr FrameHandler kRankLeft = {
      kPlaceNothing,
      [](Self& self, std::uint32_t node, Header& header, const Place&) {
        return self.mailbox_.on_rank_left(node, header.op_seq);
      },
      kHasNoPayload};
  switch (static_cast<FrameKind>(kind)) {
    case FrameKind::send_offer:
      return &kSendOffer;
    case FrameKind::send_accept:
      return &kSendAccept;
    case FrameKind::send_piece:
      return &kSendPiece;
    case FrameKind::send_end:
      return &kSendEnd;
    case FrameKind::send_withdraw:
      return &kSendWithdraw;
    case FrameKind::rank_left:
      return &kRankLeft;
    // Those of operations: LaneGroup has them.
    case FrameKind::announce:
    case FrameKind::grant:
    case FrameKind::contribution:
    case FrameKind::result:
    case FrameKind::op_fail:
    case FrameKind::verify:
    case FrameKind::submitted:
    // Those of the link, the transports and the conductors, which no group sees.
    case FrameKind::hello:
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
      return nullptr;
  }
  return nullptr;  // no kind of this version
}

bool PointToPoint::place_payload(std::uint32_t node, const wire::FrameHeader& header,
                                 net::PayloadPlace& place) {
  const FrameHandler* const handler = FrameHandler::of(header.kind);
  return handler != nullptr && handler->place_payload(*this, node, header, place);
}

bool PointToPoint::on_frame(std::uint32_t node, const wire::FrameHeader& header,
                            const net::PayloadPlace& place) {
  const FrameHandler* const handler = FrameHandler::of(header.kind);
  return handler != nullptr && handler->accept_payload(*this, node, header, place);
}

void PointToPoint::on_bad_payload(std::uint32_t node, const wire::FrameHeader& header) {
  collective::PassText text;
  if (const FrameHandler* const handler = FrameHandler::of(header.kind)) {
    handler->give_up(*this, node, header, collective::damage_by(node, text));
  }
}

// ---- Payloads -----------------------------------------------------------------------------------

bool PointToPoint::place_offer(std::uint32_t node, const wire::FrameHeader& header,
                               net::PayloadPlace& place) {
  LanePeer& peer = core_.peer(node);
  const std::size_t bytes = header.payload_bytes;
  if (bytes < sizeof(wire::SendOfferBody)) return false;
  const std::size_t values = bytes - sizeof(wire::SendOfferBody);
  if (values > core_.setup().shape.eager_bytes) return false;
  place.prefix = std::span(peer.small).first(sizeof(wire::SendOfferBody));
  if (values == 0) return true;
  const std::uint32_t slab = pools_[node].take();
  if (slab == SlabPool::kNone) return false;  // more than the reserve
  peer.receiving.fills = filling::OfferSlab{slab};
  place.body = host_bytes(pools_[node].operand(slab)).first(values);
  return true;
}

bool PointToPoint::accept_offer(std::uint32_t node, const wire::FrameHeader& header,
                                const net::PayloadPlace& place, bool damaged) {
  const auto* const filled = std::get_if<filling::OfferSlab>(&core_.peer(node).receiving.fills);
  Mailbox::Arriving offer;
  offer.node = node;
  offer.envelope = parties_of(header);
  offer.damaged = damaged;
  offer.slab = filled != nullptr ? filled->slab : SlabPool::kNone;
  bool sound = header.op_seq < collective::kNoSlot;
  offer.number = static_cast<PassId>(header.op_seq);
  if (!damaged) {
    wire::SendOfferBody body;
    std::memcpy(&body, place.prefix.data(), sizeof(body));
    offer.envelope.count = body.count;
    offer.envelope.dtype = static_cast<DType>(body.dtype);
    offer.eager = body.eager != 0;
    offer.envelope.lossy = body.lossy != 0;
    constexpr std::uint8_t kZero[sizeof(body.reserved)] = {};
    sound = sound && body.eager <= 1 && body.lossy <= 1 &&
            (body.lossy == 0 || PassBlocks::takes(offer.envelope.dtype)) &&
            body.count <= plan::kMaxElements &&
            std::memcmp(body.reserved, kZero, sizeof(kZero)) == 0 &&
            place.body.size() == (offer.eager ? offer.envelope.bytes() : 0);
  }
  if (sound && mailbox_.on_offer(offer)) return true;
  if (filled != nullptr) on_abandoned(node, *filled);
  return false;
}

void PointToPoint::on_abandoned(std::uint32_t node, const filling::OfferSlab& filled) {
  pools_[node].give(filled.slab);
}

}  // namespace tern::daemon
