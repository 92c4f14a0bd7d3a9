#pragma once

// What kind of operation an op is, as a descriptor. Client library, state machine and lane ask the
// descriptor and never the number, so that one more operation is one more descriptor
// (docs/architecture.md, "An operation is a plan").
//
// The words: an op has `count` elements, which are cut into chunks. A rank's input holds some of
// them, and its output others or the same. What a node contributes to a chunk is made of its ranks'
// inputs; the chunk's owner makes the result of it and sends that to the nodes whose outputs have
// room for it.

#include <cmath>
#include <cstdint>

#include "base/dtype.h"
#include "plan/pairs.h"
#include "plan/shares.h"

namespace tern::plan {

// What happens to values between input and output.
enum class Work : std::uint8_t {
  none,    // there are none: ranks only meet
  reduce,  // contributions are added; a reduce leg to the owners, then a broadcast leg
  move,    // the values of one rank arrive as they are; a broadcast leg only
  pass,    // one rank sends to one other, and no third hears of it; not cut into chunks
};

// What is cut into chunks: all elements as one, each rank's share by itself, or what each rank has
// for each by itself.
enum class Parts : std::uint8_t { whole, shares, pairs };

// Whose values go in, and who gets the result. `sharer`: the rank whose share an element is in, or
// of a pair the one that has it. `partner`: of a pair the one that it is for.
enum class Ranks : std::uint8_t { nobody, every, root, sharer, partner };

// Which node adds and sends a chunk: each in turn, the root's, that of the share's rank, or each
// but the root's in turn.
enum class Ownership : std::uint8_t { striped, root_node, sharer_node, others };

// How an op travels that fits in its announcement.
enum class Eager : std::uint8_t {
  nothing,        // an announcement never has values
  contributions,  // of what each node contributes, what concerns the receiver. A node may decline
  values,         // of what each node has, what concerns the receiver
};

// What an entry says of an op, and for which rank.
struct Shape {
  std::uint64_t count = 0;  // elements of the op
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
  bool names_tensor = false;
  float prescale = 1.0f;
  float state_scale = 1.0f;
  std::uint32_t root = 0;   // of what is passed: the other rank, or shm::kAnySource
  std::uint32_t rank = 0;   // whose input and output are meant
  std::uint32_t ranks = 1;  // of the group
  // Null: equal. Of shares, see Shares; of pairs, elements for each rank, then elements from each.
  const std::uint64_t* counts = nullptr;

  Shares shares() const noexcept { return {count, ranks, counts}; }
  Pairs pairs() const noexcept { return {count, ranks, counts}; }
};

// Sends and recvs that a rank may have in flight in one group, together. Those of a node's ranks
// bound what another node must remember of them.
inline constexpr std::uint32_t kMaxPassing = 256;

// In elements.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t count = 0;

  std::uint64_t end() const noexcept { return begin + count; }
  bool contains(std::uint64_t element) const noexcept {
    return element >= begin && element - begin < count;
  }
};
// Which elements of the op a rank's input and output hold, in their order. Where pairs have
// elements of their own, inputs and outputs hold different ones: their numbers lie far apart.
struct Extents {
  Range input;
  Range output;
};

// Extents of rank `shape.rank`.
inline Range whole_op(const Shape& shape) noexcept { return {0, shape.count}; }
inline Range own_share(const Shape& shape) noexcept {
  const Shares shares = shape.shares();
  return {shares.begin(shape.rank), shares.of(shape.rank)};
}
inline Range at_root(const Shape& shape) noexcept {
  return shape.rank == shape.root ? whole_op(shape) : Range{};
}

struct Plan {
  std::uint16_t number = 0;  // shm::OpKind: in entries and announcements
  const char* name = "";     // for people: errors, reports, traces

  Work work = Work::none;
  Parts parts = Parts::whole;
  Ranks contributors = Ranks::nobody;
  Ranks receivers = Ranks::nobody;
  Ownership ownership = Ownership::striped;
  Eager eager = Eager::nothing;
  bool has_root = false;  // of others an entry's root has no meaning, and is not announced
  // Blocks may be lossy, as far as the tensor's role allows: of every leg that the op has.
  bool may_lose = false;
  // And then only those of a delta, by a recipe that the declaration or the op writes out.
  bool loses_if_asked = false;
  // It takes no tensor, and may be lossy all the same: where every rank that takes part writes out a
  // recipe without memory.
  bool loses_without_memory = false;
  // All ranks get the same bytes: with `verify` they are compared.
  bool alike = false;
  bool takes_tensor = false;
  // Ranks may hand over blocks, and get blocks, in place of elements (shm/block_slots.h).
  bool takes_client_blocks = false;

  // How an op of this kind travels that is large, has more than two nodes and loses nothing: another
  // plan of the same number. Null: as every other.
  const Plan* relayed = nullptr;

