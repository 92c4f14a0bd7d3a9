// Frames of other nodes: where a payload goes before it comes, and what it says when it has.

#include <cstdio>
#include <cstring>
#include <utility>

#include "base/bump.h"
#include "collective/pass_failures.h"
#include "daemon/lane/point_to_point.h"

namespace tern::daemon {

using collective::Envelope;
using collective::Mailbox;
using collective::Pass;
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

// False: the body makes no sense. `text` outlives the failure.
bool read_failure(std::span<const std::byte> payload, wire::OpFailBody& body,
                  collective::Failure& failure) {
  std::memcpy(&body, payload.data(), sizeof(body));
  body.text[sizeof(body.text) - 1] = '\0';
  failure = {static_cast<Errc>(body.code), body.rank, body.text};
  return body.code > 0 && body.code < kErrcCount;
}

}  // namespace

bool PointToPoint::takes(const wire::FrameHeader& header) noexcept {
  return header.kind >= static_cast<std::uint8_t>(FrameKind::send_offer) &&
         header.kind <= static_cast<std::uint8_t>(FrameKind::rank_left);
}

bool PointToPoint::place_payload(std::uint32_t node, const wire::FrameHeader& header,
                                 net::PayloadPlace& place) {
  LanePeer& peer = core_.peer(node);
  const std::size_t bytes = header.payload_bytes;
  const auto small = [&](bool fits) {
    if (fits) place.body = std::span(peer.small).first(bytes);
    return fits;
  };
  switch (static_cast<FrameKind>(header.kind)) {
    case FrameKind::send_accept:
    case FrameKind::rank_left:
      return small(bytes == 0);
    case FrameKind::send_end:
      return small(bytes == 0 || bytes == sizeof(wire::OpFailBody));
    case FrameKind::send_withdraw:
      return small(bytes == sizeof(wire::OpFailBody));
    case FrameKind::send_piece:
      return place_piece(node, header, place);
    default:
      break;
  }
  if (bytes < sizeof(wire::SendOfferBody)) return false;
  const std::size_t values = bytes - sizeof(wire::SendOfferBody);
  if (values > core_.setup().shape.eager_bytes) return false;
  place.prefix = std::span(peer.small).first(sizeof(wire::SendOfferBody));
  if (values == 0) return true;
  const std::uint32_t slab = pools_[node]->take();
  if (slab == SlabPool::kNone) return false;  // more than the reserve
  peer.receiving.offer_slab = slab;
  place.body = host_bytes(pools_[node]->operand(slab)).first(values);
  return true;
}

bool PointToPoint::place_piece(std::uint32_t node, const wire::FrameHeader& header,
                               net::PayloadPlace& place) {
  LanePeer& peer = core_.peer(node);
  const std::size_t bytes = header.payload_bytes;
  Mailbox::Place& piece = peer.receiving.piece;
  if (!mailbox_.expect_piece(node, header.op_seq, bytes, piece)) return false;
  if (piece.pass == collective::kNoSlot) return true;
  if (piece.block_of == 0) {
    place.body = host_bytes(memory_[piece.pass].elements.slice(piece.offset, bytes));
    return true;
  }
  if (bytes < wire::kBlockHeaderBytes || bytes > peer.results.bytes()) {
    mailbox_.on_piece(std::exchange(piece, {}), 0, Mailbox::Piece::abandoned);
    return false;
  }
  peer.receiving.result_buffer = peer.results.take();
  place.body = host_bytes(peer.results.operand(peer.receiving.result_buffer)).first(bytes);
  return true;
}

void PointToPoint::give_buffer(LanePeer& peer) {
  const std::uint32_t buffer = std::exchange(peer.receiving.result_buffer, SlabPool::kNone);
  if (buffer != SlabPool::kNone) peer.results.give(buffer);
}

