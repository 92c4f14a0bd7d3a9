#pragma once

// How two daemons that are joined by a connection move it to a pair of RDMA queue pairs. The frames
// below travel on the connection that the hello opened, which stays as the control channel; the
// side that was connected to asks:
//
//   hello (kFeatureRdma) ->
//                        <- rdma_offer     its queue pair
//   rdma_accept          ->                the other one; it receives from now on
//                        <- a probe over RDMA: a message of one packet as large as any
//   the same             ->                which prove that such packets pass both ways
//                        <- rdma_ready     both send over RDMA from now on
//
// rdma_decline instead of any of them: frames go on travelling on the connection.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/errc.h"
#include "wire/frame.h"

namespace tern::wire {

// Bit of HelloBody::features: the sender understands the frames of this file.
inline constexpr std::uint64_t kFeatureRdma = 1;

// The only version of RdmaBody and of the messages on a queue pair.
inline constexpr std::uint16_t kRdmaVersion = 1;

// Bit of RdmaBody::features: payloads need no CRC where a queue pair protects them. In force if
// both sides set it.
inline constexpr std::uint64_t kRdmaNoPayloadCrc = 1;
// The sender of this body marks what a receiver that sleeps must wake for (solicited events).
inline constexpr std::uint64_t kRdmaMarks = 2;
// The sender of this body sends a probe before its first frame, and expects one. In force if both
// sides set it; else the accepting side sends an empty message.
inline constexpr std::uint64_t kRdmaProbes = 4;

enum class GidType : std::uint8_t { infiniband = 0, roce_v1 = 1, roce_v2 = 2 };

// Payload of rdma_offer and rdma_accept. Each message on the queue pair is one SEND of a part of
// one frame, no larger than the receiver's slots; its immediate data is the number of messages,
// modulo 2^32, that its sender has consumed and posted new slots for. No memory is opened to the
// other side, so there are no keys.
struct RdmaBody {
  std::uint16_t version = kRdmaVersion;
  std::uint8_t gid_type = 0;
  std::uint8_t mtu = 0;  // 1 to 5: 256 to 4096 bytes, as in the verbs
  std::uint32_t qp_number = 0;
  std::uint32_t packet_number = 0;  // the first that the sender of this body uses
  std::uint16_t lid = 0;            // InfiniBand only
  std::uint16_t reserved0 = 0;
  std::array<std::uint8_t, 16> gid{};
  std::uint32_t receive_slots = 0;  // messages that may be under way to the sender of this body
  std::uint32_t slot_bytes = 0;     // and how large each may be
  std::uint64_t features = 0;
  std::uint64_t reserved[2] = {};
};
TERN_FORMAT_STRUCT(RdmaBody, 64);
static_assert(offsetof(RdmaBody, gid) == 16);
static_assert(offsetof(RdmaBody, features) == 40);

inline constexpr std::uint32_t kMinRdmaSlots = 8;
inline constexpr std::uint32_t kMaxRdmaSlots = 4096;
inline constexpr std::uint32_t kMinRdmaSlotBytes = 4096;
inline constexpr std::uint32_t kMaxRdmaSlotBytes = 1u << 20;

enum class RdmaError : std::uint8_t {
  none,
  wrong_kind,
  wrong_size,
  bad_payload_crc,
  foreign_version,
  reserved_not_zero,
  bad_queue_pair,  // a queue pair or packet number that no device has
  bad_address,     // no GID, an unknown kind of GID, or an MTU outside 1..5
  absurd_limits,   // of slots
};
const char* rdma_error_text(RdmaError error) noexcept;

struct ParsedRdma {
  RdmaError error = RdmaError::none;
  RdmaBody body;
};
// `header` is one that parse_frame_header has accepted, `payload` all bytes that follow it. Accepts
// rdma_offer and rdma_accept.
ParsedRdma parse_rdma(const FrameHeader& header, std::span<const std::byte> payload) noexcept;

constexpr bool is_rdma(FrameKind kind) noexcept {
  return kind >= FrameKind::rdma_offer && kind <= FrameKind::rdma_decline;
}

// Whole frames, contiguous and sealed.
struct RdmaFrame {
  FrameHeader header;
  RdmaBody body;
};
TERN_FORMAT_STRUCT(RdmaFrame, 152);

struct RdmaDeclineFrame {
  FrameHeader header;
  RefuseBody body;
};
TERN_FORMAT_STRUCT(RdmaDeclineFrame, 344);

// REQUIRES: kind is rdma_offer or rdma_accept.
RdmaFrame make_rdma(FrameKind kind, const RdmaBody& body) noexcept;
FrameHeader make_rdma_ready() noexcept;
// The text is cut to what fits.
RdmaDeclineFrame make_rdma_decline(Errc code, const char* text) noexcept;

}  // namespace tern::wire
