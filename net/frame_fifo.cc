#include "net/frame_fifo.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "wire/crc32c.h"

namespace tern::net {

void FrameRecord::add_payload_crc() noexcept {
  wire::FrameHeader sealed;
  std::memcpy(&sealed, head.data(), sizeof sealed);
  const auto prefix = std::span(head).first(head_bytes).subspan(sizeof sealed);
  sealed.payload_crc = wire::crc32c(body, wire::crc32c(prefix));
  wire::seal_frame_header(sealed);
  std::memcpy(head.data(), &sealed, sizeof sealed);
  has_crc = true;
}

FrameRecord& FrameFifo::push() {
  if (size() == ring_.size()) grow_ring();
  if (free_.empty()) grow_pool();
  FrameRecord* record = free_.back();
  free_.pop_back();
  ring_[next_ & (ring_.size() - 1)] = record;
  ++next_;
  return *record;
}

void FrameFifo::seal(wire::FrameHeader& header, const Payload& payload, bool with_payload_crc) {
  const auto [prefix, body] = payload;
  FrameRecord& record = at(next_ - 1);
  const std::size_t payload_bytes = prefix.size() + body.size();
  TERN_CHECK(wire::kFrameHeaderBytes + prefix.size() <= FrameRecord::kHeadBytes);
  TERN_CHECK(payload_bytes <= wire::kMaxPayloadBytes);
  header.magic = wire::kFrameMagic;
  header.link_seq = next_ - 1;
  header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  header.payload_crc = with_payload_crc ? wire::crc32c(body, wire::crc32c(prefix)) : 0;
  wire::seal_frame_header(header);
  std::memcpy(record.head.data(), &header, sizeof header);
  if (!prefix.empty()) {
    std::memcpy(record.head.data() + sizeof header, prefix.data(), prefix.size());
  }
  record.head_bytes = static_cast<std::uint32_t>(sizeof header + prefix.size());
  record.payload_bytes = header.payload_bytes;
  record.has_crc = with_payload_crc;
  record.body = body;
  record.sent_ns = 0;
  bytes_ += payload_bytes;
  copied_bytes_ += record.copied_bytes();
}

void FrameFifo::pop() noexcept {
  FrameRecord& record = front();
  ++first_;
  bytes_ -= record.payload_bytes;
  copied_bytes_ -= record.copied_bytes();
  record.body = {};
  if (record.copied.capacity() > kKeepBytes) std::vector<std::byte>().swap(record.copied);
  free_.push_back(&record);  // has room: grow_pool reserves for all records
}

void FrameFifo::grow_ring() {
  const std::size_t size = std::max<std::size_t>(kBlockRecords, 2 * ring_.size());
  std::vector<FrameRecord*> ring(size, nullptr);
  for (std::uint64_t seq = first_; seq != next_; ++seq) ring[seq & (size - 1)] = &at(seq);
  ring_.swap(ring);
}

void FrameFifo::grow_pool() {
  blocks_.push_back(std::make_unique<FrameRecord[]>(kBlockRecords));
  free_.reserve(blocks_.size() * kBlockRecords);
  for (std::size_t i = 0; i < kBlockRecords; ++i) free_.push_back(&blocks_.back()[i]);
}

}  // namespace tern::net