void PointToPoint::accept_piece(std::uint32_t node, const net::PayloadPlace& place) {
  LanePeer& peer = core_.peer(node);
  const Mailbox::Place& piece = peer.receiving.piece;
  std::uint64_t bytes = place.body.size();
  if (piece.pass != collective::kNoSlot && piece.block_of != 0) {
    const Pass& recv = mailbox_.pass(piece.pass);
    const Operand room = memory_[piece.pass].elements.slice(piece.offset, piece.block_of);
    const PassBlocks::Decoded decoded = PassBlocks::decode(
        core_.resources(), place.body, recv.what.envelope.dtype, host_bytes(room));
    give_buffer(peer);
    bytes = decoded.bytes;
    if (decoded.problem != nullptr) {
      bump(core_.resources().counters->bad_blocks, std::uint64_t{1});
      collective::PassText text;
      std::snprintf(text, sizeof(text), "a block of node %u: %s", node, decoded.problem);
      mailbox_.fail(piece.pass, {Errc::corrupt_data, collective::kNoRank, text});
      bytes = 0;
    }
  }
  if (piece.pass != collective::kNoSlot) copies_.deliver(piece.pass, {piece.offset, bytes});
  mailbox_.on_piece(piece, bytes, Mailbox::Piece::whole);
}

bool PointToPoint::accept_offer(std::uint32_t node, const wire::FrameHeader& header,
                                const net::PayloadPlace& place, bool damaged) {
  std::uint32_t& slab = core_.peer(node).receiving.offer_slab;
  Mailbox::Arriving offer;
  offer.node = node;
  offer.envelope = parties_of(header);
  offer.damaged = damaged;
  offer.slab = slab;
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
  if (sound && mailbox_.on_offer(offer)) {
    slab = SlabPool::kNone;
    return true;
  }
  if (slab != SlabPool::kNone) pools_[node]->give(slab);
  slab = SlabPool::kNone;
  return false;
}

bool PointToPoint::on_frame(std::uint32_t node, const wire::FrameHeader& header,
                            const net::PayloadPlace& place) {
  wire::OpFailBody body;
  collective::Failure failure;
  switch (static_cast<FrameKind>(header.kind)) {
    case FrameKind::send_offer:
      return accept_offer(node, header, place, false);
    case FrameKind::send_accept:
      return mailbox_.on_accept(node, header.op_seq);
    case FrameKind::send_piece:
      accept_piece(node, place);
      return true;
    case FrameKind::send_end:
      return (place.body.empty() || read_failure(place.body, body, failure)) &&
             mailbox_.on_end(node, header.op_seq, failure);
    case FrameKind::send_withdraw:
      return read_failure(place.body, body, failure) &&
             mailbox_.on_withdraw(node, header.op_seq, failure);
    case FrameKind::rank_left:
      return mailbox_.on_rank_left(node, header.op_seq);
    default:
      return false;
  }
}

// The header is good, and says whose it was.
void PointToPoint::on_bad_payload(std::uint32_t node, const wire::FrameHeader& header) {
  collective::PassText text;
  const collective::Failure failure = collective::damage_by(node, text);
  switch (static_cast<FrameKind>(header.kind)) {
    case FrameKind::send_offer:
      accept_offer(node, header, {}, true);
      break;
    case FrameKind::send_piece:
      give_buffer(core_.peer(node));
      mailbox_.on_piece(core_.peer(node).receiving.piece, 0, Mailbox::Piece::damaged);
      break;
    case FrameKind::send_end:
      mailbox_.on_end(node, header.op_seq, failure);
      break;
    case FrameKind::send_withdraw:
      mailbox_.on_withdraw(node, header.op_seq, failure);
      break;
    default:
      break;
  }
}

void PointToPoint::on_abandoned(std::uint32_t node, const Receiving& receiving) {
  if (receiving.offer_slab != SlabPool::kNone) pools_[node]->give(receiving.offer_slab);
  mailbox_.on_piece(receiving.piece, 0, Mailbox::Piece::abandoned);
}

}  // namespace tern::daemon
