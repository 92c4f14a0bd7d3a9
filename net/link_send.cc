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
  state_->seal(record, header, prefix, body);
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
  state_->seal(record, header, payload.first(in_head), record.copied);
  record.cookie = 0;
  state_->send_new(record);
}

// Completes the newest record.
void Link::State::seal(FrameRecord& record, const wire::FrameHeader& header,
                       std::span<const std::byte> prefix, std::span<const std::byte> body) {
  const std::size_t payload_bytes = prefix.size() + body.size();
  TERN_CHECK(prefix.size() <= kMaxPrefixBytes && payload_bytes <= wire::kMaxPayloadBytes);
  TERN_CHECK(wire::is_sequenced(static_cast<wire::FrameKind>(header.kind)));
  wire::FrameHeader sealed = header;
  sealed.magic = wire::kFrameMagic;
  sealed.version = version;
  sealed.link_seq = unacked.next() - 1;
  sealed.ack_seq = next_receive - 1;
  sealed.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  record.has_crc = !connection || connection->wants_payload_crc();
  sealed.payload_crc = record.has_crc ? wire::crc32c(body, wire::crc32c(prefix)) : 0;
  wire::seal_frame_header(sealed);
  std::memcpy(record.head.data(), &sealed, sizeof sealed);
  if (!prefix.empty()) {
    std::memcpy(record.head.data() + sizeof sealed, prefix.data(), prefix.size());
  }
  record.head_bytes = static_cast<std::uint32_t>(sizeof sealed + prefix.size());
  record.payload_bytes = sealed.payload_bytes;
  record.body = body;
  record.sent_ns = 0;
  unacked_bytes += payload_bytes;
}

void Link::State::send_new(FrameRecord& record) {
  ++stats.frames_sent;
  stats.bytes_sent += record.payload_bytes;
  if (state != LinkState::open) return;  // open() sends it
  transmit(record, clock.now_ns());
  note_told();
}

// The frame was sealed for a carrier that needs no CRC, and now leaves on another.
void Link::State::add_payload_crc(FrameRecord& record) {
  wire::FrameHeader sealed;
  std::memcpy(&sealed, record.head.data(), sizeof sealed);
  const auto prefix = std::span(record.head).first(record.head_bytes).subspan(sizeof sealed);
  sealed.payload_crc = wire::crc32c(record.body, wire::crc32c(prefix));
  wire::seal_frame_header(sealed);
  std::memcpy(record.head.data(), &sealed, sizeof sealed);
  record.has_crc = true;
}

void Link::State::transmit(FrameRecord& record, std::uint64_t now) {
  if (!record.has_crc && connection->wants_payload_crc()) add_payload_crc(record);
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
  header.ack_seq = next_receive - 1;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.payload_crc = wire::crc32c(payload);
  wire::seal_frame_header(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!payload.empty()) std::memcpy(bytes.data() + sizeof header, payload.data(), payload.size());
  if (!send_control(std::span<const std::byte>(bytes).first(sizeof header + payload.size()))) {
    return false;
  }
  note_told();
  return true;
}

bool Link::State::send_ack(std::uint64_t now) {
  wire::AckBody body{};
  body.bytes = stats.bytes_received;
  body.receiver_ns = now;
  body.decode_ns = decode_ns;
  body.delivered = delivered;
  if (!send_control(wire::FrameKind::ack, std::as_bytes(std::span(&body, 1)))) {
    // All places are queued behind data: one of those frames will tell.
    ack_blocked_until_ns = now + settings.ack_delay_ns;
    return false;
  }
  reported = next_receive;
  return true;
}

void Link::State::note_told() noexcept {
  told = next_receive - 1;
  untold_bytes = 0;
  untold_since_ns = 0;
}

}  // namespace tern::net
