#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "net/link_state.h"

namespace tern::net {
namespace {

// The payload that an unsequenced frame must have; ~0 for kinds that do not travel on a connection
// whose hello has been read.
std::uint32_t control_payload_bytes(wire::FrameKind kind) {
  switch (kind) {
    case wire::FrameKind::hello_reply:
      return sizeof(wire::HelloBody);
    case wire::FrameKind::refuse:
      return sizeof(wire::RefuseBody);
    case wire::FrameKind::ack:
      return sizeof(wire::AckBody);
    case wire::FrameKind::heartbeat:
    case wire::FrameKind::goodbye:
      return 0;
    default:
      return ~std::uint32_t{0};
  }
}

}  // namespace

bool Link::State::on_header(const wire::FrameHeader& header, PayloadPlace& place) {
  if (!wire::is_sequenced(static_cast<wire::FrameKind>(header.kind))) {
    return begin_control(header, place);
  }
  if (state != LinkState::open || header.version != version || header.link_seq != arrivals.next() ||
      !take_ack(header.ack_seq)) {
    ++stats.refused_frames;
    return false;
  }
  if (state != LinkState::open) return false;  // closed in a callback of take_ack
  place = sink.place_payload(link, header);
  if (state != LinkState::open) return false;
  const std::size_t room = place.prefix.size() + place.body.size();
  TERN_CHECK(room == header.payload_bytes || room == 0);
  announced.is_pending = true;
  announced.header = header;
  announced.place = place;
  return true;
}

bool Link::State::begin_control(const wire::FrameHeader& header, PayloadPlace& place) {
  const auto kind = static_cast<wire::FrameKind>(header.kind);
  bool fits = false;
  switch (kind) {
    case wire::FrameKind::hello_reply:
      fits = identity.active && state != LinkState::open && header.link_seq == 0;
      break;
    case wire::FrameKind::refuse:
      fits = header.link_seq == 0;
      break;
    default:
      // The last sequenced frame before this one must have arrived.
      fits = state == LinkState::open && header.link_seq == arrivals.newest();
      break;
  }
  if (!fits || header.payload_bytes != control_payload_bytes(kind)) {
    ++stats.refused_frames;
    return false;
  }
  place.prefix = {};
  place.body = std::span(control_payload).first(header.payload_bytes);
  return true;
}

void Link::State::finish_control(const wire::FrameHeader& header, bool payload_valid) {
  if (!payload_valid) {
    ++stats.bad_payloads;
    break_for_breach("the payload of a control frame has a wrong CRC");
    return;
  }
  switch (static_cast<wire::FrameKind>(header.kind)) {
    case wire::FrameKind::hello_reply:
      finish_hello_reply(header);
      return;
    case wire::FrameKind::refuse:
      finish_refuse();
      return;
    case wire::FrameKind::goodbye:
      said_goodbye = true;
      lose(Errc::peer_lost, "the peer daemon is shutting down");
      return;
    case wire::FrameKind::ack: {
      wire::AckBody body;
      std::memcpy(&body, control_payload.data(), sizeof body);
      stats.peer_decode_ns = body.decode_ns;
      stats.peer_delivers = body.delivered;
      note_clock(header.ack_seq, body.receiver_ns);
      break;
    }
    default:
      break;
  }
  if (!take_ack(header.ack_seq)) {
    ++stats.refused_frames;
    break_for_breach("the peer acknowledged what was not sent");
  }
}

void Link::State::on_frame(const wire::FrameHeader& header, const PayloadPlace& place,
                           bool payload_valid) {
  if (!wire::is_sequenced(static_cast<wire::FrameKind>(header.kind))) {
    finish_control(header, payload_valid);
    return;
  }
  announced.is_pending = false;
  arrivals.add(header.payload_bytes);
  ++stats.frames_received;
  stats.bytes_received += header.payload_bytes;
  if (!payload_valid) ++stats.bad_payloads;
  if (sink.on_frame(link, header, place, payload_valid) || state == LinkState::lost) return;
  constexpr const char* kBreach = "the peer sent a frame that breaks the protocol";
  sink.on_breach(link, kBreach);
  if (state == LinkState::open) {
    const wire::RefuseFrame frame =
        wire::make_refuse(Errc::protocol_error, "a frame broke the protocol");
    send_control(std::as_bytes(std::span(&frame, 1)));
  }
  lose(Errc::protocol_error, kBreach);
}

// Before the acknowledged frames are forgotten.
void Link::State::note_clock(std::uint64_t ack_seq, std::uint64_t receiver_ns) {
  clock_offset.note(unacked.holds(ack_seq) ? unacked.at(ack_seq).sent_ns : 0, receiver_ns,
                    clock.now_ns());
  report_clock();
}

void Link::State::report_clock() {
  const ClockOffset::Estimate estimate = clock_offset.estimate();
  stats.clock_offset_ns = estimate.ns;
  stats.clock_error_ns = estimate.known ? estimate.error_ns : LinkStats::kUnknown;
}

// False: the peer acknowledges what it cannot have received. Believing it would free memory that
// the connection still reads.
bool Link::State::take_ack(std::uint64_t ack_seq) {
  if (ack_seq < unacked.first()) return true;
  if (ack_seq >= unacked.next()) return false;
  const FrameRecord& newest = unacked.at(ack_seq);
  if (newest.end_offset > taken()) return false;
  const std::uint64_t sample = clock.now_ns() - newest.sent_ns;
  stats.round_trip_ns = stats.round_trip_ns == 0
                            ? sample
                            : stats.round_trip_ns - stats.round_trip_ns / 8 + sample / 8;
  release_through(ack_seq);
  return true;
}

void Link::State::release_through(std::uint64_t seq) {
  while (!unacked.empty() && unacked.first() <= seq) {
    const FrameRecord& record = unacked.front();
    const std::uint64_t cookie = record.cookie;
    stats.acked_bytes += record.payload_bytes;
    unacked.pop();
    if (cookie != 0) sink.on_acked(link, cookie);
  }
}

}  // namespace tern::net
