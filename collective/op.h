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

// How the values of an op travel.
enum class Form : std::uint8_t {
  legs,              // each owner grants its chunks, adds what comes and sends the results
  eager,             // with the announcements, until a node says that it wants the legs
  announced_chunks,  // each node's announcement brings the owner its contribution
};

// How far an op has come; one that has failed, how far it had come then.
enum class Stage : std::uint8_t {
  gathering,  // ranks submit, nodes announce
  running,    // all nodes have announced
  verifying,  // all results are delivered here
};

// Whether the ranks that have submitted an op are being told of its end.
enum class Ending : std::uint8_t {
  none,
  completing,  // complete has been issued
  remembered,  // it has failed, and only ranks of this node may still ask for it
};

// What this node contributes of an op.
enum class Contribution : std::uint8_t {
  elements,
  blocks,          // it is small
  scanned_blocks,  // of this node's values all are scanned before any is encoded
};

struct Op {
  OpKey key;
  // Null: nobody has said yet what the op is. Never of one that a rank of this node has submitted.
  const plan::Plan* plan = nullptr;
  // The first announcement, of a rank here or on another node (`rank`). Later ones must match it.
  wire::AnnounceBody announced_first{};
  Form form = Form::legs;
  Stage stage = Stage::gathering;
  Ending ending = Ending::none;
  Contribution contribution = Contribution::elements;
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
  Errc status = Errc::ok;        // until it has failed
  std::uint32_t about_rank = kNoRank;
  char text[184] = {};

  constexpr bool failed() const noexcept { return status != Errc::ok; }
  constexpr bool has_started() const noexcept { return stage != Stage::gathering; }
  constexpr bool is_verifying() const noexcept { return stage == Stage::verifying; }
  constexpr bool is_completing() const noexcept { return ending == Ending::completing; }
  constexpr bool is_remembered() const noexcept { return ending == Ending::remembered; }
  constexpr bool is_eager() const noexcept { return form == Form::eager; }
  constexpr bool announces_chunks() const noexcept { return form == Form::announced_chunks; }
  bool is_issued(ActionKind kind) const noexcept {
    return (issued & bit(static_cast<std::uint32_t>(kind))) != 0;
  }
  // Whether `self`, this node, has announced the op, or is doing so.
  bool has_spoken(std::uint32_t self) const noexcept {
    return (announced & bit(self)) != 0 || is_issued(ActionKind::announce);
  }
};

}  // namespace tern::collective
