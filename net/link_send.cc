#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "net/link_state.h"
#include "wire/crc32c.h"

namespace tern::net {

static_assert(FrameRecord::kHeadBytes == wire::kFrameHeaderBytes + Link::kMaxPrefixBytes);

void Link::send(const wire::FrameHeader& header, std::span<const std::byte> prefix,
                std::span<const std::byte> body, std::uint64_t cookie) {
  if (state_->state == LinkState::lost) return;
  FrameRecord& record = state_->unacked.push();
  state_->seal(header, {prefix, body});
  record.cookie = cookie;
  state_->send_new(record);
}

void Link::send_copy(const wire::FrameHeader& header, std::span<const std::byte> payload,
                     std::span<const std::byte> payload_rest) {
  if (state_->state == LinkState::lost) return;
  // What fits goes into the record's head; only the remainder needs memory.
  const std::size_t in_head = std::min(payload.size(), kMaxPrefixBytes);
  const auto tail = payload.subspan(in_head);
  FrameRecord& record = state_->unacked.push();
  record.copied.assign(tail.begin(), tail.end());
  record.copied.insert(record.copied.end(), payload_rest.begin(), payload_rest.end());
  state_->seal(header, {payload.first(in_head), record.copied});
  record.cookie = 0;
  state_->send_new(record);
}

void Link::State::seal(const wire::FrameHeader& header, const FrameFifo::Payload& payload) {
  TERN_CHECK(wire::is_sequenced(static_cast<wire::FrameKind>(header.kind)));
  wire::FrameHeader sealed = header;
  sealed.version = version;
  sealed.ack_seq = arrivals.newest();
  unacked.seal(sealed, payload, !connection || connection->wants_payload_crc());
}

void Link::State::send_new(FrameRecord& record) {
  ++stats.frames_sent;
  stats.bytes_sent += record.payload_bytes;
  if (state != LinkState::open) return;  // open() sends it
  transmit(record, clock.now_ns());
  arrivals.note_acknowledged();
}

void Link::State::transmit(FrameRecord& record, std::uint64_t now) {
  if (!record.has_crc && connection->wants_payload_crc()) record.add_payload_crc();
  offset += record.head_bytes + record.body.size();
  record.end_offset = offset;
  record.sent_ns = now;
  sent_ns = now;
  connection->send(record.outgoing());
}

bool Link::State::send_control(std::span<const std::byte> frame) {
  ControlFrames::Place* place = control.next(taken());
  if (place == nullptr) return false;
  std::memcpy(place->bytes.data(), frame.data(), frame.size());
  offset += frame.size();
  place->end_offset = offset;
  sent_ns = clock.now_ns();
  connection->send({std::span(place->bytes).first(frame.size()), {}});
  return true;
}

bool Link::State::send_control(wire::FrameKind kind, std::span<const std::byte> payload) {
  std::array<std::byte, wire::kFrameHeaderBytes + sizeof(wire::AckBody)> bytes;
  wire::FrameHeader header;
  header.version = version;
  header.kind = static_cast<std::uint8_t>(kind);
  header.link_seq = unacked.next() - 1;
  header.ack_seq = arrivals.newest();
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.payload_crc = wire::crc32c(payload);
  wire::seal_frame_header(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!payload.empty()) std::memcpy(bytes.data() + sizeof header, payload.data(), payload.size());
  if (!send_control(std::span<const std::byte>(bytes).first(sizeof header + payload.size()))) {
    return false;
  }
  arrivals.note_acknowledged();
  return true;
}

bool Link::State::send_ack(std::uint64_t now) {
  const wire::AckBody body = arrivals.report(now);
  if (!send_control(wire::FrameKind::ack, std::as_bytes(std::span(&body, 1)))) {
    // All places are queued behind data: one of those frames will tell.
    arrivals.put_off(now);
    return false;
  }
  arrivals.note_reported();
  return true;
}

}  // namespace tern::net
