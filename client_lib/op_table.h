#pragma once

// The ops of one client between submission and the call that reports their end. A fixed pool: its
// size is at most kRingEntries, and an op has at most one completion per lane, so that a completion
// ring can never be asked to hold more than it can.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/errc.h"
#include "client_lib/delivery.h"
#include "client_lib/include/tern/tern.h"
#include "plan/plan.h"
#include "shm/block_slots.h"
#include "shm/encoded_by.h"
#include "shm/layout.h"
#include "shm/sharding.h"

namespace tern::client_lib {

inline constexpr std::uint32_t kMaxOps = shm::kRingEntries;
inline constexpr std::uint64_t kNotCounted = std::numeric_limits<std::uint64_t>::max();
inline constexpr std::uint64_t kNoOffset = std::numeric_limits<std::uint64_t>::max();

// A joined group. Guarded by: the client's mutex, below the mark.
struct GroupState {
  std::string id;  // empty: it has come of a split
  std::uint64_t number = 0;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int32_t node = 0;
  std::uint32_t node_count = 1;
  std::uint32_t lane_count = 1;
  std::uint32_t epoch = 1;
  std::uint64_t chunk_bytes = 0;
  std::uint64_t eager_bytes = 0;
  std::uint64_t max_ops_in_flight = 0;
  std::uint64_t last_common_op = 0;
  // ---- mark
  bool left = false;
  std::uint64_t next_anonymous = 0;
  std::uint64_t submitted = 0;
  std::uint64_t in_flight = 0;                                             // ops of all ranks
  std::uint64_t passing = 0;                                               // sends and recvs
  std::uint64_t first_failed = std::numeric_limits<std::uint64_t>::max();  // index of the op

  std::uint64_t& count_of(bool passes) noexcept { return passes ? passing : in_flight; }
  bool is_full(bool passes) const noexcept {
    return passes ? passing >= plan::kMaxPassing : in_flight >= max_ops_in_flight;
  }
};

// Of a tensor with client_blocks.
struct TensorBlocks {
  shm::BlockSlots slots;
  bool travels_whole = false;
  std::uint64_t most_block_bytes = 0;
  std::uint64_t seed = 0;
  // One, or those among which the tuner chooses.
  std::vector<std::string> recipes;
  bool is_tuned = false;
};

// A declared tensor. Guarded by: as above.
struct TensorState {
  std::shared_ptr<GroupState> group;
  std::uint64_t id = 0;
  std::uint64_t count = 0;
  DType dtype = DType::f32;
  Role role = Role::exact;
  std::int32_t priority = 0;
  bool one_lane = false;
  std::optional<TensorBlocks> blocks;
  // ---- mark
  std::uint64_t next_sequence = 0;
  std::uint64_t in_flight = 0;
  bool released = false;
  // Where the tuner chooses: how the next op is to be encoded, and how the program has last been told
  // to encode it.
  shm::EncodedBy next_by;
  shm::EncodedBy told_by;

