#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "net/link_state.h"

namespace tern::net {

// ---- A handler for each kind of frame that is not sequenced -------------------------------------

struct Link::State::ControlHandler {
  std::uint32_t payload_bytes;
  // Whether such a frame may come now.
  bool (*fits)(const State& self, const wire::FrameHeader& header);
  // It has come whole, and its payload is good.
  void (*take)(State& self, const wire::FrameHeader& header);

  // Null: the kind does not travel on a connection whose hello has been read.
  static const ControlHandler* of(std::uint8_t kind);
};

const Link::State::ControlHandler* Link::State::ControlHandler::of(std::uint8_t kind) {
  using wire::FrameKind;
  // The last sequenced frame before this one must have arrived.
  static constexpr auto kIsInOrder = [](const State& self, const wire::FrameHeader& header) {
    return self.state == LinkState::open && header.link_seq == self.arrivals.newest();
  };
  static constexpr ControlHandler kHelloReply = {
      sizeof(wire::HelloBody),
      [](const State& self, const wire::FrameHeader& header) {
        return self.identity.active && self.state != LinkState::open && header.link_seq == 0;
      },
      [](State& self, const wire::FrameHeader& header) { self.finish_hello_reply(header); }};
  static constexpr ControlHandler kRefuse = {
      sizeof(wire::RefuseBody),
      [](const State&, const wire::FrameHeader& header) { return header.link_seq == 0; },
      [](State& self, const wire::FrameHeader&) { self.finish_refuse(); }};
  static constexpr ControlHandler kAck = {
      sizeof(wire::AckBody), kIsInOrder, [](State& self, const wire::FrameHeader& header) {
        wire::AckBody body;
        std::memcpy(&body, self.control_payload.data(), sizeof body);
        self.stats.peer_decode_ns = body.decode_ns;
        self.stats.peer_delivers = body.delivered;
        self.note_clock(header.ack_seq, body.receiver_ns);
        self.finish_ack(header);
      }};
  static constexpr ControlHandler kHeartbeat = {
      0, kIsInOrder, [](State& self, const wire::FrameHeader& header) { self.finish_ack(header); }};
  static constexpr ControlHandler kGoodbye = {
      0, kIsInOrder, [](State& self, const wire::FrameHeader&) {
        self.said_goodbye = true;
        self.lose(Errc::peer_lost, "the peer daemon is shutting down");
      }};
  switch (static_cast<FrameKind>(kind)) {
    case FrameKind::hello_reply:
      return &kHelloReply;
    case FrameKind::refuse:
      return &kRefuse;
    case FrameKind::ack:
      return &kAck;
    case FrameKind::heartbeat:
      return &kHeartbeat;
    case FrameKind::goodbye:
      return &kGoodbye;
    // Those before, and those of the transports.
    case FrameKind::hello:
    case FrameKind::rdma_offer:
    case FrameKind::rdma_accept:
    case FrameKind::rdma_ready:
    case FrameKind::rdma_decline:
    // Sequenced: the sink's.
    case FrameKind::control:
    case FrameKind::announce:
    case FrameKind::grant:
    case FrameKind::contribution:
    case FrameKind::result:
    case FrameKind::op_fail:
    case FrameKind::verify:
    case FrameKind::submitted:
    case FrameKind::send_offer:
    case FrameKind::send_accept:
    case FrameKind::send_piece:
    case FrameKind::send_end:
    case FrameKind::send_withdraw:
    case FrameKind::rank_left:
      return nullptr;
  }
  return nullptr;  // no kind of this version
}

// ---- Frames -------------------------------------------------------------------------------------

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
  const ControlHandler* const handler = ControlHandler::of(header.kind);
  if (handler == nullptr || !handler->fits(*this, header) ||
      header.payload_bytes != handler->payload_bytes) {
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
  const ControlHandler* const handler = ControlHandler::of(header.kind);
  TERN_CHECK(handler != nullptr);  // begin_control() has seen to that
  handler->take(*this, header);
}

void Link::State::finish_ack(const wire::FrameHeader& header) {
  if (take_ack(header.ack_seq)) return;
  ++stats.refused_frames;
  break_for_breach("the peer acknowledged what was not sent");
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
