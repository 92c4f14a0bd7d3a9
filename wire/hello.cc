#include "wire/hello.h"

#include <algorithm>
#include <cstring>

#include "wire/crc32c.h"

namespace tern::wire {
namespace {

HelloError check(const FrameHeader& header, const HelloBody& body) noexcept {
  if (header.link_seq != 0 || body.reserved != 0) {
    return HelloError::reserved_not_zero;
  }
  if (body.version_min == 0 || body.version_min > body.version_max) return HelloError::bad_value;
  if (body.version_max < kWireProtocolMin || body.version_min > kWireProtocol) {
    return HelloError::no_common_version;
  }
  if (body.node == NodeId{} || body.session == 0 || body.next_receive == 0 || body.resume > 1) {
    return HelloError::bad_value;
  }
  return HelloError::none;
}

}  // namespace

const char* hello_error_text(HelloError error) noexcept {
  switch (error) {
    case HelloError::none:
      return "no error";
    case HelloError::wrong_kind:
      return "the connection does not begin with a hello";
    case HelloError::wrong_size:
      return "the hello has a wrong size";
    case HelloError::bad_payload_crc:
      return "the hello's CRC is wrong";
    case HelloError::reserved_not_zero:
      return "a reserved field of the hello is not zero";
    case HelloError::no_common_version:
      return "the two daemons share no protocol version: run compatible releases on all nodes";
    case HelloError::bad_value:
      return "the hello lacks a node, a session or a sequence number";
  }
  return "unknown";
}

Errc hello_error_code(HelloError error) noexcept {
  switch (error) {
    case HelloError::none:
      return Errc::ok;
    case HelloError::no_common_version:
      return Errc::version_mismatch;
    case HelloError::bad_payload_crc:
      return Errc::corrupt_data;
    case HelloError::wrong_kind:
    case HelloError::wrong_size:
    case HelloError::reserved_not_zero:
    case HelloError::bad_value:
      return Errc::protocol_error;
  }
  return Errc::protocol_error;
}

ParsedHello parse_hello(const FrameHeader& header, std::span<const std::byte> payload) noexcept {
  ParsedHello parsed;
  const auto kind = static_cast<FrameKind>(header.kind);
  if (kind != FrameKind::hello && kind != FrameKind::hello_reply) {
    parsed.error = HelloError::wrong_kind;
    return parsed;
  }
  if (header.payload_bytes != sizeof(HelloBody) || payload.size() != sizeof(HelloBody)) {
    parsed.error = HelloError::wrong_size;
    return parsed;
  }
  std::memcpy(&parsed.body, payload.data(), sizeof(HelloBody));
  if (crc32c(std::as_bytes(std::span(&parsed.body, 1))) != header.payload_crc) {
    parsed.error = HelloError::bad_payload_crc;
    return parsed;
  }
  parsed.error = check(header, parsed.body);
  if (parsed.error == HelloError::none) {
    parsed.version = std::min(parsed.body.version_max, kWireProtocol);
  }
  return parsed;
}

HelloFrame make_hello(FrameKind kind, const HelloBody& body) noexcept {
  HelloFrame frame;
  frame.header.version = kHelloVersion;
  frame.header.kind = static_cast<std::uint8_t>(kind);
  frame.header.payload_bytes = sizeof(HelloBody);
  frame.body = body;
  frame.header.payload_crc = crc32c(std::as_bytes(std::span(&frame.body, 1)));
  seal_frame_header(frame.header);
  return frame;
}

RefuseFrame make_refuse(Errc code, const char* text) noexcept {
  RefuseFrame frame;
  frame.header.version = kHelloVersion;
  frame.header.kind = static_cast<std::uint8_t>(FrameKind::refuse);
  frame.header.payload_bytes = sizeof(RefuseBody);
  frame.body = RefuseBody{};
  frame.body.code = static_cast<std::int32_t>(code);
  std::memcpy(frame.body.text, text, std::min(std::strlen(text), sizeof(frame.body.text) - 1));
  frame.header.payload_crc = crc32c(std::as_bytes(std::span(&frame.body, 1)));
  seal_frame_header(frame.header);
  return frame;
}

}  // namespace tern::wire
