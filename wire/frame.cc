#include "wire/frame.h"

#include <cstring>

#include "wire/crc32c.h"

namespace tern::wire {
namespace {

std::uint32_t header_crc_of(const FrameHeader& header) noexcept {
  return crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(FrameHeader, header_crc)));
}

bool is_known(std::uint8_t kind) noexcept {
  switch (static_cast<FrameKind>(kind)) {
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
      return true;
  }
  return false;
}

ParseError check(const FrameHeader& header) noexcept {
  if (header.magic != kFrameMagic) return ParseError::bad_magic;
  // Before the CRC, because another version may keep its CRC elsewhere; only the first 8 bytes are
  // promised never to move.
  if (header.version < kWireProtocolMin || header.version > kWireProtocol) {
    return ParseError::bad_version;
  }
  if (header.header_crc != header_crc_of(header)) return ParseError::bad_header_crc;
  if (!is_known(header.kind)) return ParseError::unknown_kind;
  if ((header.flags & ~kFlagRawBlock) != 0 || header.reserved0 != 0 || header.reserved1 != 0 ||
      header.reserved2 != 0) {
    return ParseError::reserved_not_zero;
  }
  if (header.payload_bytes > kMaxPayloadBytes) return ParseError::too_large;
  return ParseError::none;
}

}  // namespace

const char* parse_error_text(ParseError error) noexcept {
  switch (error) {
    case ParseError::none:
      return "no error";
    case ParseError::too_short:
      return "the frame ends inside its header";
    case ParseError::bad_magic:
      return "the bytes are not a Tern frame";
    case ParseError::bad_version:
      return "the frame has a protocol version that is not spoken here";
    case ParseError::bad_header_crc:
      return "the frame header's CRC is wrong";
    case ParseError::unknown_kind:
      return "the frame is of an unknown kind";
    case ParseError::reserved_not_zero:
      return "a reserved field of the frame header is not zero";
    case ParseError::too_large:
      return "the frame's payload is larger than any may be";
  }
  return "unknown";
}

ParsedFrame parse_frame_header(std::span<const std::byte> bytes) noexcept {
  ParsedFrame parsed;
  if (bytes.size() < kFrameHeaderBytes) {
    parsed.error = ParseError::too_short;
    return parsed;
  }
  std::memcpy(&parsed.header, bytes.data(), kFrameHeaderBytes);
  parsed.error = check(parsed.header);
  return parsed;
}

void seal_frame_header(FrameHeader& header) noexcept { header.header_crc = header_crc_of(header); }

}  // namespace tern::wire
