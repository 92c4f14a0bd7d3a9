#pragma once

// The bytes that a client and its daemon share, version kShmAbi. Defined here and nowhere else;
// docs/shm-layout.md explains them, tests/shm/frozen_layout_test.cc freezes them.
//
// A segment is one sealed memfd: a header page, then for every lane a submission ring and a
// completion ring, then the arena. Offsets only, never pointers. Every cache line has one writer.

#include <cstddef>
#include <cstdint>

#include "wire/layout_check.h"
#include "wire/versions.h"

namespace tern::shm {

inline constexpr std::uint32_t kSegmentMagic = 0x474e5254;  // "TRNG"
inline constexpr std::uint32_t kMaxLanes = 16;
inline constexpr std::uint32_t kRingEntries = 512;  // per ring; a power of two
inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kRecipeTextBytes = 48;
inline constexpr std::size_t kDetailBytes = 192;

// One direction of one lane, in the segment header. head is written by the consumer, tail by the
// producer; both count entries and never wrap in practice (2^64).
struct RingIndex {
  alignas(kCacheLine) std::uint64_t head;
  std::uint64_t head_padding[7];
  alignas(kCacheLine) std::uint64_t tail;
  std::uint64_t tail_padding[7];
};
TERN_FORMAT_STRUCT(RingIndex, 128);

struct LaneRings {
  RingIndex submit;      // client -> lane
  RingIndex completion;  // lane -> client
  // Written by the lane: 1 while it sleeps, and then the client writes the lane's eventfd after it
  // has published an entry.
  alignas(kCacheLine) std::uint32_t lane_sleeps;
  std::uint32_t reserved[15];
};
TERN_FORMAT_STRUCT(LaneRings, 320);

struct SegmentHeader {
  std::uint32_t magic;
  std::uint16_t abi;  // written last, with release: who sees it sees all that is below
  std::uint16_t lane_count;
  std::uint64_t segment_bytes;
  std::uint64_t submit_entries_offset;      // lane_count * kRingEntries * sizeof(SubmitEntry)
  std::uint64_t completion_entries_offset;  // lane_count * kRingEntries * sizeof(CompletionEntry)
  std::uint64_t arena_offset;               // page aligned
  std::uint64_t arena_bytes;
  std::uint32_t spin_ns;  // how long a client may spin before it sleeps
  // Written by the daemon at any time: 1 while lanes and clients are no fewer than cores, and then
  // no client spins.
  std::uint32_t cores_are_few;
  std::uint64_t reserved1;

  // The client sleeps on this word by futex; lanes add 1 after they have published completions.
  alignas(kCacheLine) std::uint32_t doorbell;
  std::uint32_t doorbell_padding[15];
  // Written by the client: how many of its threads sleep on the doorbell, and whether its pollable
  // descriptor wants a byte (a lane that sees 1 sets 0 and sends one).
  alignas(kCacheLine) std::uint32_t sleepers;
  std::uint32_t fd_armed;
  std::uint32_t sleepers_padding[14];

