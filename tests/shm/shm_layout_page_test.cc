// docs/shm-layout.md repeats the layout for readers; here it is compared with the code.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "shm/layout.h"

namespace tern::shm {
namespace {

class ShmLayoutPage : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(TERN_SHM_LAYOUT_PAGE);
    ASSERT_TRUE(file) << TERN_SHM_LAYOUT_PAGE;
    page_.assign(std::istreambuf_iterator<char>(file), {});
  }

  // The part under a heading, up to the next.
  std::string section(const std::string& heading) const {
    const std::size_t begin = page_.find("## " + heading);
    EXPECT_NE(begin, std::string::npos) << heading;
    return page_.substr(begin, page_.find("\n#", begin) - begin);
  }

  static void expect_row(const std::string& text, std::size_t offset, const std::string& type,
                         const std::string& field) {
    const std::string row = "| " + std::to_string(offset) + " | " + type + " | `" + field + "`";
    EXPECT_NE(text.find(row), std::string::npos) << row;
  }

  std::string page_;
};

#define ROW(text, type, struct_name, field) \
  expect_row(text, offsetof(struct_name, field), type, #field)

TEST_F(ShmLayoutPage, HeaderAgrees) {
  const std::string text = section("Header");
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

TEST_F(ShmLayoutPage, LaneAgrees) {
  const std::string text = section("Lane");
  expect_row(text, offsetof(LaneRings, submit) + offsetof(RingIndex, head), "u64", "submit.head");
  expect_row(text, offsetof(LaneRings, submit) + offsetof(RingIndex, tail), "u64", "submit.tail");
  expect_row(text, offsetof(LaneRings, completion), "u64", "completion.head");
  expect_row(text, offsetof(LaneRings, completion) + offsetof(RingIndex, tail), "u64",
             "completion.tail");
  ROW(text, "u32", LaneRings, lane_sleeps);
}

TEST_F(ShmLayoutPage, EntriesAgree) {
  const std::string submit = section("SubmitEntry");
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
  const std::string completion = section("CompletionEntry");
  ROW(completion, "u64", CompletionEntry, ticket);
  ROW(completion, "i32", CompletionEntry, status);
  ROW(completion, "u64", CompletionEntry, bytes_sent);
  ROW(completion, "192 chars", CompletionEntry, detail);
}

TEST_F(ShmLayoutPage, PacketSizesAgree) {
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
      {"DonePacket, also every failure", sizeof(DonePacket)},
  };
  for (const auto& [name, bytes] : sizes) {
    const std::string cells = std::string(name) + " | " + std::to_string(bytes) + " |";
    EXPECT_NE(page_.find(cells), std::string::npos) << cells;
  }
}

}  // namespace
}  // namespace tern::shm
