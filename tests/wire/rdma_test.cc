// The frames that move a connection to a queue pair: what is refused, and their frozen layout.

#include "wire/rdma.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "wire/crc32c.h"

namespace tern::wire {
namespace rdma_test {

RdmaBody good_body() {
  RdmaBody body;
  body.gid_type = static_cast<std::uint8_t>(GidType::roce_v2);
  body.mtu = 5;
  body.qp_number = 0x123456;
  body.packet_number = 0xabcdef;
  body.lid = 7;
  for (std::size_t i = 0; i < body.gid.size(); ++i) body.gid[i] = static_cast<std::uint8_t>(i + 1);
  body.receive_slots = 64;
  body.slot_bytes = 65536;
  body.features = kRdmaNoPayloadCrc;
  return body;
}

RdmaError error_of(const std::function<void(RdmaBody&)>& change) {
  RdmaBody body = good_body();
  change(body);
  const RdmaFrame frame = make_rdma(FrameKind::rdma_offer, body);
  return parse_rdma(frame.header, std::as_bytes(std::span(&frame.body, 1))).error;
}

TEST(WireRdma, AnOfferComesBackAsItWas) {
  const RdmaFrame frame = make_rdma(FrameKind::rdma_accept, good_body());
  const auto bytes = std::as_bytes(std::span(&frame, 1));
  const ParsedFrame header = parse_frame_header(bytes);
  ASSERT_EQ(header.error, ParseError::none);
  EXPECT_TRUE(is_rdma(static_cast<FrameKind>(header.header.kind)));
  EXPECT_FALSE(is_sequenced(static_cast<FrameKind>(header.header.kind)));
  const ParsedRdma parsed = parse_rdma(header.header, bytes.subspan(kFrameHeaderBytes));
  ASSERT_EQ(parsed.error, RdmaError::none);
  EXPECT_EQ(std::memcmp(&parsed.body, &frame.body, sizeof frame.body), 0);
}

TEST(WireRdma, ForeignAndAbsurdOffersAreRefused) {
  EXPECT_EQ(error_of([](RdmaBody&) {}), RdmaError::none);
  EXPECT_EQ(error_of([](RdmaBody& b) { b.version = 2; }), RdmaError::foreign_version);
  EXPECT_EQ(error_of([](RdmaBody& b) { b.version = 0; }), RdmaError::foreign_version);
  EXPECT_EQ(error_of([](RdmaBody& b) { b.reserved0 = 1; }), RdmaError::reserved_not_zero);
  EXPECT_EQ(error_of([](RdmaBody& b) { b.reserved[1] = 1; }), RdmaError::reserved_not_zero);
  EXPECT_EQ(error_of([](RdmaBody& b) { b.qp_number = 0; }), RdmaError::bad_queue_pair);
  EXPECT_EQ(error_of([](RdmaBody& b) { b.qp_number = 1u << 24; }), RdmaError::bad_queue_pair);
  EXPECT_EQ(error_of([](RdmaBody& b) { b.packet_number = 1u << 24; }), RdmaError::bad_queue_pair);
  EXPECT_EQ(error_of([](RdmaBody& b) { b.gid = {}; }), RdmaError::bad_address);
  EXPECT_EQ(error_of([](RdmaBody& b) { b.gid_type = 3; }), RdmaError::bad_address);
  EXPECT_EQ(error_of([](RdmaBody& b) { b.mtu = 0; }), RdmaError::bad_address);
  EXPECT_EQ(error_of([](RdmaBody& b) { b.mtu = 6; }), RdmaError::bad_address);
  EXPECT_EQ(error_of([](RdmaBody& b) { b.receive_slots = 7; }), RdmaError::absurd_limits);
  EXPECT_EQ(error_of([](RdmaBody& b) { b.receive_slots = 0xffffffff; }), RdmaError::absurd_limits);
  EXPECT_EQ(error_of([](RdmaBody& b) { b.slot_bytes = 4095; }), RdmaError::absurd_limits);
  EXPECT_EQ(error_of([](RdmaBody& b) { b.slot_bytes = 0x80000000; }), RdmaError::absurd_limits);
}

TEST(WireRdma, OtherFramesSizesAndDamageAreRefused) {
  RdmaFrame frame = make_rdma(FrameKind::rdma_offer, good_body());
  const auto payload = std::as_bytes(std::span(&frame.body, 1));
  EXPECT_EQ(parse_rdma(frame.header, payload.first(63)).error, RdmaError::wrong_size);
  EXPECT_EQ(parse_rdma(make_rdma_ready(), {}).error, RdmaError::wrong_kind);
  frame.body.lid ^= 1;
  EXPECT_EQ(parse_rdma(frame.header, payload).error, RdmaError::bad_payload_crc);
}

TEST(WireRdma, ADeclineCarriesItsReasonCutToWhatFits) {
  const RdmaDeclineFrame frame =
      make_rdma_decline(Errc::unsupported, std::string(1000, 'x').c_str());
  EXPECT_EQ(frame.header.payload_bytes, sizeof(RefuseBody));
  EXPECT_EQ(frame.body.text[sizeof frame.body.text - 2], 'x');
  EXPECT_EQ(frame.body.text[sizeof frame.body.text - 1], '\0');
}

TEST(WireRdma, EveryErrorHasAText) {
  for (int i = 0; i <= static_cast<int>(RdmaError::absurd_limits); ++i) {
    EXPECT_STRNE(rdma_error_text(static_cast<RdmaError>(i)), "unknown") << i;
  }
}

// Version 1 of the exchange, frozen: a failure here is repaired in the code, never in this file.
TEST(FrozenRdma, NumbersAndPlacesAreThoseOfVersionOne) {
  EXPECT_EQ(kFeatureRdma, 1u);
  EXPECT_EQ(kRdmaVersion, 1);
  EXPECT_EQ(kRdmaNoPayloadCrc, 1u);
  EXPECT_EQ(kRdmaMarks, 2u);
  EXPECT_EQ(kRdmaProbes, 4u);
  EXPECT_EQ(static_cast<int>(FrameKind::rdma_offer), 7);
  EXPECT_EQ(static_cast<int>(FrameKind::rdma_accept), 8);
  EXPECT_EQ(static_cast<int>(FrameKind::rdma_ready), 9);
  EXPECT_EQ(static_cast<int>(FrameKind::rdma_decline), 10);
  EXPECT_EQ(static_cast<int>(GidType::infiniband), 0);
  EXPECT_EQ(static_cast<int>(GidType::roce_v1), 1);
  EXPECT_EQ(static_cast<int>(GidType::roce_v2), 2);
  EXPECT_EQ(sizeof(RdmaBody), 64u);
  EXPECT_EQ(offsetof(RdmaBody, version), 0u);
  EXPECT_EQ(offsetof(RdmaBody, gid_type), 2u);
  EXPECT_EQ(offsetof(RdmaBody, mtu), 3u);
  EXPECT_EQ(offsetof(RdmaBody, qp_number), 4u);
  EXPECT_EQ(offsetof(RdmaBody, packet_number), 8u);
  EXPECT_EQ(offsetof(RdmaBody, lid), 12u);
  EXPECT_EQ(offsetof(RdmaBody, reserved0), 14u);
  EXPECT_EQ(offsetof(RdmaBody, gid), 16u);
  EXPECT_EQ(offsetof(RdmaBody, receive_slots), 32u);
  EXPECT_EQ(offsetof(RdmaBody, slot_bytes), 36u);
  EXPECT_EQ(offsetof(RdmaBody, features), 40u);
  EXPECT_EQ(offsetof(RdmaBody, reserved), 48u);
}

}  // namespace rdma_test
}  // namespace tern::wire