  // `packed`: of a completion, foreign. The word of the lane that counts an op counts.
  void take_choice(std::uint32_t lane, std::uint32_t packed) noexcept {
    if (!blocks || !blocks->is_tuned || packed == 0 ||
        (packed & shm::EncodedBy::kReservedBits) != 0 ||
        lane != shm::first_lane(id, 0, group->lane_count)) {
      return;
    }
    const shm::EncodedBy chosen = shm::EncodedBy::of(packed);
    if (chosen.recipe < blocks->recipes.size()) next_by = chosen;
  }
};

// What a recv has received.
struct Received {
  std::uint32_t source = 0;
  std::uint64_t elements = 0;
};

// Where the daemon finds memory of an op.
struct Place {
  std::uint32_t region = 0;  // 0: the arena
  std::uint64_t offset = 0;
};

struct Op {
  enum class State : std::uint8_t {
    free,
    preparing,  // taken, its input is being copied; has no ticket that anybody knows
    running,
    ended,      // nobody has been told yet
    reporting,  // one thread is telling; the ticket is unknown to all others
  };
  State state = State::free;
  std::uint64_t generation = 1;
  std::uint32_t lanes = 0;          // bit per lane that has an entry
  std::uint32_t pending_lanes = 0;  // those that have not completed
  Errc status = Errc::ok;
  char detail[shm::kDetailBytes] = {};
  std::shared_ptr<GroupState> group;
  std::shared_ptr<TensorState> tensor;
  std::uint64_t group_index = kNotCounted;  // n-th op of its group
  bool passes = false;                      // a send or a recv, which its group does not number
  // N-th of its tensor, or of the anonymous ops of its group; of what passes its tag.
  std::uint64_t sequence = 0;
  Op* next = nullptr;  // submitted with this one
  // The ops of a batch with one ticket share that of the first, their lead, which counts how many of
  // them have not ended. Null: the op has a ticket of its own.
  Op* lead = nullptr;
  std::uint32_t unended = 0;
  // Copies for memory outside; kNoOffset: none. The first three are offsets in `copied`, the memory
  // of the arena or of a region; the others are offsets in the arena.
  std::uint64_t input_copy = kNoOffset;
  std::uint64_t output_copy = kNoOffset;
  std::uint64_t copies = kNoOffset;  // the block that holds both of them
  std::uint32_t copies_region = 0;   // 0: the arena
  std::byte* copied = nullptr;
  Place input_at;  // its copy, or where it is
  Place output_at;
  std::uint64_t counts_copy = kNoOffset;
  std::uint64_t progress_copy = kNoOffset;
  const void* input = nullptr;  // where input_copy comes from
  void* output = nullptr;       // where output_copy goes
  // Of copies that go on while lanes work; without it they come before and after.
  shm::CopyProgress progress;
  Delivery delivery;
  std::uint8_t progress_flags = 0;  // of the entry
  // A thread fills its input, or takes of its output, without the mutex: its end waits for that.
  bool copying = false;
  Op* next_to_fill = nullptr;
  plan::Extents extents;  // which elements of the op the rank's input and output hold
  std::uint64_t input_bytes = 0;
  std::uint64_t output_bytes = 0;
  std::size_t element_bytes = 0;
  // Of a recv: what came, and where the caller wants to read it; null: nowhere.
  Received what_came;
  tern_received* received = nullptr;

  // The first failure counts. `text` is cut to the room there is, which it fills without a zero.
  void fail(Errc code, std::string_view text) noexcept {
    if (status != Errc::ok) return;
    status = code;
    const std::size_t bytes = std::min(text.size(), sizeof(detail));
    std::copy_n(text.data(), bytes, detail);
    std::fill(detail + bytes, detail + sizeof(detail), '\0');
  }
};

// Guarded by: the client's mutex.
class OpTable {
 public:
  OpTable() : ops_(kMaxOps) {
    free_.reserve(kMaxOps);
    for (std::uint32_t i = kMaxOps; i > 0; --i) free_.push_back(i - 1);
  }

  // In state preparing; nullptr when all are in use.
  Op* reserve() noexcept {
    if (free_.empty()) return nullptr;
    Op& op = ops_[free_.back()];
    free_.pop_back();
    op.state = Op::State::preparing;
    return &op;
  }

  // Ends the op's ticket for good.
  void release(Op& op) noexcept {
    const std::uint64_t generation = op.generation + 1;
    op = Op{};
    op.generation = generation;
    free_.push_back(index(op));
  }

  // Index and generation; the low half is never 0.
  std::uint64_t ticket(const Op& op) const noexcept {
    return (op.generation << kIndexBits) | (index(op) + 1u);
  }

  // nullptr for a ticket that is not in use.
  Op* find(std::uint64_t ticket) noexcept {
    const std::uint64_t number = ticket & ((std::uint64_t{1} << kIndexBits) - 1);
    if (number == 0 || number > kMaxOps) return nullptr;
    Op& op = ops_[number - 1];
    const bool known = op.state == Op::State::running || op.state == Op::State::ended;
    return known && op.generation == ticket >> kIndexBits ? &op : nullptr;
  }

  // The same for a ticket that a program has: not that of an op whose lead has the ticket.
  Op* find_named(std::uint64_t ticket) noexcept {
    Op* const op = find(ticket);
    return op != nullptr && (op->lead == nullptr || op->lead == op) ? op : nullptr;
  }

  std::vector<Op>& all() noexcept { return ops_; }

  // The group's first ops that have all succeeded: up to the first that failed or still runs.
  std::uint64_t completed_prefix(const GroupState& group) const noexcept {
    std::uint64_t prefix = std::min(group.submitted, group.first_failed);
    for (const Op& op : ops_) {
      if (op.state == Op::State::running && op.group.get() == &group) {
        prefix = std::min(prefix, op.group_index);
      }
    }
    return prefix;
  }

 private:
  static constexpr int kIndexBits = 16;

  std::uint32_t index(const Op& op) const noexcept {
    return static_cast<std::uint32_t>(&op - ops_.data());
  }

  std::vector<Op> ops_;
  std::vector<std::uint32_t> free_;
};

}  // namespace tern::client_lib
