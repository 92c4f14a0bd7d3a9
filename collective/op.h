#pragma once

#include <cstdint>
#include <string_view>

#include "base/errc.h"
#include "collective/action.h"
#include "collective/chunk_map.h"
#include "collective/op_sets.h"
#include "collective/pair_counts.h"
#include "collective/slots.h"
#include "plan/plan.h"
#include "wire/op_frames.h"

namespace tern::collective {

struct OpKey {
  std::uint64_t tensor = 0;  // 0: anonymous
  std::uint64_t sequence = 0;
  bool operator==(const OpKey&) const = default;
};

// Why an op failed, and which rank that is about.
struct Failure {
  Errc code = Errc::ok;
  std::uint32_t about_rank = kNoRank;
  std::string_view text;
};

struct Op {
  OpKey key;
  // Null: nobody has said yet what the op is. Never of one that a rank of this node has submitted.
  const plan::Plan* plan = nullptr;
  // What the first said that spoke of the op, here or on another node: `rank`. All others must say
  // the same.
  wire::AnnounceBody announced_first{};
  bool started = false;  // all nodes have announced
  bool failed = false;
  bool completing = false;        // complete has been issued
  bool remembered = false;        // it has failed, and only ranks of this node may still ask for it
  bool eager = false;             // until a node says that it wants the two legs
  bool announces_chunks = false;  // each node's announcement brings the owner its contribution
  bool compressed = false;        // by this node: its contributions are small
  bool scans = false;             // this node's values, all of them, before any is encoded
  bool verifying = false;
  std::int32_t priority = 0;
  std::uint64_t order = 0;
  std::uint64_t submitted = 0;       // local ranks, by their index on this node
  std::uint64_t submitted_told = 0;  // of these, those that the other nodes know of
  std::uint64_t announced = 0;       // nodes
  std::uint64_t verified = 0;        // nodes whose checksums are here
  std::uint64_t first_submit_ns = 0;
  // Of an op that takes the two legs; where ranks bring counts, from when the first of this node
  // submits.
  ChunkMap chunks;
  const std::uint64_t* share_begins = nullptr;  // see ShareChunks; null: equal shares, or none
  PairCounts* pairs = nullptr;                  // null: pairs have alike, or there are none
  std::uint32_t root_node = 0;
  std::uint32_t steps_left = 0;  // results to deliver here, or else contributions to send
  std::uint32_t in_flight = 0;   // actions that are not done, results that are being delivered
  std::uint64_t issued = 0;      // of these, kinds that an op has one at a time of, as bits
  Errc status = Errc::ok;
  std::uint32_t about_rank = kNoRank;
  char text[184] = {};

  bool is_issued(ActionKind kind) const noexcept {
    return (issued & bit(static_cast<std::uint32_t>(kind))) != 0;
  }
  // Whether `self`, this node, has announced the op, or is doing so.
  bool has_spoken(std::uint32_t self) const noexcept {
    return (announced & bit(self)) != 0 || is_issued(ActionKind::announce);
  }
};

}  // namespace tern::collective