  LaneRings lanes[kMaxLanes];
};
TERN_FORMAT_STRUCT(SegmentHeader, 64 + 64 + 64 + kMaxLanes * 320);
static_assert(offsetof(SegmentHeader, doorbell) == 64);
static_assert(offsetof(SegmentHeader, sleepers) == 128);
static_assert(offsetof(SegmentHeader, lanes) == 192);

enum class OpKind : std::uint16_t {
  all_reduce = 1,
  broadcast = 2,
  barrier = 3,
  cancel = 4,  // ticket names the op to cancel; has no completion of its own
  reduce = 5,
  reduce_scatter = 6,
  all_gather = 7,
  all_to_all = 9,
  gather = 11,
  scatter = 12,
  send = 13,
  recv = 14,
  // Reserved: group_split 15, submit_many 16. 8 and 10 are free:
  // whether shares are equal is no kind of its own.
};

inline constexpr std::uint8_t kEntryHasCounts = 1;
inline constexpr std::uint8_t kEntryHasProgress = 2;
// With kEntryHasProgress, of a sum that each rank gets a share of: the input comes share by share,
// from that of the rank before this one downwards, and this rank's own last.
inline constexpr std::uint8_t kEntrySharesDown = 4;
// Input and output are slots of blocks (shm/block_slots.h), and not elements: of a tensor that was
// declared with client_blocks, and of no other.
inline constexpr std::uint8_t kEntryHasBlocks = 8;
inline constexpr std::uint32_t kAnySource = 0xffffffff;

// One submitted op, written to every lane that owns a chunk of it (docs/architecture.md, "Lanes").
// The lane copies it and validates the copy.
struct SubmitEntry {
  std::uint64_t ticket;
  std::uint16_t kind;      // OpKind
  std::uint8_t dtype;      // tern::DType
  std::uint8_t reduction;  // tern::Reduction
  std::uint8_t role;       // tern::Role; of an anonymous op always exact
  std::uint8_t flags;      // kEntryHas... bits; the others are reserved, zero
  std::uint16_t reserved0;
  std::uint64_t group;         // the daemon's number for the joined group
  std::uint64_t tensor;        // tensor id; 0 for an anonymous op
  std::uint64_t sequence;      // n-th use of the tensor, or n-th anonymous op; from 0. Of a send or
                               // recv the tag, less than 2^32
  std::uint64_t count;         // elements
  std::uint32_t input_region;  // 0: the arena; others are registered memory
  std::uint32_t output_region;
  std::uint64_t input_offset;
  std::uint64_t output_offset;
  std::uint32_t root;           // rank, of a kind that has one. Of a send who receives, of a recv
                                // who sends, or kAnySource
  std::int32_t priority;        // higher first
  std::uint32_t prescale_bits;  // f32
  std::uint32_t state_scale_bits;  // f32
  // With kEntryHasCounts, in the arena: elements of each rank's share, as u64; of an all_to_all for
  // each rank, then from each. Each lane copies them once and judges the copy. Otherwise zero.
  std::uint64_t counts_offset;
  std::uint64_t wait_event;       // reserved for device events, zero
  std::uint64_t signal_event;     // reserved, zero
  char recipe[kRecipeTextBytes];  // zero-padded; all zero: the tensor's
  // With kEntryHasProgress, in the arena and on a cache line: the op's memory is a copy of memory
  // elsewhere, and here is how far the copying has come (shm/copy_progress.h). Otherwise zero.
  std::uint64_t progress_offset;
  std::uint32_t progress_records;  // room of each lane's list, at most kMaxDeliveredRecords
  // With kEntryHasBlocks, of a tensor with kBlocksByTuner: how the client has encoded the blocks
  // (shm/encoded_by.h), and what the tuner cannot see of them. Zero: nothing is said. Otherwise zero.
  std::uint32_t encoded_by;
  std::uint64_t encoded_elements;       // that went into lossy blocks; the next two are of these
  std::uint64_t encoded_energy_bits;    // f64: the sum of squares of values
  std::uint64_t encoded_residual_bits;  // f64: the sum of squares that is left in the residual
  std::uint64_t encoded_ns;             // the time in which the client wrote all slots
  std::uint64_t reserved2[6];
};
TERN_FORMAT_STRUCT(SubmitEntry, 256);
static_assert(offsetof(SubmitEntry, group) == 16);
static_assert(offsetof(SubmitEntry, count) == 40);
static_assert(offsetof(SubmitEntry, input_offset) == 56);
static_assert(offsetof(SubmitEntry, root) == 72);
static_assert(offsetof(SubmitEntry, recipe) == 112);

// How far the copying of an op's memory has come: this, a DeliveredMark for each lane of the group,
// then each lane's list of DeliveredRecords. Foreign to each side.
struct CopiedMark {
  // Bytes of the input that are there: from its beginning, or in the order of kEntrySharesDown.
  // Written by the client, and never lowered.
  alignas(kCacheLine) std::uint64_t input_bytes;
  std::uint64_t reserved[7];
};
TERN_FORMAT_STRUCT(CopiedMark, 64);

struct DeliveredMark {
  // Records of the lane's list that are there. Written by the lane, and never lowered.
  alignas(kCacheLine) std::uint64_t records;
  std::uint64_t reserved[7];
};
TERN_FORMAT_STRUCT(DeliveredMark, 64);

// A piece of the output that will not change any more, in bytes.
struct DeliveredRecord {
  std::uint64_t offset;
  std::uint64_t bytes;
};
TERN_FORMAT_STRUCT(DeliveredRecord, 16);

inline constexpr std::uint32_t kMaxDeliveredRecords = 4096;

// The end of one op on one lane. The op has ended when all its lanes have said so; the first status
// that is not ok counts.
struct CompletionEntry {
  std::uint64_t ticket;
  std::int32_t status;        // tern::Errc
  std::uint32_t source;       // of a recv that succeeded: who has sent; otherwise zero
  std::uint64_t bytes_sent;   // blocks this lane sent for the op
  char detail[kDetailBytes];  // zero-terminated sentence; empty on success
  std::uint64_t elements;     // of a recv that succeeded: how many came; otherwise zero
  // Of a tensor with kBlocksByTuner: how its next op is to be encoded (shm/encoded_by.h). The word of
  // the lane that has chunk 0 counts. Zero: nothing is said.
  std::uint32_t encode_next_by;
  std::uint32_t reserved0;
  std::uint64_t reserved1[3];
};
TERN_FORMAT_STRUCT(CompletionEntry, 256);
static_assert(offsetof(CompletionEntry, detail) == 24);

// ---- The hand-shake socket (SOCK_SEQPACKET): one packet, one struct -----------------------------

inline constexpr std::uint32_t kPacketMagic = 0x4b504e54;  // "TNPK"
inline constexpr std::size_t kMaxPacketBytes = 4096;

enum class PacketKind : std::uint16_t {
  hello = 1,            // client -> daemon: HelloPacket
  welcome = 2,          // daemon -> client: WelcomePacket + descriptors
  group_mint = 3,       // PacketHeader only
  group_minted = 4,     // GroupMintedPacket
  group_join = 5,       // GroupJoinPacket
  group_joined = 6,     // GroupJoinedPacket
  group_leave = 7,      // GroupLeavePacket -> done
  tensor_declare = 8,   // TensorDeclarePacket -> tensor_declared
  tensor_declared = 9,  // TensorDeclaredPacket
  tensor_release = 10,  // TensorReleasePacket -> done
  tensor_stats = 11,    // TensorReleasePacket -> tensor_stats_reply
  tensor_stats_reply = 12,
  done = 13,          // DonePacket: also every failure, as status and detail
  goodbye = 14,       // client -> daemon: orderly disconnect, PacketHeader only -> done
  tensor_state = 15,  // TensorStatePacket -> tensor_state_reply
  tensor_state_reply = 16,
  group_split = 17,        // GroupSplitPacket -> group_split_reply
  group_split_reply = 18,  // GroupSplitReplyPacket
  region_create = 19,      // RegionCreatePacket -> region_created
  region_created = 20,     // RegionCreatedPacket + a descriptor
  region_open = 21,        // RegionPacket -> done: the client has mapped it
  region_free = 22,        // RegionPacket -> done, when no op uses it
  tensor_blocks = 23,      // TensorReleasePacket -> tensor_blocks_reply
  tensor_blocks_reply = 24,
  device_report = 25,   // client -> daemon: DeviceReportPacket, without an answer
  tensor_recipes = 26,  // TensorReleasePacket -> tensor_recipes_reply
  tensor_recipes_reply = 27,
};

struct PacketHeader {
  std::uint32_t magic;
  std::uint16_t version;  // kShmAbi
  std::uint16_t kind;     // PacketKind
  std::uint64_t request;  // chosen by the client, repeated in the answer
};
TERN_FORMAT_STRUCT(PacketHeader, 16);

struct HelloPacket {
  PacketHeader header;
  std::uint16_t abi_min;
  std::uint16_t abi_max;
  std::uint32_t reserved0;
  std::uint64_t arena_bytes;
  std::uint64_t reserved1[4];
  char job[64];  // zero-terminated
};
TERN_FORMAT_STRUCT(HelloPacket, 128);

// Descriptors that travel with it: the segment, the client's end of the pollable socket pair, then
// one eventfd per lane.
struct WelcomePacket {
  PacketHeader header;
  std::uint16_t abi;
  std::uint16_t lane_count;
  std::uint32_t features;  // of the daemon: kFeature bits; zero in those of the first version
  std::uint64_t segment_bytes;
  std::uint64_t eager_bytes;
  std::uint64_t reserved1[4];
};
TERN_FORMAT_STRUCT(WelcomePacket, 72);

inline constexpr std::uint32_t kFeatureSplit = 1;          // it takes group_split
inline constexpr std::uint32_t kFeatureProgress = 2;       // it takes kEntryHasProgress
inline constexpr std::uint32_t kFeatureRegions = 4;        // it takes region_create and the others
inline constexpr std::uint32_t kFeatureSharesDown = 8;     // it takes kEntrySharesDown
inline constexpr std::uint32_t kFeaturePassProgress = 16;  // kEntryHasProgress of sends and recvs
inline constexpr std::uint32_t kFeatureBlocks = 32;        // TensorDeclarePacket::client_blocks
inline constexpr std::uint32_t kFeatureDevices = 64;       // it takes device_report
inline constexpr std::uint32_t kFeatureTunedBlocks = 128;  // it takes kBlocksByTuner

struct GroupMintedPacket {
  PacketHeader header;
  char id[256];
};
TERN_FORMAT_STRUCT(GroupMintedPacket, 272);

// The coordinator has the last word on a join whose time has run out, and so long for it. The epoch
// may be about to begin; otherwise the join is answered then.
inline constexpr std::int64_t kJoinLastWordMs = 1000;

struct GroupJoinPacket {
  PacketHeader header;
  char id[256];
  std::int32_t rank;
  std::int32_t size;
  std::uint32_t verify;
  std::uint32_t reserved0;
  std::uint64_t seed;
  std::int64_t timeout_ms;
  std::int64_t op_timeout_ms;
  // How many ops this client had completed in the epoch before, for a rejoin; otherwise 0.
  std::uint64_t completed_ops;
};
TERN_FORMAT_STRUCT(GroupJoinPacket, 320);

struct GroupJoinedPacket {
  PacketHeader header;
  std::uint64_t group;  // the number for SubmitEntry::group
  std::int32_t node;
  std::int32_t node_count;
  std::uint32_t epoch;
  std::uint32_t lane_count;         // lanes this group uses: the fewest of its nodes
  std::uint64_t chunk_bytes;        // agreed at the join
  std::uint64_t eager_bytes;        // agreed at the join
  std::uint64_t max_ops_in_flight;  // agreed at the join
  std::uint64_t last_common_op;
};
TERN_FORMAT_STRUCT(GroupJoinedPacket, 72);

// Every rank of the group sends one. The ranks of each colour become a group, in order of their
// keys.
struct GroupSplitPacket {
  PacketHeader header;
  std::uint64_t group;  // that is split
  std::int32_t color;   // negative: no part in any
  std::int32_t key;
  std::uint32_t verify;  // from here on as GroupJoinPacket
  std::uint32_t reserved0;
  std::uint64_t seed;
  std::int64_t timeout_ms;
  std::int64_t op_timeout_ms;
};
TERN_FORMAT_STRUCT(GroupSplitPacket, 64);

struct GroupSplitReplyPacket {
  PacketHeader header;
  std::uint64_t group;  // 0, and all that follows: the rank has no part in any
  std::int32_t node;    // as GroupJoinedPacket
  std::int32_t node_count;
  std::uint32_t epoch;
  std::uint32_t lane_count;
  std::uint64_t chunk_bytes;
  std::uint64_t eager_bytes;
  std::uint64_t max_ops_in_flight;
  std::int32_t rank;  // in the new group
  std::int32_t size;
};
TERN_FORMAT_STRUCT(GroupSplitReplyPacket, 72);

struct GroupLeavePacket {
  PacketHeader header;
  std::uint64_t group;
};
TERN_FORMAT_STRUCT(GroupLeavePacket, 24);

// TensorDeclarePacket::client_blocks: entries have blocks, see TensorBlocksPacket.
inline constexpr std::uint8_t kBlocksByRecipe = 1;  // that of the declaration: kFeatureBlocks
inline constexpr std::uint8_t kBlocksByTuner =
    2;  // or, if it is `auto`, what the tuner chooses for
        // each op: kFeatureTunedBlocks

struct TensorDeclarePacket {
  PacketHeader header;
  std::uint64_t group;
  std::uint64_t count;
  std::uint8_t dtype;
  std::uint8_t role;
  std::uint8_t exempt;
  std::uint8_t client_blocks;  // kBlocks...; zero to daemons without its feature
  std::int32_t priority;
  char name[128];
  char recipe[64];
  char level[16];
};
TERN_FORMAT_STRUCT(TensorDeclarePacket, 248);

struct TensorDeclaredPacket {
  PacketHeader header;
  std::uint64_t tensor;         // id: a hash of the name, the same on all nodes
  std::uint64_t next_sequence;  // 0, or where the tensor's count of uses goes on
  std::uint32_t one_lane;       // 1: all chunks of the tensor are on one lane (scale=tensor)
  std::uint32_t reserved0;
};
TERN_FORMAT_STRUCT(TensorDeclaredPacket, 40);

struct TensorReleasePacket {
  PacketHeader header;
  std::uint64_t group;
  std::uint64_t tensor;
};
TERN_FORMAT_STRUCT(TensorReleasePacket, 32);

struct TensorStatsPacket {
  PacketHeader header;
  std::uint64_t ops, bytes_raw, bytes_sent;
  std::uint64_t residual_ratio_bits;  // f64
  std::uint64_t encode_ns, queue_ns, wire_ns, decode_ns, wait_ns;
  std::uint64_t raw_fallbacks, state_bytes;
  char recipe[64];
};
TERN_FORMAT_STRUCT(TensorStatsPacket, 168);

// How the client of a tensor with client_blocks has to encode what this node contributes.
struct TensorBlocksPacket {
  PacketHeader header;
  std::uint64_t chunk_elements;    // see BlockSlots
  std::uint64_t seed;              // of the group's random draws
  std::uint64_t most_block_bytes;  // what a lossy block may need at most, or the chunk goes raw
  std::uint32_t travels_whole;     // 1: there is one slot, and no node owns it
  std::uint32_t is_tuned;          // 1: the recipe is the first op's, see TensorRecipesPacket
  char recipe[64];  // in canonical form, for sums and averages; "raw": nothing is encoded
};
TERN_FORMAT_STRUCT(TensorBlocksPacket, 112);

inline constexpr std::size_t kMaxTunedRecipes = 16;

// Among which the tuner chooses for the blocks of a tensor, in canonical form. The first is raw.
struct TensorRecipesPacket {
  PacketHeader header;
  std::uint32_t count;  // 1 .. kMaxTunedRecipes
  std::uint32_t reserved0;
  char recipes[kMaxTunedRecipes][64];
};
TERN_FORMAT_STRUCT(TensorRecipesPacket, 1048);

enum class StateAction : std::uint32_t {
  size = 1,         // how many bytes this node's part of the codec state has
  export_part = 2,  // writes it
  import_parts = 3  // reads one or more, one after the other
};

struct TensorStatePacket {
  PacketHeader header;
  std::uint64_t group;
  std::uint64_t tensor;
  std::uint64_t offset;  // of the room in the client's arena
  std::uint64_t bytes;
  std::uint32_t action;  // StateAction
  std::uint32_t reserved0;
};
TERN_FORMAT_STRUCT(TensorStatePacket, 56);

struct TensorStateReplyPacket {
  PacketHeader header;
  std::uint64_t bytes;  // of this node's part
};
TERN_FORMAT_STRUCT(TensorStateReplyPacket, 24);

// A region is memory beside the arena; a segment without lanes, of which only the arena is used.
inline constexpr std::uint32_t kMaxRegions = 64;  // of a client at once

struct RegionCreatePacket {
  PacketHeader header;
  std::uint64_t bytes;
};
TERN_FORMAT_STRUCT(RegionCreatePacket, 24);

struct RegionCreatedPacket {
  PacketHeader header;
  std::uint32_t region;  // for SubmitEntry::input_region and output_region; never 0
  std::uint32_t reserved0;
  std::uint64_t bytes;
  std::uint64_t segment_bytes;  // of the descriptor
};
TERN_FORMAT_STRUCT(RegionCreatedPacket, 40);

struct RegionPacket {
  PacketHeader header;
  std::uint32_t region;
  std::uint32_t reserved0;
};
TERN_FORMAT_STRUCT(RegionPacket, 24);

// What a client does on one device of its own, of which the daemon knows nothing else: a number of
// bytes is what is held now, all else counts from when the client began to use the device. A report
// takes the place of the one before of the same device.
inline constexpr std::uint32_t kMaxDevices = 16;  // of a client
// More than any machine has, and little enough that those of all clients can be added.
inline constexpr std::uint64_t kMaxReportedBytes = std::uint64_t{1} << 47;

struct DeviceReportPacket {
  PacketHeader header;
  std::uint32_t device;  // as the client counts them, less than kMaxDevices
  std::uint32_t reserved0;
  std::uint64_t device_bytes;  // of the device's memory; at most kMaxReportedBytes, as the next
  std::uint64_t pinned_bytes;  // of the host's memory
  std::uint64_t pinning_failures;
  std::uint64_t operations;  // ended, with success or without
  std::uint64_t failures;    // of these, without
  std::uint64_t encodes;     // that the device has measured
  std::uint64_t encode_ns;   // of all of them
  std::uint64_t last_encode_ns;
  std::uint64_t decodes;
  std::uint64_t decode_ns;
  std::uint64_t last_decode_ns;
  std::uint64_t reserved1[2];
  char pinning_problem[256];  // zero-terminated: why the last pinning that failed did; empty: none
};
TERN_FORMAT_STRUCT(DeviceReportPacket, 384);

struct DonePacket {
  PacketHeader header;
  std::int32_t status;  // tern::Errc
  std::uint32_t reserved0;
  char detail[512];  // zero-terminated
};
TERN_FORMAT_STRUCT(DonePacket, 536);

}  // namespace tern::shm
