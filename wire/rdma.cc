#include "wire/rdma.h"

#include <algorithm>
#include <cstring>

#include "wire/crc32c.h"
#include "wire/hello.h"

namespace tern::wire {
namespace {

// Queue pair numbers and packet sequence numbers have 24 bits (InfiniBand Architecture, 9.2).
constexpr std::uint32_t kMax24 = 0xffffff;

RdmaError check(const RdmaBody& body) noexcept {
  if (body.version != kRdmaVersion) return RdmaError::foreign_version;
  if (body.reserved0 != 0 || body.reserved[0] != 0 || body.reserved[1] != 0) {
    return RdmaError::reserved_not_zero;
  }
  if (body.qp_number == 0 || body.qp_number > kMax24 || body.packet_number > kMax24) {
    return RdmaError::bad_queue_pair;
  }
  const bool has_gid = std::any_of(body.gid.begin(), body.gid.end(), [](auto b) { return b != 0; });
  const auto type = static_cast<GidType>(body.gid_type);
  if (type > GidType::roce_v2 || !has_gid || body.mtu < 1 || body.mtu > 5) {
    return RdmaError::bad_address;
  }
  if (body.receive_slots < kMinRdmaSlots || body.receive_slots > kMaxRdmaSlots ||
      body.slot_bytes < kMinRdmaSlotBytes || body.slot_bytes > kMaxRdmaSlotBytes) {
    return RdmaError::absurd_limits;
  }
  return RdmaError::none;
}

FrameHeader header_of(FrameKind kind, std::span<const std::byte> payload) noexcept {
  FrameHeader header;
  header.version = kHelloVersion;
  header.kind = static_cast<std::uint8_t>(kind);
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.payload_crc = payload.empty() ? 0 : crc32c(payload);
  seal_frame_header(header);
  return header;
}

}  // namespace

const char* rdma_error_text(RdmaError error) noexcept {
  switch (error) {
    case RdmaError::none:
      return "no error";
    case RdmaError::wrong_kind:
      return "the frame does not belong to the set-up of RDMA";
    case RdmaError::wrong_size:
      return "the RDMA offer has a wrong size";
    case RdmaError::bad_payload_crc:
      return "the RDMA offer's CRC is wrong";
    case RdmaError::foreign_version:
      return "the peer speaks another version of RDMA: run compatible releases on all nodes";
    case RdmaError::reserved_not_zero:
      return "a reserved field of the RDMA offer is not zero";
    case RdmaError::bad_queue_pair:
      return "the RDMA offer names a queue pair that cannot exist";
    case RdmaError::bad_address:
      return "the RDMA offer has no valid GID or MTU";
    case RdmaError::absurd_limits:
      return "the RDMA offer has absurd limits";
  }
  return "unknown";
}

ParsedRdma parse_rdma(const FrameHeader& header, std::span<const std::byte> payload) noexcept {
  ParsedRdma parsed;
  const auto kind = static_cast<FrameKind>(header.kind);
  if (kind != FrameKind::rdma_offer && kind != FrameKind::rdma_accept) {
    parsed.error = RdmaError::wrong_kind;
    return parsed;
  }
  if (header.payload_bytes != sizeof(RdmaBody) || payload.size() != sizeof(RdmaBody)) {
    parsed.error = RdmaError::wrong_size;
    return parsed;
  }
  std::memcpy(&parsed.body, payload.data(), sizeof(RdmaBody));
  if (crc32c(std::as_bytes(std::span(&parsed.body, 1))) != header.payload_crc) {
    parsed.error = RdmaError::bad_payload_crc;
    return parsed;
  }
  parsed.error = check(parsed.body);
  return parsed;
}

RdmaFrame make_rdma(FrameKind kind, const RdmaBody& body) noexcept {
  RdmaFrame frame;
  frame.body = body;
  frame.header = header_of(kind, std::as_bytes(std::span(&frame.body, 1)));
  return frame;
}

FrameHeader make_rdma_ready() noexcept { return header_of(FrameKind::rdma_ready, {}); }

RdmaDeclineFrame make_rdma_decline(Errc code, const char* text) noexcept {
  RdmaDeclineFrame frame;
  frame.body = make_refuse(code, text).body;
  frame.header = header_of(FrameKind::rdma_decline, std::as_bytes(std::span(&frame.body, 1)));
  return frame;
}

}  // namespace tern::wire