  Extents (*extents)(const Shape& shape) = nullptr;
  // Null, or a sentence: what an entry must satisfy beyond what all must. May itself be null.
  const char* (*objection)(const Shape& shape) = nullptr;
  // Null: elements [begin, begin + count) of the op are those of the input. Otherwise where in the
  // input of `shape.rank` the first of them lie, and how many follow there: between 1 and
  // `of.count`. The caller asks again for the rest. REQUIRES: of.count > 0, of within the op.
  Range (*input_piece)(const Shape& shape, Range of) = nullptr;

  constexpr bool reduces() const noexcept { return work == Work::reduce; }
  constexpr bool moves() const noexcept { return work == Work::move; }
  constexpr bool passes() const noexcept { return work == Work::pass; }
  // Of what is passed: this rank is the one that sends.
  constexpr bool sends() const noexcept { return passes() && contributors == Ranks::every; }
  constexpr bool has_shares() const noexcept { return parts == Parts::shares; }
  constexpr bool has_pairs() const noexcept { return parts == Parts::pairs; }
  // Values go to where they end, and nothing comes back: who has sent them waits for the
  // acknowledgement alone.
  constexpr bool is_one_way() const noexcept { return moves() || hides_sums(); }
  // Not every node that contributes to a sum gets it.
  constexpr bool hides_sums() const noexcept { return reduces() && receivers != Ranks::every; }
  // Sums end with their owners, who send them to nobody.
  constexpr bool keeps_sums() const noexcept { return hides_sums() && !has_relays(); }
  // Chunks are owned by nodes between the root and the others. Of what moves, the root sends an owner
  // its chunks, and the owner sends them on.
  constexpr bool has_relays() const noexcept { return ownership == Ownership::others; }
  // Contributions to shares go out from that of the node before downwards: first to whom adds them
  // first.
  constexpr bool sends_shares_down() const noexcept { return reduces() && has_shares(); }
  // Values cross the wire once: to where their sum ends, or from whose they are.
  constexpr bool has_one_leg() const noexcept { return moves() || keeps_sums(); }
  // `auto` has a tuner.
  constexpr bool is_tuned() const noexcept { return may_lose && !loses_if_asked; }
  constexpr bool may_lose_of(Role role) const noexcept {
    return may_lose && role_may_be_lossy(role) && (!loses_if_asked || role == Role::delta);
  }
  // All nodes get the same contribution with an announcement, so that it may be one block.
  constexpr bool announces_blocks() const noexcept {
    return eager == Eager::contributions && !keeps_sums();
  }
  // A node may want the legs for an op that fits in its announcement.
  constexpr bool may_decline_eager() const noexcept {
    return eager == Eager::contributions ||
           (eager == Eager::values && (may_lose || loses_without_memory));
  }
};

// Null, or a sentence: what is wrong with an op of this shape. Library and daemon ask the same.
inline const char* objection(const Plan& plan, const Shape& shape) {
  if (shape.names_tensor && !plan.takes_tensor) return "the operation takes no tensor";
  if (shape.count > kMaxElements) return "count is too large";
  if (plan.reduces()) {
    if (const char* problem = tern::objection(shape.reduction, shape.dtype)) return problem;
  }
  if (!std::isfinite(shape.prescale) || !std::isfinite(shape.state_scale)) {
    return "prescale and state_scale must be finite";
  }
  if (shape.prescale != 1.0f && (plan.moves() || plan.passes())) {
    return "prescale is for reductions only";
  }
  if (shape.prescale != 1.0f && !dtype_is_float(shape.dtype) && !dtype_is_complex(shape.dtype)) {
    return "prescale is for floating-point and complex types only";
  }
  if (shape.root >= shape.ranks && !plan.passes()) return "root must be 0..size-1";
  if (shape.counts != nullptr && plan.parts == Parts::whole) return "the operation takes no counts";
  if (plan.has_shares()) {
    if (const char* problem = shape.shares().objection()) return problem;
  }
  if (plan.has_pairs()) {
    if (const char* problem = shape.pairs().objection()) return problem;
  }
  return plan.objection != nullptr ? plan.objection(shape) : nullptr;
}

// Calls use(first, piece) for a rank's elements of the op in order: `piece` lies in the input,
// `first` is how many elements of the range lie before it.
template <typename Use>
void for_each_input_piece(const Plan& plan, const Shape& shape, Range of, Use use) {
  if (plan.input_piece == nullptr) {
    if (of.count != 0) use(std::uint64_t{0}, of);
    return;
  }
  for (std::uint64_t done = 0; done < of.count;) {
    const Range piece = plan.input_piece(shape, {of.begin + done, of.count - done});
    use(done, piece);
    done += piece.count;
  }
}

}  // namespace tern::plan
