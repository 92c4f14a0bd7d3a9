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

}  // namespace tern::e2e
