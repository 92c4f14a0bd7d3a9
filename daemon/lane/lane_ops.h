#pragma once

// What a lane keeps of each op in flight, beside what collective::GroupOps knows: where its ranks'
// values lie, and how it may be sent.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/recipe.h"
#include "collective/op_rows.h"
#include "collective/slots.h"
#include "daemon/lane/operand.h"
#include "daemon/tensor/tensor_state.h"
#include "plan/plan.h"

namespace tern::daemon {

// What is made of a chunk's elements before they travel.
enum class Coding : std::uint8_t { none, lossless, lossy };

// How the blocks of an op may be encoded, whatever each of them comes out as.
struct OpEncoding {
  codec::Recipe recipe;
  bool lossy = false;              // blocks of every leg may lose what the recipe drops
  bool lossless = false;           // blocks may be shorter, bit for bit
  TensorTuning* tuning = nullptr;  // not null: the tuner chooses among what both of these allow
  float state_scale = 1.0f;

  // Of a block whose recipe is this one: the op's, or what the tuner has chosen for the block.
  Coding coding_by(const codec::Recipe& chosen) const noexcept {
    if (lossy && codec::is_lossy(chosen)) return Coding::lossy;
    return lossless && codec::is_lossless(chosen) ? Coding::lossless : Coding::none;
  }
};

// Of one local rank.
struct OpRank {
  std::uint64_t ticket = 0;
  plan::Extents extents;  // which elements of the op lie in these
  Operand input;
  Operand output;
  float prescale = 1.0f;
  std::uint32_t lanes = 0;  // that have a chunk of what it submitted, as bits
  bool present = false;
  bool told = false;

  // Regions that are wanted back stay from one call to the other.
  void hold_regions() const noexcept {
    if (!input.empty()) ++input.region->uses;
    if (!output.empty()) ++output.region->uses;
  }
  void let_regions_go() const noexcept {
    if (!input.empty()) --input.region->uses;
    if (!output.empty()) --output.region->uses;
  }

  bool sends(const plan::Range& part) const noexcept {
    return part.begin >= extents.input.begin && part.end() <= extents.input.end();
  }
  bool receives(const plan::Range& part) const noexcept {
    return part.begin >= extents.output.begin && part.end() <= extents.output.end();
  }
  // Elements of the op in its memory. REQUIRES: it sends (receives) them.
  Operand input_of(const plan::Range& part, std::size_t element) const noexcept {
    return input.slice((part.begin - extents.input.begin) * element, part.count * element);
  }
  Operand output_of(const plan::Range& part, std::size_t element) const noexcept {
    return output.slice((part.begin - extents.output.begin) * element, part.count * element);
  }
};

// The first rank that sends (receives) these elements, or null. REQUIRES: there are some.
inline const OpRank* sender_of(std::span<const OpRank> ranks, const plan::Range& part) noexcept {
  for (const OpRank& rank : ranks) {
    if (rank.sends(part)) return &rank;
  }
  return nullptr;
}
inline const OpRank* receiver_of(std::span<const OpRank> ranks, const plan::Range& part) noexcept {
  for (const OpRank& rank : ranks) {
    if (rank.receives(part)) return &rank;
  }
  return nullptr;
}

struct LaneOp {
  TensorState* tensor = nullptr;
  OpEncoding encoding;
  // Frames that borrow or fill the clients' memory, and parked sums that are to be cleared.
  std::uint32_t pins = 0;
  std::uint64_t submitted_ns = 0;
  std::uint64_t started_ns = 0;
  std::uint64_t bytes_raw = 0;
  std::uint64_t bytes_sent = 0;

  // Of blocks that the rank's client has encoded, and where results go as blocks. Null: its input
  // and output hold elements.
  const shm::BlockSlots* slots() const noexcept {
    return tensor != nullptr && tensor->slots ? &*tensor->slots : nullptr;
  }
};

class LaneOps {
 public:
  // `rows`: of ops that ranks of this node may have submitted, so many have room from the beginning.
  LaneOps(std::uint32_t slots, std::uint32_t local_ranks, std::uint32_t rows)
      : ops_(slots), ranks_(slots, local_ranks, rows), nobody_(local_ranks) {}

  std::uint32_t slots() const noexcept { return static_cast<std::uint32_t>(ops_.size()); }
  const LaneOp& operator[](collective::OpId op) const noexcept { return ops_[op]; }
  // Valid until another op begins.
  std::span<const OpRank> ranks(collective::OpId op) const noexcept {
    const std::span<const OpRank> ranks = ranks_.read(op);
    return ranks.empty() ? std::span<const OpRank>(nobody_) : ranks;
  }
  // Lanes that have a chunk of what any rank submitted, as bits.
  std::uint32_t lanes(collective::OpId op) const noexcept {
    std::uint32_t lanes = 0;
    for (const OpRank& rank : ranks(op)) lanes |= rank.lanes;
    return lanes;
  }

  // Whether a rank is to be told how it ended. Nobody of a failure that is remembered, when no rank
  // will come to it any more.
  bool is_awaited(collective::OpId op) const noexcept {
    const auto ranks = this->ranks(op);
    return std::any_of(ranks.begin(), ranks.end(),
                       [](const OpRank& rank) { return rank.present && !rank.told; });
  }

  // The first rank has submitted the op. A frame that came before may have pinned it.
  void begin(collective::OpId op, const LaneOp& begun) {
    const std::uint32_t pins = ops_[op].pins;
    ops_[op] = begun;
    ops_[op].pins = pins;
    for (OpRank& rank : ranks_.write(op)) rank = OpRank{};
  }
  // REQUIRES: it has begun, and the rank has not joined.
  void join(collective::OpId op, std::uint32_t local_rank, const OpRank& rank) {
    OpRank& place = ranks_.write(op, local_rank);
    place = rank;
    place.present = true;
  }
  void told(collective::OpId op, std::uint32_t local_rank) {
    ranks_.write(op, local_rank).told = true;
  }
  void start(collective::OpId op, std::uint64_t now_ns) noexcept {
    if (ops_[op].started_ns == 0) ops_[op].started_ns = now_ns;
  }
  void count_sent(collective::OpId op, std::uint64_t raw, std::uint64_t sent,
                  std::uint64_t receivers) noexcept {
    ops_[op].bytes_raw += raw * receivers;
    ops_[op].bytes_sent += sent * receivers;
  }
  void pin(collective::OpId op) noexcept { ++ops_[op].pins; }
  // REQUIRES: it is pinned. True: nothing borrows its memory any more.
  bool unpin(collective::OpId op) noexcept { return --ops_[op].pins == 0; }
  void clear(collective::OpId op) noexcept {
    ops_[op] = LaneOp{};
    ranks_.clear(op);
  }

 private:
  std::vector<LaneOp> ops_;
  collective::OpRows<OpRank> ranks_;  // by local rank
  std::vector<OpRank> nobody_;        // the ranks of an op that none has submitted
};

}  // namespace tern::daemon
