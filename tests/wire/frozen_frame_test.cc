// Version 1 of the frame, frozen: copies of the structs, literal numbers, and bytes that were
// written once. A failure here means that daemons of different releases cannot talk; it is repaired
// in the code, never in this file, unless kWireProtocol takes a new number.

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "wire/crc32c.h"
#include "wire/frame.h"
#include "wire/hello.h"
#include "wire/op_frames.h"
#include "wire/rdma.h"

namespace tern::wire {
namespace frozen_frame_test {

struct FrozenHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint8_t kind, flags;
  std::uint64_t link_seq, ack_seq, group, tensor, op_seq;
  std::uint32_t epoch, chunk, count;
  std::uint16_t source_node;
  std::uint8_t leg, reserved0;
  std::uint32_t payload_bytes, payload_crc;
  std::uint64_t reserved1;
  std::uint32_t reserved2, header_crc;
};

struct FrozenHello {
  std::uint16_t version_min, version_max, lane, resume;
  std::uint64_t features, node[2], expected_node[2], session, next_receive, group, reserved;
};

TEST(FrozenFrame, NumbersAreThoseOfVersionOne) {
  EXPECT_EQ(kFrameMagic, 0x314e5254u);
  EXPECT_EQ(kWireProtocolMin, 1);
  EXPECT_EQ(kWireProtocol, 1);
  EXPECT_EQ(kHelloVersion, 1);
  EXPECT_EQ(kFrameHeaderBytes, 88u);
  EXPECT_EQ(kMaxPayloadBytes, 16777216u);
  EXPECT_EQ(kConductorLane, 65535);
  EXPECT_EQ(kFlagRawBlock, 1);
  EXPECT_EQ(static_cast<int>(FrameKind::hello), 1);
  EXPECT_EQ(static_cast<int>(FrameKind::hello_reply), 2);
  EXPECT_EQ(static_cast<int>(FrameKind::refuse), 3);
  EXPECT_EQ(static_cast<int>(FrameKind::ack), 4);
  EXPECT_EQ(static_cast<int>(FrameKind::heartbeat), 5);
  EXPECT_EQ(static_cast<int>(FrameKind::goodbye), 6);
  EXPECT_EQ(static_cast<int>(FrameKind::control), 16);
  EXPECT_EQ(static_cast<int>(FrameKind::announce), 17);
  EXPECT_EQ(static_cast<int>(FrameKind::grant), 18);
  EXPECT_EQ(static_cast<int>(FrameKind::contribution), 19);
  EXPECT_EQ(static_cast<int>(FrameKind::result), 20);
  EXPECT_EQ(static_cast<int>(FrameKind::op_fail), 21);
  EXPECT_EQ(static_cast<int>(FrameKind::verify), 22);
  EXPECT_EQ(static_cast<int>(FrameKind::submitted), 23);
  EXPECT_EQ(kFeatureSubmitted, 2u);
  EXPECT_EQ(static_cast<int>(FrameKind::send_offer), 24);
  EXPECT_EQ(static_cast<int>(FrameKind::send_accept), 25);
  EXPECT_EQ(static_cast<int>(FrameKind::send_piece), 26);
  EXPECT_EQ(static_cast<int>(FrameKind::send_end), 27);
  EXPECT_EQ(static_cast<int>(FrameKind::send_withdraw), 28);
  EXPECT_EQ(static_cast<int>(FrameKind::rank_left), 29);
  EXPECT_EQ(kFeatureSend, 4u);
  EXPECT_EQ(kFeatureLossyMoves, 8u);
  EXPECT_EQ(kFeatureLossySends, 16u);
  EXPECT_EQ(kFeatureClientBlocks, 32u);
}

#define EXPECT_SAME_PLACE(ours, frozen, field, at)     \
  EXPECT_EQ(offsetof(ours, field), std::size_t{at});   \
  EXPECT_EQ(offsetof(frozen, field), std::size_t{at}); \
  EXPECT_EQ(sizeof(std::declval<ours>().field), sizeof(std::declval<frozen>().field))

TEST(FrozenFrame, HeaderFieldsStayWhereTheyAre) {
  ASSERT_EQ(sizeof(FrameHeader), 88u);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, magic, 0);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, version, 4);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, kind, 6);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, flags, 7);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, link_seq, 8);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, ack_seq, 16);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, group, 24);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, tensor, 32);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, op_seq, 40);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, epoch, 48);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, chunk, 52);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, count, 56);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, source_node, 60);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, leg, 62);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, reserved0, 63);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, payload_bytes, 64);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, payload_crc, 68);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, reserved1, 72);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, reserved2, 80);
  EXPECT_SAME_PLACE(FrameHeader, FrozenHeader, header_crc, 84);
}

