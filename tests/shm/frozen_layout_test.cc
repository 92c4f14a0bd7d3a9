// A second copy of the layout, in literal numbers. A test that fails here means that a program and
// a daemon of different builds no longer understand each other: a new kShmAbi, or take the change
// back.

#include <gtest/gtest.h>

#include "shm/block_slots.h"
#include "shm/encoded_by.h"
#include "shm/layout.h"

namespace tern::shm {
namespace {

#define FIELD(type, field, offset, bytes)                \
  EXPECT_EQ(offsetof(type, field), std::size_t{offset}); \
  EXPECT_EQ(sizeof(type::field), std::size_t{bytes})

TEST(FrozenLayout, RingIndex) {
  EXPECT_EQ(sizeof(RingIndex), 128u);
  FIELD(RingIndex, head, 0, 8);
  FIELD(RingIndex, head_padding, 8, 56);
  FIELD(RingIndex, tail, 64, 8);
  FIELD(RingIndex, tail_padding, 72, 56);
}

TEST(FrozenLayout, LaneRings) {
  EXPECT_EQ(sizeof(LaneRings), 320u);
  FIELD(LaneRings, submit, 0, 128);
  FIELD(LaneRings, completion, 128, 128);
  FIELD(LaneRings, lane_sleeps, 256, 4);
  FIELD(LaneRings, reserved, 260, 60);
}

TEST(FrozenLayout, SegmentHeader) {
  EXPECT_EQ(sizeof(SegmentHeader), 5312u);
  FIELD(SegmentHeader, magic, 0, 4);
  FIELD(SegmentHeader, abi, 4, 2);
  FIELD(SegmentHeader, lane_count, 6, 2);
  FIELD(SegmentHeader, segment_bytes, 8, 8);
  FIELD(SegmentHeader, submit_entries_offset, 16, 8);
  FIELD(SegmentHeader, completion_entries_offset, 24, 8);
  FIELD(SegmentHeader, arena_offset, 32, 8);
  FIELD(SegmentHeader, arena_bytes, 40, 8);
  FIELD(SegmentHeader, spin_ns, 48, 4);
  FIELD(SegmentHeader, cores_are_few, 52, 4);
  FIELD(SegmentHeader, reserved1, 56, 8);
  FIELD(SegmentHeader, doorbell, 64, 4);
  FIELD(SegmentHeader, doorbell_padding, 68, 60);
  FIELD(SegmentHeader, sleepers, 128, 4);
  FIELD(SegmentHeader, fd_armed, 132, 4);
  FIELD(SegmentHeader, sleepers_padding, 136, 56);
  FIELD(SegmentHeader, lanes, 192, 5120);
}

TEST(FrozenLayout, SubmitEntry) {
  EXPECT_EQ(sizeof(SubmitEntry), 256u);
  FIELD(SubmitEntry, ticket, 0, 8);
  FIELD(SubmitEntry, kind, 8, 2);
  FIELD(SubmitEntry, dtype, 10, 1);
  FIELD(SubmitEntry, reduction, 11, 1);
  FIELD(SubmitEntry, role, 12, 1);
  FIELD(SubmitEntry, flags, 13, 1);
  FIELD(SubmitEntry, reserved0, 14, 2);
  FIELD(SubmitEntry, group, 16, 8);
  FIELD(SubmitEntry, tensor, 24, 8);
  FIELD(SubmitEntry, sequence, 32, 8);
  FIELD(SubmitEntry, count, 40, 8);
  FIELD(SubmitEntry, input_region, 48, 4);
  FIELD(SubmitEntry, output_region, 52, 4);
  FIELD(SubmitEntry, input_offset, 56, 8);
  FIELD(SubmitEntry, output_offset, 64, 8);
  FIELD(SubmitEntry, root, 72, 4);
  FIELD(SubmitEntry, priority, 76, 4);
  FIELD(SubmitEntry, prescale_bits, 80, 4);
  FIELD(SubmitEntry, state_scale_bits, 84, 4);
  FIELD(SubmitEntry, counts_offset, 88, 8);
  FIELD(SubmitEntry, wait_event, 96, 8);
  FIELD(SubmitEntry, signal_event, 104, 8);
  FIELD(SubmitEntry, recipe, 112, 48);
  FIELD(SubmitEntry, progress_offset, 160, 8);
  FIELD(SubmitEntry, progress_records, 168, 4);
  FIELD(SubmitEntry, encoded_by, 172, 4);
  FIELD(SubmitEntry, encoded_elements, 176, 8);
  FIELD(SubmitEntry, encoded_energy_bits, 184, 8);
  FIELD(SubmitEntry, encoded_residual_bits, 192, 8);
  FIELD(SubmitEntry, encoded_ns, 200, 8);
  FIELD(SubmitEntry, reserved2, 208, 48);
}

TEST(FrozenLayout, CopyProgress) {
  EXPECT_EQ(kEntryHasProgress, 2);
  EXPECT_EQ(kEntrySharesDown, 4);
  EXPECT_EQ(sizeof(CopiedMark), 64u);
  FIELD(CopiedMark, input_bytes, 0, 8);
  EXPECT_EQ(sizeof(DeliveredMark), 64u);
  FIELD(DeliveredMark, records, 0, 8);
  EXPECT_EQ(sizeof(DeliveredRecord), 16u);
  FIELD(DeliveredRecord, offset, 0, 8);
  FIELD(DeliveredRecord, bytes, 8, 8);
}

TEST(FrozenLayout, CompletionEntry) {
  EXPECT_EQ(sizeof(CompletionEntry), 256u);
  FIELD(CompletionEntry, ticket, 0, 8);
  FIELD(CompletionEntry, status, 8, 4);
  FIELD(CompletionEntry, source, 12, 4);
  FIELD(CompletionEntry, bytes_sent, 16, 8);
  FIELD(CompletionEntry, detail, 24, 192);
  FIELD(CompletionEntry, elements, 216, 8);
  FIELD(CompletionEntry, encode_next_by, 224, 4);
  FIELD(CompletionEntry, reserved0, 228, 4);
  FIELD(CompletionEntry, reserved1, 232, 24);
}

TEST(FrozenLayout, PacketHeader) {
  EXPECT_EQ(sizeof(PacketHeader), 16u);
  FIELD(PacketHeader, magic, 0, 4);
  FIELD(PacketHeader, version, 4, 2);
  FIELD(PacketHeader, kind, 6, 2);
  FIELD(PacketHeader, request, 8, 8);
}

TEST(FrozenLayout, HelloPacket) {
  EXPECT_EQ(sizeof(HelloPacket), 128u);
  FIELD(HelloPacket, header, 0, 16);
  FIELD(HelloPacket, abi_min, 16, 2);
  FIELD(HelloPacket, abi_max, 18, 2);
  FIELD(HelloPacket, reserved0, 20, 4);
  FIELD(HelloPacket, arena_bytes, 24, 8);
  FIELD(HelloPacket, reserved1, 32, 32);
  FIELD(HelloPacket, job, 64, 64);
}

TEST(FrozenLayout, WelcomePacket) {
  EXPECT_EQ(sizeof(WelcomePacket), 72u);
  FIELD(WelcomePacket, header, 0, 16);
  FIELD(WelcomePacket, abi, 16, 2);
  FIELD(WelcomePacket, lane_count, 18, 2);
  FIELD(WelcomePacket, features, 20, 4);
  FIELD(WelcomePacket, segment_bytes, 24, 8);
  FIELD(WelcomePacket, eager_bytes, 32, 8);
  FIELD(WelcomePacket, reserved1, 40, 32);
}

TEST(FrozenLayout, GroupMintedPacket) {
  EXPECT_EQ(sizeof(GroupMintedPacket), 272u);
  FIELD(GroupMintedPacket, header, 0, 16);
  FIELD(GroupMintedPacket, id, 16, 256);
}

TEST(FrozenLayout, GroupJoinPacket) {
  EXPECT_EQ(sizeof(GroupJoinPacket), 320u);
  FIELD(GroupJoinPacket, header, 0, 16);
  FIELD(GroupJoinPacket, id, 16, 256);
  FIELD(GroupJoinPacket, rank, 272, 4);
  FIELD(GroupJoinPacket, size, 276, 4);
  FIELD(GroupJoinPacket, verify, 280, 4);
  FIELD(GroupJoinPacket, reserved0, 284, 4);
  FIELD(GroupJoinPacket, seed, 288, 8);
  FIELD(GroupJoinPacket, timeout_ms, 296, 8);
  FIELD(GroupJoinPacket, op_timeout_ms, 304, 8);
  FIELD(GroupJoinPacket, completed_ops, 312, 8);
}

TEST(FrozenLayout, GroupSplitPacket) {
  EXPECT_EQ(sizeof(GroupSplitPacket), 64u);
  FIELD(GroupSplitPacket, header, 0, 16);
  FIELD(GroupSplitPacket, group, 16, 8);
  FIELD(GroupSplitPacket, color, 24, 4);
  FIELD(GroupSplitPacket, key, 28, 4);
  FIELD(GroupSplitPacket, verify, 32, 4);
  FIELD(GroupSplitPacket, reserved0, 36, 4);
  FIELD(GroupSplitPacket, seed, 40, 8);
  FIELD(GroupSplitPacket, timeout_ms, 48, 8);
  FIELD(GroupSplitPacket, op_timeout_ms, 56, 8);
}

TEST(FrozenLayout, GroupSplitReplyPacket) {
  EXPECT_EQ(sizeof(GroupSplitReplyPacket), 72u);
  FIELD(GroupSplitReplyPacket, header, 0, 16);
  FIELD(GroupSplitReplyPacket, group, 16, 8);
  FIELD(GroupSplitReplyPacket, node, 24, 4);
  FIELD(GroupSplitReplyPacket, node_count, 28, 4);
  FIELD(GroupSplitReplyPacket, epoch, 32, 4);
  FIELD(GroupSplitReplyPacket, lane_count, 36, 4);
  FIELD(GroupSplitReplyPacket, chunk_bytes, 40, 8);
  FIELD(GroupSplitReplyPacket, eager_bytes, 48, 8);
  FIELD(GroupSplitReplyPacket, max_ops_in_flight, 56, 8);
  FIELD(GroupSplitReplyPacket, rank, 64, 4);
  FIELD(GroupSplitReplyPacket, size, 68, 4);
}

TEST(FrozenLayout, GroupJoinedPacket) {
  EXPECT_EQ(sizeof(GroupJoinedPacket), 72u);
  FIELD(GroupJoinedPacket, header, 0, 16);
  FIELD(GroupJoinedPacket, group, 16, 8);
  FIELD(GroupJoinedPacket, node, 24, 4);
  FIELD(GroupJoinedPacket, node_count, 28, 4);
  FIELD(GroupJoinedPacket, epoch, 32, 4);
  FIELD(GroupJoinedPacket, lane_count, 36, 4);
  FIELD(GroupJoinedPacket, chunk_bytes, 40, 8);
  FIELD(GroupJoinedPacket, eager_bytes, 48, 8);
  FIELD(GroupJoinedPacket, max_ops_in_flight, 56, 8);
  FIELD(GroupJoinedPacket, last_common_op, 64, 8);
}

TEST(FrozenLayout, GroupLeavePacket) {
  EXPECT_EQ(sizeof(GroupLeavePacket), 24u);
  FIELD(GroupLeavePacket, header, 0, 16);
  FIELD(GroupLeavePacket, group, 16, 8);
}

TEST(FrozenLayout, TensorDeclarePacket) {
  EXPECT_EQ(sizeof(TensorDeclarePacket), 248u);
  FIELD(TensorDeclarePacket, header, 0, 16);
  FIELD(TensorDeclarePacket, group, 16, 8);
  FIELD(TensorDeclarePacket, count, 24, 8);
  FIELD(TensorDeclarePacket, dtype, 32, 1);
  FIELD(TensorDeclarePacket, role, 33, 1);
  FIELD(TensorDeclarePacket, exempt, 34, 1);
  FIELD(TensorDeclarePacket, client_blocks, 35, 1);
  FIELD(TensorDeclarePacket, priority, 36, 4);
  FIELD(TensorDeclarePacket, name, 40, 128);
  FIELD(TensorDeclarePacket, recipe, 168, 64);
  FIELD(TensorDeclarePacket, level, 232, 16);
}

TEST(FrozenLayout, TensorRecipesPacket) {
  EXPECT_EQ(sizeof(TensorRecipesPacket), 1048u);
  FIELD(TensorRecipesPacket, header, 0, 16);
  FIELD(TensorRecipesPacket, count, 16, 4);
  FIELD(TensorRecipesPacket, reserved0, 20, 4);
  FIELD(TensorRecipesPacket, recipes, 24, 1024);
  EXPECT_EQ(static_cast<int>(PacketKind::tensor_recipes), 26);
  EXPECT_EQ(static_cast<int>(PacketKind::tensor_recipes_reply), 27);
  EXPECT_EQ(kBlocksByRecipe, 1);
  EXPECT_EQ(kBlocksByTuner, 2);
  EXPECT_EQ(kFeatureTunedBlocks, 128u);
}

TEST(FrozenLayout, EncodedBy) {
  EXPECT_EQ((EncodedBy{0, 0}.packed()), 1u);
  EXPECT_EQ((EncodedBy{5, 2}.packed()), 0x206u);
  EXPECT_EQ(EncodedBy::of(0x206), (EncodedBy{5, 2}));
}

TEST(FrozenLayout, TensorBlocksPacket) {
  EXPECT_EQ(sizeof(TensorBlocksPacket), 112u);
  FIELD(TensorBlocksPacket, header, 0, 16);
  FIELD(TensorBlocksPacket, chunk_elements, 16, 8);
  FIELD(TensorBlocksPacket, seed, 24, 8);
  FIELD(TensorBlocksPacket, most_block_bytes, 32, 8);
  FIELD(TensorBlocksPacket, travels_whole, 40, 4);
  FIELD(TensorBlocksPacket, is_tuned, 44, 4);
  FIELD(TensorBlocksPacket, recipe, 48, 64);
}

// Client and daemon compute the places of slots by themselves.
TEST(FrozenLayout, BlockSlots) {
  constexpr BlockSlots kSlots{10'000, 4096, 4};
  EXPECT_EQ(kSlots.slots(), 3u);
  EXPECT_EQ(kSlots.slot_bytes(), 18'496u);  // 32 + 4 * 4096 + 2048, on a cache line
  EXPECT_EQ(kSlots.bytes(), 3 * 18'496u);
  EXPECT_EQ(kSlots.block_offset(4095), 0u);
  EXPECT_EQ(kSlots.block_offset(4096), 18'496u);
  EXPECT_EQ(kSlots.element_offset(4097), 18'496u + 32 + 4);
  EXPECT_EQ((BlockSlots{100, 4096, 4}.slot_bytes()), 2'496u);  // fewer elements than a chunk has
}

TEST(FrozenLayout, TensorDeclaredPacket) {
  EXPECT_EQ(sizeof(TensorDeclaredPacket), 40u);
  FIELD(TensorDeclaredPacket, header, 0, 16);
  FIELD(TensorDeclaredPacket, tensor, 16, 8);
  FIELD(TensorDeclaredPacket, next_sequence, 24, 8);
  FIELD(TensorDeclaredPacket, one_lane, 32, 4);
  FIELD(TensorDeclaredPacket, reserved0, 36, 4);
}

TEST(FrozenLayout, TensorReleasePacket) {
  EXPECT_EQ(sizeof(TensorReleasePacket), 32u);
  FIELD(TensorReleasePacket, header, 0, 16);
  FIELD(TensorReleasePacket, group, 16, 8);
  FIELD(TensorReleasePacket, tensor, 24, 8);
}

TEST(FrozenLayout, TensorStatsPacket) {
  EXPECT_EQ(sizeof(TensorStatsPacket), 168u);
  FIELD(TensorStatsPacket, header, 0, 16);
  FIELD(TensorStatsPacket, ops, 16, 8);
  FIELD(TensorStatsPacket, bytes_raw, 24, 8);
  FIELD(TensorStatsPacket, bytes_sent, 32, 8);
  FIELD(TensorStatsPacket, residual_ratio_bits, 40, 8);
  FIELD(TensorStatsPacket, encode_ns, 48, 8);
  FIELD(TensorStatsPacket, queue_ns, 56, 8);
  FIELD(TensorStatsPacket, wire_ns, 64, 8);
  FIELD(TensorStatsPacket, decode_ns, 72, 8);
  FIELD(TensorStatsPacket, wait_ns, 80, 8);
  FIELD(TensorStatsPacket, raw_fallbacks, 88, 8);
  FIELD(TensorStatsPacket, state_bytes, 96, 8);
  FIELD(TensorStatsPacket, recipe, 104, 64);
}

TEST(FrozenLayout, RegionPackets) {
  EXPECT_EQ(sizeof(RegionCreatePacket), 24u);
  FIELD(RegionCreatePacket, bytes, 16, 8);
  EXPECT_EQ(sizeof(RegionCreatedPacket), 40u);
  FIELD(RegionCreatedPacket, region, 16, 4);
  FIELD(RegionCreatedPacket, reserved0, 20, 4);
  FIELD(RegionCreatedPacket, bytes, 24, 8);
  FIELD(RegionCreatedPacket, segment_bytes, 32, 8);
  EXPECT_EQ(sizeof(RegionPacket), 24u);
  FIELD(RegionPacket, region, 16, 4);
  FIELD(RegionPacket, reserved0, 20, 4);
  EXPECT_EQ(static_cast<int>(PacketKind::region_create), 19);
  EXPECT_EQ(static_cast<int>(PacketKind::region_free), 22);
}

TEST(FrozenLayout, DeviceReportPacket) {
  EXPECT_EQ(sizeof(DeviceReportPacket), 384u);
  FIELD(DeviceReportPacket, header, 0, 16);
  FIELD(DeviceReportPacket, device, 16, 4);
  FIELD(DeviceReportPacket, reserved0, 20, 4);
  FIELD(DeviceReportPacket, device_bytes, 24, 8);
  FIELD(DeviceReportPacket, pinned_bytes, 32, 8);
  FIELD(DeviceReportPacket, pinning_failures, 40, 8);
  FIELD(DeviceReportPacket, operations, 48, 8);
  FIELD(DeviceReportPacket, failures, 56, 8);
  FIELD(DeviceReportPacket, encodes, 64, 8);
  FIELD(DeviceReportPacket, encode_ns, 72, 8);
  FIELD(DeviceReportPacket, last_encode_ns, 80, 8);
  FIELD(DeviceReportPacket, decodes, 88, 8);
  FIELD(DeviceReportPacket, decode_ns, 96, 8);
  FIELD(DeviceReportPacket, last_decode_ns, 104, 8);
  FIELD(DeviceReportPacket, reserved1, 112, 16);
  FIELD(DeviceReportPacket, pinning_problem, 128, 256);
  EXPECT_EQ(static_cast<int>(PacketKind::device_report), 25);
  EXPECT_EQ(kFeatureDevices, 64u);
  EXPECT_EQ(kMaxDevices, 16u);
  EXPECT_EQ(kMaxReportedBytes, std::uint64_t{1} << 47);
}

TEST(FrozenLayout, DonePacket) {
  EXPECT_EQ(sizeof(DonePacket), 536u);
  FIELD(DonePacket, header, 0, 16);
  FIELD(DonePacket, status, 16, 4);
  FIELD(DonePacket, reserved0, 20, 4);
  FIELD(DonePacket, detail, 24, 512);
}

TEST(FrozenLayout, Constants) {
  EXPECT_EQ(wire::kShmAbi, 1);
  EXPECT_EQ(kSegmentMagic, 0x474e5254u);
  EXPECT_EQ(kPacketMagic, 0x4b504e54u);
  EXPECT_EQ(kMaxLanes, 16u);
  EXPECT_EQ(kRingEntries, 512u);
  EXPECT_EQ(kMaxPacketBytes, 4096u);
}

TEST(FrozenLayout, Kinds) {
  EXPECT_EQ(static_cast<int>(OpKind::all_reduce), 1);
  EXPECT_EQ(static_cast<int>(OpKind::broadcast), 2);
  EXPECT_EQ(static_cast<int>(OpKind::barrier), 3);
  EXPECT_EQ(static_cast<int>(OpKind::cancel), 4);
  EXPECT_EQ(static_cast<int>(OpKind::reduce), 5);
  EXPECT_EQ(static_cast<int>(OpKind::reduce_scatter), 6);
  EXPECT_EQ(static_cast<int>(OpKind::all_gather), 7);
  EXPECT_EQ(static_cast<int>(OpKind::all_to_all), 9);
  EXPECT_EQ(static_cast<int>(OpKind::gather), 11);
  EXPECT_EQ(static_cast<int>(OpKind::scatter), 12);
  EXPECT_EQ(static_cast<int>(OpKind::send), 13);
  EXPECT_EQ(static_cast<int>(OpKind::recv), 14);
  EXPECT_EQ(kAnySource, 0xffffffffu);
  EXPECT_EQ(kEntryHasCounts, 1);
  EXPECT_EQ(static_cast<int>(PacketKind::hello), 1);
  EXPECT_EQ(static_cast<int>(PacketKind::welcome), 2);
  EXPECT_EQ(static_cast<int>(PacketKind::group_mint), 3);
  EXPECT_EQ(static_cast<int>(PacketKind::group_minted), 4);
  EXPECT_EQ(static_cast<int>(PacketKind::group_join), 5);
  EXPECT_EQ(static_cast<int>(PacketKind::group_joined), 6);
  EXPECT_EQ(static_cast<int>(PacketKind::group_leave), 7);
  EXPECT_EQ(static_cast<int>(PacketKind::tensor_declare), 8);
  EXPECT_EQ(static_cast<int>(PacketKind::tensor_declared), 9);
  EXPECT_EQ(static_cast<int>(PacketKind::tensor_release), 10);
  EXPECT_EQ(static_cast<int>(PacketKind::tensor_stats), 11);
  EXPECT_EQ(static_cast<int>(PacketKind::tensor_stats_reply), 12);
  EXPECT_EQ(static_cast<int>(PacketKind::done), 13);
  EXPECT_EQ(static_cast<int>(PacketKind::goodbye), 14);
  EXPECT_EQ(static_cast<int>(PacketKind::tensor_state), 15);
  EXPECT_EQ(static_cast<int>(PacketKind::tensor_state_reply), 16);
  EXPECT_EQ(static_cast<int>(PacketKind::tensor_blocks), 23);
  EXPECT_EQ(static_cast<int>(PacketKind::tensor_blocks_reply), 24);
  EXPECT_EQ(kEntryHasBlocks, 8);
  EXPECT_EQ(kFeatureBlocks, 32u);
  EXPECT_EQ(static_cast<int>(StateAction::size), 1);
  EXPECT_EQ(static_cast<int>(StateAction::export_part), 2);
  EXPECT_EQ(static_cast<int>(StateAction::import_parts), 3);
}

}  // namespace
}  // namespace tern::shm
