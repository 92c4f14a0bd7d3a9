// docs/shm-layout.md repeats the layout for readers; here it is compared with the code.

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "shm/layout.h"
#include "tests/layout_page.h"

namespace tern::shm {
namespace {

const testing::LayoutPage& page() {
  static const testing::LayoutPage kPage(TERN_SHM_LAYOUT_PAGE);
  return kPage;
}

// Texts are given in characters.
#define ROW(text, type, struct_name, field) \
  testing::expect_row(text, offsetof(struct_name, field), type, #field)

TEST(ShmLayoutPage, HeaderAgrees) {
  const std::string text = page().section("Header");
  ROW(text, "u32", SegmentHeader, magic);
  ROW(text, "u16", SegmentHeader, abi);
  ROW(text, "u16", SegmentHeader, lane_count);
  ROW(text, "u64", SegmentHeader, segment_bytes);
  ROW(text, "u64", SegmentHeader, submit_entries_offset);
  ROW(text, "u64", SegmentHeader, completion_entries_offset);
  ROW(text, "u64", SegmentHeader, arena_offset);
  ROW(text, "u64", SegmentHeader, arena_bytes);
  ROW(text, "u32", SegmentHeader, spin_ns);
  ROW(text, "u32", SegmentHeader, cores_are_few);
  ROW(text, "u32", SegmentHeader, doorbell);
  ROW(text, "u32", SegmentHeader, sleepers);
  ROW(text, "u32", SegmentHeader, fd_armed);
}

TEST(ShmLayoutPage, LaneAgrees) {
  const std::string text = page().section("Lane");
  testing::expect_row(text, offsetof(LaneRings, submit) + offsetof(RingIndex, head), "u64",
                      "submit.head");
  testing::expect_row(text, offsetof(LaneRings, submit) + offsetof(RingIndex, tail), "u64",
                      "submit.tail");
  testing::expect_row(text, offsetof(LaneRings, completion), "u64", "completion.head");
  testing::expect_row(text, offsetof(LaneRings, completion) + offsetof(RingIndex, tail), "u64",
                      "completion.tail");
  ROW(text, "u32", LaneRings, lane_sleeps);
}

TEST(ShmLayoutPage, EntriesAgree) {
  const std::string submit = page().section("SubmitEntry");
  ROW(submit, "u64", SubmitEntry, ticket);
  ROW(submit, "u16", SubmitEntry, kind);
  ROW(submit, "u8", SubmitEntry, dtype);
  ROW(submit, "u8", SubmitEntry, reduction);
  ROW(submit, "u8", SubmitEntry, role);
  ROW(submit, "u64", SubmitEntry, group);
  ROW(submit, "u64", SubmitEntry, tensor);
  ROW(submit, "u64", SubmitEntry, sequence);
  ROW(submit, "u64", SubmitEntry, count);
  ROW(submit, "u32", SubmitEntry, input_region);
  ROW(submit, "u32", SubmitEntry, output_region);
  ROW(submit, "u64", SubmitEntry, input_offset);
  ROW(submit, "u64", SubmitEntry, output_offset);
  ROW(submit, "u32", SubmitEntry, root);
  ROW(submit, "i32", SubmitEntry, priority);
  ROW(submit, "u32", SubmitEntry, prescale_bits);
  ROW(submit, "u32", SubmitEntry, state_scale_bits);
  ROW(submit, "48 chars", SubmitEntry, recipe);
  ROW(submit, "u64", SubmitEntry, progress_offset);
  ROW(submit, "u32", SubmitEntry, progress_records);
  const std::string completion = page().section("CompletionEntry");
  ROW(completion, "u64", CompletionEntry, ticket);
  ROW(completion, "i32", CompletionEntry, status);
  ROW(completion, "u32", CompletionEntry, source);
  ROW(completion, "u64", CompletionEntry, bytes_sent);
  ROW(completion, "u64", CompletionEntry, elements);
  ROW(completion, "192 chars", CompletionEntry, detail);
}

TEST(ShmLayoutPage, SplitAgrees) {
  const std::string text = page().section("GroupSplitPacket");
  ROW(text, "u64", GroupSplitPacket, group);
  ROW(text, "i32", GroupSplitPacket, color);
  ROW(text, "i32", GroupSplitPacket, key);
  ROW(text, "u32", GroupSplitPacket, verify);
  ROW(text, "u64", GroupSplitPacket, seed);
  ROW(text, "i64", GroupSplitPacket, timeout_ms);
  ROW(text, "i64", GroupSplitPacket, op_timeout_ms);
}

TEST(ShmLayoutPage, DeviceReportAgrees) {
  const std::string text = page().section("DeviceReportPacket");
  ROW(text, "u32", DeviceReportPacket, device);
  ROW(text, "u64", DeviceReportPacket, device_bytes);
  ROW(text, "u64", DeviceReportPacket, pinned_bytes);
  ROW(text, "u64", DeviceReportPacket, pinning_failures);
  ROW(text, "u64", DeviceReportPacket, operations);
  ROW(text, "u64", DeviceReportPacket, failures);
  ROW(text, "u64", DeviceReportPacket, encodes);
  ROW(text, "u64", DeviceReportPacket, encode_ns);
  ROW(text, "u64", DeviceReportPacket, last_encode_ns);
  ROW(text, "u64", DeviceReportPacket, decodes);
  ROW(text, "u64", DeviceReportPacket, decode_ns);
  ROW(text, "u64", DeviceReportPacket, last_decode_ns);
  ROW(text, "256 chars", DeviceReportPacket, pinning_problem);
}

TEST(ShmLayoutPage, RegionsAgree) {
  EXPECT_NE(page().section("Regions").find("A client has at most " + std::to_string(kMaxRegions)),
            std::string::npos);
}

TEST(ShmLayoutPage, PacketSizesAgree) {
  const std::pair<const char*, std::size_t> sizes[] = {
      {"HelloPacket", sizeof(HelloPacket)},
      {"WelcomePacket", sizeof(WelcomePacket)},
      {"GroupMintedPacket", sizeof(GroupMintedPacket)},
      {"GroupJoinPacket", sizeof(GroupJoinPacket)},
      {"GroupJoinedPacket", sizeof(GroupJoinedPacket)},
      {"GroupLeavePacket", sizeof(GroupLeavePacket)},
      {"TensorDeclarePacket", sizeof(TensorDeclarePacket)},
      {"TensorDeclaredPacket", sizeof(TensorDeclaredPacket)},
      {"TensorReleasePacket", sizeof(TensorReleasePacket)},
      {"TensorStatsPacket", sizeof(TensorStatsPacket)},
      {"TensorStatePacket", sizeof(TensorStatePacket)},
      {"TensorStateReplyPacket", sizeof(TensorStateReplyPacket)},
      {"GroupSplitPacket", sizeof(GroupSplitPacket)},
      {"GroupSplitReplyPacket", sizeof(GroupSplitReplyPacket)},
      {"RegionCreatePacket", sizeof(RegionCreatePacket)},
      {"RegionCreatedPacket", sizeof(RegionCreatedPacket)},
      {"RegionPacket", sizeof(RegionPacket)},
      {"DeviceReportPacket", sizeof(DeviceReportPacket)},
      {"DonePacket, also every failure", sizeof(DonePacket)},
  };
  for (const auto& [name, bytes] : sizes) {
    const std::string cells = std::string(name) + " | " + std::to_string(bytes) + " |";
    EXPECT_NE(page().text().find(cells), std::string::npos) << cells;
  }
}

}  // namespace
}  // namespace tern::shm