TEST(FrozenFrame, HelloFieldsStayWhereTheyAre) {
  ASSERT_EQ(sizeof(HelloBody), 80u);
  EXPECT_SAME_PLACE(HelloBody, FrozenHello, version_min, 0);
  EXPECT_SAME_PLACE(HelloBody, FrozenHello, version_max, 2);
  EXPECT_SAME_PLACE(HelloBody, FrozenHello, lane, 4);
  EXPECT_SAME_PLACE(HelloBody, FrozenHello, resume, 6);
  EXPECT_SAME_PLACE(HelloBody, FrozenHello, features, 8);
  EXPECT_SAME_PLACE(HelloBody, FrozenHello, node, 16);
  EXPECT_SAME_PLACE(HelloBody, FrozenHello, expected_node, 32);
  EXPECT_SAME_PLACE(HelloBody, FrozenHello, session, 48);
  EXPECT_SAME_PLACE(HelloBody, FrozenHello, next_receive, 56);
  EXPECT_SAME_PLACE(HelloBody, FrozenHello, group, 64);
  EXPECT_SAME_PLACE(HelloBody, FrozenHello, reserved, 72);
  EXPECT_EQ(offsetof(NodeId, high), 0u);
  EXPECT_EQ(offsetof(NodeId, low), 8u);
}

TEST(FrozenFrame, SmallBodiesStayAsTheyAre) {
  EXPECT_EQ(sizeof(RefuseBody), 256u);
  EXPECT_EQ(offsetof(RefuseBody, text), 8u);
  EXPECT_EQ(sizeof(AckBody), 32u);
  EXPECT_EQ(offsetof(AckBody, bytes), 0u);
  EXPECT_EQ(offsetof(AckBody, receiver_ns), 8u);
  EXPECT_EQ(offsetof(AckBody, decode_ns), 16u);
  EXPECT_EQ(offsetof(AckBody, delivered), 24u);
}

std::vector<std::byte> golden(const std::string& name) {
  std::ifstream file(std::string(TERN_GOLDEN_DIR) + "/wire/v1/" + name);
  EXPECT_TRUE(file.good()) << name;
  std::vector<std::byte> bytes;
  for (std::string word; file >> word;) {
    EXPECT_EQ(word.size(), 2u);
    bytes.push_back(static_cast<std::byte>(std::stoi(word, nullptr, 16)));
  }
  return bytes;
}

// Every golden vector is one frame; sealing what was parsed must give the same bytes again.
FrameHeader check_round_trip(const std::vector<std::byte>& bytes) {
  const ParsedFrame parsed = parse_frame_header(bytes);
  EXPECT_EQ(parsed.error, ParseError::none) << parse_error_text(parsed.error);
  const auto payload = std::span(bytes).subspan(kFrameHeaderBytes);
  EXPECT_EQ(payload.size(), parsed.header.payload_bytes);
  FrameHeader again = parsed.header;
  again.payload_crc = crc32c(payload);
  again.header_crc = 0;
  seal_frame_header(again);
  EXPECT_EQ(std::memcmp(&again, bytes.data(), sizeof again), 0);
  return parsed.header;
}

TEST(FrozenFrame, GoldenHello) {
  const auto bytes = golden("hello.hex");
  const FrameHeader header = check_round_trip(bytes);
  const ParsedHello parsed = parse_hello(header, std::span(bytes).subspan(kFrameHeaderBytes));
  ASSERT_EQ(parsed.error, HelloError::none);
  EXPECT_EQ(parsed.body.lane, 1);
  EXPECT_EQ(parsed.body.resume, 1);
  EXPECT_EQ(parsed.body.node, (NodeId{0x0102030405060708, 0x090a0b0c0d0e0f10}));
  EXPECT_EQ(parsed.body.expected_node, (NodeId{0x1112131415161718, 0x191a1b1c1d1e1f20}));
  EXPECT_EQ(parsed.body.session, 0x2122232425262728u);
  EXPECT_EQ(parsed.body.next_receive, 42u);
  const HelloFrame again = make_hello(FrameKind::hello, parsed.body);
  EXPECT_EQ(std::memcmp(&again, bytes.data(), sizeof again), 0);
}

