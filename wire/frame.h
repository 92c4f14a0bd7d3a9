#pragma once

// The frame: what travels on every link, whatever carries it. Version kWireProtocol.
// docs/wire-format.md explains it beside this file; tests/wire freezes it.

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/layout_check.h"
#include "wire/versions.h"

namespace tern::wire {

inline constexpr std::uint32_t kFrameMagic = 0x314e5254;  // "TRN1"

enum class FrameKind : std::uint8_t {
  // Unsequenced: they set up and keep a link, and are never replayed. From ack to goodbye, link_seq
  // is that of the last sequenced frame sent before, so that a loss shows though no further one
  // follows.
  hello = 1,
  hello_reply = 2,
  refuse = 3,  // payload: RefuseBody; the connection ends after it
  ack = 4,     // payload: AckBody
  heartbeat = 5,
  goodbye = 6,  // orderly end of the daemon: the link is lost at once, no resume
  // Between the transports, which never pass them on to a link; wire/rdma.h. link_seq is zero.
  rdma_offer = 7,     // payload: RdmaBody
  rdma_accept = 8,    // payload: RdmaBody
  rdma_ready = 9,     // no payload
  rdma_decline = 10,  // payload: RefuseBody
  // Sequenced: delivered once and in order.
  control = 16,       // between conductors; payload: one JSON object
  announce = 17,      // payload: AnnounceBody, then the eager contribution if there is one
  grant = 18,         // the owner has room for `count` chunks from `chunk` on; no payload
  contribution = 19,  // reduce leg; payload: block header, block
  result = 20,        // broadcast leg; payload: block header, block
  op_fail = 21,       // payload: OpFailBody
  verify = 22,        // payload: VerifyBody per rank of the node
  submitted = 23,     // payload: SubmittedBody; only to a peer whose hello has kFeatureSubmitted
  // Of sends, only between peers whose hellos have kFeatureSend. op_seq is the number that the
  // sender's node has given the send; an offer has more in its header (SendOfferBody).
  send_offer = 24,     // payload: SendOfferBody, then the elements of an eager one
  send_accept = 25,    // the receiver waits for the elements; no payload
  send_piece = 26,     // payload: the elements that follow those sent before, or a block of them
  send_end = 27,       // the receiver's last word. No payload: delivered; OpFailBody: failed
  send_withdraw = 28,  // payload: OpFailBody; the sender sends no more, and waits for send_end
  rank_left = 29,      // rank op_seq of this node sends and receives no more; no payload
};

// Bits of FrameHeader::flags.
inline constexpr std::uint8_t kFlagRawBlock =
    1;  // the block's payload is plain elements of the op's dtype

// Which way a block goes: a contribution to its chunk's owner, or the owner's result to all.
enum class Leg : std::uint8_t { none = 0, reduce = 1, broadcast = 2 };

// Why each field: magic and version, because the first bytes of a connection may be anybody's;
// link_seq, so that a lost or doubled frame shows as a gap; group, a token that only members can
// derive; tensor, op_seq, chunk, leg and source_node, so that a block finds its place with no other
// lookup; epoch, so that frames of a dead epoch are refused; ack_seq, so that data in both
// directions needs few ack frames.
struct FrameHeader {
  std::uint32_t magic = kFrameMagic;
  std::uint16_t version = kWireProtocol;
  std::uint8_t kind = 0;
  std::uint8_t flags = 0;
  std::uint64_t link_seq =
      0;  // from 1 on each link and direction; see FrameKind for unsequenced ones
  std::uint64_t ack_seq = 0;  // all sequenced frames up to and including this one have arrived here
  std::uint64_t group = 0;
  std::uint64_t tensor = 0;
  std::uint64_t op_seq = 0;
  std::uint32_t epoch = 0;
  std::uint32_t chunk = 0;
  std::uint32_t count = 0;  // grant: number of chunks
  std::uint16_t source_node = 0;
  std::uint8_t leg = 0;  // Leg
  std::uint8_t reserved0 = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t payload_crc = 0;  // CRC32C; 0 when there is no payload
  std::uint64_t reserved1 = 0;
  std::uint32_t reserved2 = 0;
  std::uint32_t header_crc = 0;  // CRC32C of all bytes before it
};
TERN_FORMAT_STRUCT(FrameHeader, 88);
static_assert(offsetof(FrameHeader, link_seq) == 8);
static_assert(offsetof(FrameHeader, group) == 24);
static_assert(offsetof(FrameHeader, payload_bytes) == 64);
static_assert(offsetof(FrameHeader, header_crc) == 84);

inline constexpr std::size_t kFrameHeaderBytes = sizeof(FrameHeader);
// No frame is larger; a daemon's chunk size is bounded so that every block fits.
inline constexpr std::uint32_t kMaxPayloadBytes = 16u << 20;

// Random at every start of a daemon, so that a restarted one is never taken for the old one.
struct NodeId {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  auto operator<=>(const NodeId&) const = default;
};

inline constexpr std::uint16_t kConductorLane = 0xffff;

// Bit of HelloBody::features: the sender understands frames of the kind `submitted`. Bit 0 is in
// wire/rdma.h.
inline constexpr std::uint64_t kFeatureSubmitted = 2;
// Likewise of the kinds from send_offer to rank_left.
inline constexpr std::uint64_t kFeatureSend = 4;
// It takes lossy blocks of what moves.
inline constexpr std::uint64_t kFeatureLossyMoves = 8;
// It takes offers of sends whose pieces are blocks (SendOfferBody::lossy).
inline constexpr std::uint64_t kFeatureLossySends = 16;
// It takes kAnnounceClientBlocks.
inline constexpr std::uint64_t kFeatureClientBlocks = 32;

// Payload of hello and hello_reply.
struct HelloBody {
  std::uint16_t version_min = kWireProtocolMin;
  std::uint16_t version_max = kWireProtocol;
  std::uint16_t lane =
      0;  // the lane this link belongs to on both sides; kConductorLane for conductors
  std::uint16_t resume = 0;  // 1: continues `session`, replaying from the other side's next_receive
  std::uint64_t features = 0;
  NodeId node;                     // of the sender
  NodeId expected_node;            // of the receiver, all zero if only its address is known
  std::uint64_t session = 0;       // chosen at random by the side that connects first
  std::uint64_t next_receive = 1;  // the link_seq the sender of this body expects next
  std::uint64_t group = 0;         // whose link it is, by public bytes of the id; 0: of conductors
  std::uint64_t reserved = 0;
};
TERN_FORMAT_STRUCT(HelloBody, 80);

struct RefuseBody {
  std::int32_t code;  // tern::Errc
  std::uint32_t reserved;
  char text[248];  // zero-terminated
};
TERN_FORMAT_STRUCT(RefuseBody, 256);

struct AckBody {
  std::uint64_t bytes;        // payload bytes of all sequenced frames received on this link
  std::uint64_t receiver_ns;  // the receiver's clock when it wrote this
  std::uint64_t decode_ns;    // time the receiver has spent decoding this link's blocks, in total
  std::uint64_t delivered;    // bytes per second that its carrier brings to the sender; 0: unknown
};
TERN_FORMAT_STRUCT(AckBody, 32);

enum class ParseError : std::uint8_t {
  none,
  too_short,
  bad_magic,
  bad_version,
  bad_header_crc,
  unknown_kind,
  reserved_not_zero,
  too_large,
};
const char* parse_error_text(ParseError error) noexcept;

struct ParsedFrame {
  ParseError error = ParseError::none;
  FrameHeader header;
};

// The only function that believes a frame header. Copies, then verifies, then returns the copy.
ParsedFrame parse_frame_header(std::span<const std::byte> bytes) noexcept;

// Writes header_crc.
void seal_frame_header(FrameHeader& header) noexcept;

constexpr bool is_sequenced(FrameKind kind) noexcept {
  return static_cast<std::uint8_t>(kind) >= 16;
}

}  // namespace tern::wire
