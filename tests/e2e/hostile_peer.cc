#include "tests/e2e/hostile_peer.h"

#include <algorithm>

namespace tern::e2e {

std::vector<std::byte> HostilePeer::sealed(wire::FrameHeader header,
                                           std::span<const std::byte> payload) {
  wire::seal_frame_header(header);
  std::vector<std::byte> bytes(sizeof(header) + payload.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::copy(payload.begin(), payload.end(), bytes.begin() + sizeof(header));
  return bytes;
}

std::optional<HostilePeer::Received> HostilePeer::receive_frame() {
  while (true) {
    std::vector<std::byte> head(sizeof(wire::FrameHeader));
    if (!receive(head)) return std::nullopt;
    const auto parsed = wire::parse_frame_header(head);
    if (parsed.error != wire::ParseError::none) return std::nullopt;
    Received frame{parsed.header, std::vector<std::byte>(parsed.header.payload_bytes)};
    if (!receive(frame.payload)) return std::nullopt;
    if (wire::is_sequenced(static_cast<wire::FrameKind>(frame.header.kind))) return frame;
  }
}

}  // namespace tern::e2e