TEST(FrozenFrame, GoldenRefuse) {
  const auto bytes = golden("refuse.hex");
  check_round_trip(bytes);
  const RefuseFrame again = make_refuse(Errc::version_mismatch, "no common version");
  ASSERT_EQ(bytes.size(), sizeof again);
  EXPECT_EQ(std::memcmp(&again, bytes.data(), sizeof again), 0);
}

TEST(FrozenFrame, GoldenAck) {
  const auto bytes = golden("ack.hex");
  const FrameHeader header = check_round_trip(bytes);
  EXPECT_EQ(header.link_seq, 600u);
  EXPECT_EQ(header.ack_seq, 1000u);
  AckBody body;
  ASSERT_EQ(bytes.size(), kFrameHeaderBytes + sizeof body);
  std::memcpy(&body, bytes.data() + kFrameHeaderBytes, sizeof body);
  EXPECT_EQ(body.bytes, 262144000u);
  EXPECT_EQ(body.receiver_ns, 5000000000u);
  EXPECT_EQ(body.decode_ns, 70000000u);
}

TEST(FrozenFrame, GoldenContribution) {
  const auto bytes = golden("contribution.hex");
  const FrameHeader header = check_round_trip(bytes);
  EXPECT_EQ(header.kind, 19);
  EXPECT_EQ(header.flags, 1);
  EXPECT_EQ(header.link_seq, 7u);
  EXPECT_EQ(header.ack_seq, 5u);
  EXPECT_EQ(header.group, 0x1122334455667788u);
  EXPECT_EQ(header.tensor, 9u);
  EXPECT_EQ(header.op_seq, 11u);
  EXPECT_EQ(header.epoch, 2u);
  EXPECT_EQ(header.chunk, 3u);
  EXPECT_EQ(header.source_node, 1);
  EXPECT_EQ(header.leg, 1);
  EXPECT_EQ(header.payload_bytes, 16u);
}

TEST(FrozenFrame, GoldenGrant) {
  const auto bytes = golden("grant.hex");
  const FrameHeader header = check_round_trip(bytes);
  EXPECT_EQ(header.kind, 18);
  EXPECT_EQ(header.count, 4u);
  EXPECT_EQ(header.payload_bytes, 0u);
  EXPECT_EQ(header.payload_crc, 0u);
}

TEST(FrozenFrame, GoldenSubmitted) {
  const auto bytes = golden("submitted.hex");
  const FrameHeader header = check_round_trip(bytes);
  EXPECT_EQ(header.kind, 23);
  EXPECT_EQ(header.tensor, 9u);
  EXPECT_EQ(header.op_seq, 11u);
  EXPECT_EQ(header.source_node, 1);
  SubmittedBody body;
  ASSERT_EQ(bytes.size(), kFrameHeaderBytes + sizeof body);
  std::memcpy(&body, bytes.data() + kFrameHeaderBytes, sizeof body);
  EXPECT_EQ(body.ranks, 0b1011u);
}

TEST(FrozenFrame, GoldenSendOffer) {
  const auto bytes = golden("send_offer.hex");
  const FrameHeader header = check_round_trip(bytes);
  EXPECT_EQ(header.kind, 24);
  EXPECT_EQ(header.tensor, (std::uint64_t{2} << 32) + 5);
  EXPECT_EQ(header.op_seq, 11u);
  EXPECT_EQ(header.chunk, 7u);
  EXPECT_EQ(header.source_node, 1);
  SendOfferBody body;
  ASSERT_EQ(sizeof body, 16u);
  ASSERT_EQ(bytes.size(), kFrameHeaderBytes + sizeof body + 3);
  std::memcpy(&body, bytes.data() + kFrameHeaderBytes, sizeof body);
  EXPECT_EQ(body.count, 3u);
  EXPECT_EQ(body.dtype, 6);
  EXPECT_EQ(body.eager, 1);
  EXPECT_EQ(body.lossy, 0);
  EXPECT_EQ(offsetof(SendOfferBody, lossy), 10u);
}

