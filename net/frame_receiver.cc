#include "net/frame_receiver.h"

#include <algorithm>
#include <cstring>

#include "wire/crc32c.h"

namespace tern::net {

std::array<std::span<std::byte>, 2> FrameReceiver::open_places() const noexcept {
  const std::size_t in_prefix = std::min(done_, place_.prefix.size());
  const std::size_t in_body = std::min(done_ - in_prefix, place_.body.size());
  return {place_.prefix.subspan(in_prefix), place_.body.subspan(in_body)};
}

std::size_t FrameReceiver::take_placed(std::size_t count) noexcept {
  std::size_t taken = 0;
  for (const auto place : open_places()) {
    const auto arrived = place.first(std::min(place.size(), count - taken));
    if (arrived.empty()) continue;
    if (checks_payload_) crc_ = wire::crc32c(arrived, crc_);
    taken += arrived.size();
  }
  done_ += taken;
  return taken;
}

std::size_t FrameReceiver::copy_in(std::span<const std::byte> bytes) noexcept {
  bytes = bytes.first(std::min(bytes.size(), missing_bytes()));
  if (checks_payload_) crc_ = wire::crc32c(bytes, crc_);
  auto left = bytes;
  for (const auto place : open_places()) {
    const auto part = left.first(std::min(left.size(), place.size()));
    if (!part.empty()) std::memcpy(place.data(), part.data(), part.size());
    left = left.subspan(part.size());
  }
  done_ += bytes.size();
  return bytes.size();
}

}  // namespace tern::net
