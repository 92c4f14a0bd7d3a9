// docs/wire-format.md and the block header of docs/codecs.md repeat the layout for readers; here
// they are compared with the code. A new field or kind belongs in the code, the page and here.

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/layout_page.h"
#include "wire/block.h"
#include "wire/frame.h"
#include "wire/op_frames.h"
#include "wire/rdma.h"

namespace tern::wire {
namespace wire_format_page_test {

const testing::LayoutPage& page() {
  static const testing::LayoutPage kPage(TERN_WIRE_FORMAT_PAGE);
  return kPage;
}

TEST(WireFormatPage, FrameAgrees) {
  const std::string text = page().section("The frame");
  EXPECT_FIELD(text, FrameHeader, magic);
  EXPECT_FIELD(text, FrameHeader, version);
  EXPECT_FIELD(text, FrameHeader, kind);
  EXPECT_FIELD(text, FrameHeader, flags);
  EXPECT_FIELD(text, FrameHeader, link_seq);
  EXPECT_FIELD(text, FrameHeader, ack_seq);
  EXPECT_FIELD(text, FrameHeader, group);
  EXPECT_FIELD(text, FrameHeader, tensor);
  EXPECT_FIELD(text, FrameHeader, op_seq);
  EXPECT_FIELD(text, FrameHeader, epoch);
  EXPECT_FIELD(text, FrameHeader, chunk);
  EXPECT_FIELD(text, FrameHeader, count);
  EXPECT_FIELD(text, FrameHeader, source_node);
  EXPECT_FIELD(text, FrameHeader, leg);
  EXPECT_FIELD(text, FrameHeader, payload_bytes);
  EXPECT_FIELD(text, FrameHeader, payload_crc);
  EXPECT_FIELD(text, FrameHeader, header_crc);
}

TEST(WireFormatPage, KindsAgree) {
  const std::string text = page().section("Kinds");
  const std::pair<FrameKind, const char*> kinds[] = {
      {FrameKind::hello, "hello | HelloBody, 80 bytes"},
      {FrameKind::hello_reply, "hello_reply | HelloBody"},
      {FrameKind::refuse, "refuse | RefuseBody, 256 bytes"},
      {FrameKind::ack, "ack | AckBody, 32 bytes"},
      {FrameKind::heartbeat, "heartbeat | none"},
      {FrameKind::goodbye, "goodbye | none"},
      {FrameKind::rdma_offer, "rdma_offer | RdmaBody, 64 bytes"},
      {FrameKind::rdma_accept, "rdma_accept | RdmaBody"},
      {FrameKind::rdma_ready, "rdma_ready | none"},
      {FrameKind::rdma_decline, "rdma_decline | RefuseBody"},
      {FrameKind::control, "control | one JSON object"},
      {FrameKind::announce, "announce | AnnounceBody, 56 bytes"},
      {FrameKind::grant, "grant | none"},
      {FrameKind::contribution, "contribution | block header and block"},
      {FrameKind::result, "result | block header and block"},
      {FrameKind::op_fail, "op_fail | OpFailBody, 192 bytes"},
      {FrameKind::verify, "verify | VerifyBody, 8 bytes"},
      {FrameKind::submitted, "submitted | SubmittedBody, 8 bytes"},
      {FrameKind::send_offer, "send_offer | SendOfferBody, 16 bytes"},
      {FrameKind::send_accept, "send_accept | none"},
      {FrameKind::send_piece, "send_piece | elements"},
      {FrameKind::send_end, "send_end | none"},
      {FrameKind::send_withdraw, "send_withdraw | OpFailBody"},
      {FrameKind::rank_left, "rank_left | none"}};
  for (const auto& [kind, name] : kinds) {
    const std::string row = "| " + std::to_string(static_cast<unsigned>(kind)) + " | " + name;
    EXPECT_NE(text.find(row), std::string::npos) << row;
  }
}

TEST(WireFormatPage, HelloAgrees) {
  const std::string text = page().section("HelloBody");
  EXPECT_FIELD(text, HelloBody, version_min);
  EXPECT_FIELD(text, HelloBody, version_max);
  EXPECT_FIELD(text, HelloBody, lane);
  EXPECT_FIELD(text, HelloBody, resume);
  EXPECT_FIELD(text, HelloBody, features);
  testing::expect_row(text, offsetof(HelloBody, node), "2 x u64", "node");
  testing::expect_row(text, offsetof(HelloBody, expected_node), "2 x u64", "expected_node");
  EXPECT_FIELD(text, HelloBody, session);
  EXPECT_FIELD(text, HelloBody, next_receive);
  EXPECT_FIELD(text, HelloBody, group);
}

TEST(WireFormatPage, BodiesAgree) {
  const std::string announce = page().section("AnnounceBody");
  EXPECT_FIELD(announce, AnnounceBody, count);
  EXPECT_FIELD(announce, AnnounceBody, kind);
  EXPECT_FIELD(announce, AnnounceBody, dtype);
  EXPECT_FIELD(announce, AnnounceBody, reduction);
  EXPECT_FIELD(announce, AnnounceBody, role);
  EXPECT_FIELD(announce, AnnounceBody, memory);
  EXPECT_FIELD(announce, AnnounceBody, flags);
  EXPECT_FIELD(announce, AnnounceBody, restart_streams);
  EXPECT_FIELD(announce, AnnounceBody, root);
  EXPECT_FIELD(announce, AnnounceBody, rank);
  EXPECT_FIELD(announce, AnnounceBody, eager_bytes);
  EXPECT_FIELD(announce, AnnounceBody, prescale_bits);
  EXPECT_FIELD(announce, AnnounceBody, generation);
  EXPECT_FIELD(announce, AnnounceBody, alpha_bits);
  EXPECT_FIELD(announce, AnnounceBody, state_scale_bits);
  EXPECT_FIELD(announce, AnnounceBody, lead);
  EXPECT_FIELD(announce, AnnounceBody, lead_is_trial);
  EXPECT_FIELD(announce, AnnounceBody, candidates);
  EXPECT_FIELD(page().section("SubmittedBody"), SubmittedBody, ranks);
  const std::string offer = page().section("SendOfferBody");
  EXPECT_FIELD(offer, SendOfferBody, count);
  EXPECT_FIELD(offer, SendOfferBody, dtype);
  EXPECT_FIELD(offer, SendOfferBody, eager);
  EXPECT_FIELD(offer, SendOfferBody, lossy);
  const std::string small = page().section("RefuseBody, AckBody");
  EXPECT_FIELD(small, RefuseBody, code);
  EXPECT_FIELD(small, RefuseBody, text);
  EXPECT_FIELD(small, AckBody, bytes);
  EXPECT_FIELD(small, AckBody, receiver_ns);
  EXPECT_FIELD(small, AckBody, decode_ns);
  EXPECT_FIELD(small, AckBody, delivered);
}

TEST(WireFormatPage, RdmaAgrees) {
  const std::string text = page().section("Moving to RDMA");
  EXPECT_FIELD(text, RdmaBody, version);
  EXPECT_FIELD(text, RdmaBody, gid_type);
  EXPECT_FIELD(text, RdmaBody, mtu);
  EXPECT_FIELD(text, RdmaBody, qp_number);
  EXPECT_FIELD(text, RdmaBody, packet_number);
  EXPECT_FIELD(text, RdmaBody, lid);
  EXPECT_FIELD(text, RdmaBody, gid);
  EXPECT_FIELD(text, RdmaBody, receive_slots);
  EXPECT_FIELD(text, RdmaBody, slot_bytes);
  EXPECT_FIELD(text, RdmaBody, features);
}

TEST(CodecsPage, BlockHeaderAgrees) {
  const std::string text = testing::LayoutPage(TERN_CODECS_PAGE).section("Block header");
  EXPECT_FIELD(text, BlockHeader, codec);
  EXPECT_FIELD(text, BlockHeader, version);
  EXPECT_FIELD(text, BlockHeader, dtype);
  EXPECT_FIELD(text, BlockHeader, flags);
  EXPECT_FIELD(text, BlockHeader, elements);
  EXPECT_FIELD(text, BlockHeader, scale_elements);
  EXPECT_FIELD(text, BlockHeader, payload_bytes);
  EXPECT_FIELD(text, BlockHeader, stream_step);
  const auto stage = [&](std::size_t offset, const std::string& type, const char* field) {
    testing::expect_row(text, offsetof(BlockHeader, stages) + offset, type, field);
  };
  stage(offsetof(BlockStages, sparsifier), "u8", "sparsifier");
  stage(offsetof(BlockStages, quantizer), "u8", "quantizer");
  stage(offsetof(BlockStages, entropy), "u8", "entropy");
  stage(offsetof(BlockStages, bits), "u8", "bits");
  stage(offsetof(BlockStages, levels), "u16", "levels");
}

}  // namespace wire_format_page_test
}  // namespace tern::wire