TEST(FrozenFrame, GoldenLossySendOffer) {
  const auto bytes = golden("send_offer_lossy.hex");
  const FrameHeader header = check_round_trip(bytes);
  EXPECT_EQ(header.kind, 24);
  EXPECT_EQ(header.op_seq, 12u);
  SendOfferBody body;
  ASSERT_EQ(bytes.size(), kFrameHeaderBytes + sizeof body);
  std::memcpy(&body, bytes.data() + kFrameHeaderBytes, sizeof body);
  EXPECT_EQ(body.count, 70'000u);
  EXPECT_EQ(body.dtype, 0);
  EXPECT_EQ(body.eager, 0);
  EXPECT_EQ(body.lossy, 1);
}

// The set-up of RDMA: what was parsed and made again has the same bytes.
RdmaBody check_rdma(const std::string& name, FrameKind kind) {
  const auto bytes = golden(name);
  const FrameHeader header = check_round_trip(bytes);
  const ParsedRdma parsed = parse_rdma(header, std::span(bytes).subspan(kFrameHeaderBytes));
  EXPECT_EQ(parsed.error, RdmaError::none) << rdma_error_text(parsed.error);
  const RdmaFrame again = make_rdma(kind, parsed.body);
  EXPECT_EQ(bytes.size(), sizeof again);
  if (bytes.size() == sizeof again) {
    EXPECT_EQ(std::memcmp(&again, bytes.data(), sizeof again), 0);
  }
  return parsed.body;
}

TEST(FrozenFrame, GoldenRdmaOffer) {
  const RdmaBody body = check_rdma("rdma_offer.hex", FrameKind::rdma_offer);
  EXPECT_EQ(body.gid_type, 2);
  EXPECT_EQ(body.mtu, 5);
  EXPECT_EQ(body.qp_number, 0x123456u);
  EXPECT_EQ(body.packet_number, 0xabcdefu);
  EXPECT_EQ(body.lid, 0);
  const std::array<std::uint8_t, 16> gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 1};
  EXPECT_EQ(body.gid, gid);
  EXPECT_EQ(body.receive_slots, 64u);
  EXPECT_EQ(body.slot_bytes, 65536u);
  EXPECT_EQ(body.features, 1u);
}

TEST(FrozenFrame, GoldenRdmaAccept) {
  const RdmaBody body = check_rdma("rdma_accept.hex", FrameKind::rdma_accept);
  EXPECT_EQ(body.gid_type, 0);
  EXPECT_EQ(body.mtu, 5);
  EXPECT_EQ(body.qp_number, 0x11u);
  EXPECT_EQ(body.packet_number, 0xfffeu);
  EXPECT_EQ(body.lid, 0x107);
  for (std::size_t i = 0; i < body.gid.size(); ++i) EXPECT_EQ(body.gid[i], 0xf0 + i);
  EXPECT_EQ(body.receive_slots, 4096u);
  EXPECT_EQ(body.slot_bytes, 4096u);
  EXPECT_EQ(body.features, 0u);
}

TEST(FrozenFrame, GoldenRdmaReady) {
  const auto bytes = golden("rdma_ready.hex");
  check_round_trip(bytes);
  const FrameHeader again = make_rdma_ready();
  ASSERT_EQ(bytes.size(), sizeof again);
  EXPECT_EQ(std::memcmp(&again, bytes.data(), sizeof again), 0);
}

TEST(FrozenFrame, GoldenRdmaDecline) {
  const auto bytes = golden("rdma_decline.hex");
  check_round_trip(bytes);
  const RdmaDeclineFrame again = make_rdma_decline(Errc::unsupported, "another version of RDMA");
  ASSERT_EQ(bytes.size(), sizeof again);
  EXPECT_EQ(std::memcmp(&again, bytes.data(), sizeof again), 0);
}

}  // namespace frozen_frame_test
}  // namespace tern::wire
