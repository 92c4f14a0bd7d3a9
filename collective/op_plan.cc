#include "collective/op_plan.h"

#include <algorithm>
#include <bit>
#include <cstdio>

#include "base/check.h"
#include "collective/eager_pieces.h"
#include "plan/cut.h"
#include "plan/plans.h"
#include "wire/block.h"

namespace tern::collective {
namespace {

std::uint64_t bytes_of(const wire::AnnounceBody& body) noexcept {
  return body.count * dtype_bytes(static_cast<DType>(body.dtype));
}

// An op without elements needs no values, whatever its plan. What one node has for another must fit
// in a slab: of pairs each rank of a node has as much.
bool may_be_eager(const wire::AnnounceBody& body, const plan::Plan& plan,
                  const GroupShape& shape) noexcept {
  if (plan.eager == plan::Eager::nothing || body.counts_crc != 0) return false;
  std::uint64_t bytes = bytes_of(body);
  if (plan.has_pairs()) bytes *= shape.largest_node();
  return bytes != 0 && bytes <= shape.eager_bytes;
}

// Of a tensor's declaration.
bool is_senders_own(std::uint8_t announced) noexcept {
  const auto memory = static_cast<wire::AnnouncedMemory>(announced);
  return memory == wire::AnnouncedMemory::none || memory == wire::AnnouncedMemory::ef;
}

bool may_bring_block(const wire::AnnounceBody& body, const plan::Plan& plan,
                     const GroupShape& shape) noexcept {
  return shape.eager_form >= EagerForm::blocks && plan.announces_blocks() &&
         is_senders_own(body.memory) && may_be_eager(body, plan, shape);
}

// Contributions of an op that is cut already. One scale for a whole tensor is known too late.
bool may_announce_chunks(const Op& op, const shm::Sharding& sharding,
                         const GroupShape& shape) noexcept {
  const wire::AnnounceBody& body = op.announced_first;
  return shape.eager_form >= EagerForm::chunks && op.plan->announces_blocks() &&
         body.counts_crc == 0 && body.count != 0 && is_senders_own(body.memory) &&
         (body.flags & wire::kAnnounceOneLane) == 0 && !may_be_eager(body, *op.plan, shape) &&
         chunks_fit({body.count, sharding.chunk_elements, bytes_of(body) / body.count},
                    shape.eager_bytes, shape.nodes());
}

// A chunk's worth and more: what is less has the hop in between, and little to share out.
const plan::Plan* travelling_plan(const wire::AnnounceBody& body, const plan::Plan& plan,
                                  const GroupShape& shape) noexcept {
  const bool relays = plan.relayed != nullptr && shape.rooted_form >= RootedForm::relayed &&
                      shape.nodes() > 2 && !plan.may_lose_of(static_cast<Role>(body.role)) &&
                      bytes_of(body) >= shape.chunk_bytes && !may_be_eager(body, plan, shape);
  return relays ? plan.relayed : &plan;
}

std::uint64_t bytes_between(const Op& op, std::uint32_t from, std::uint32_t to,
                            const GroupShape& shape) noexcept {
  std::uint64_t elements = 0;
  for_each_eager_piece(op, {from, to}, shape,
                       [&](const EagerPiece& piece) { elements += piece.sent.count; });
  return elements * dtype_bytes(static_cast<DType>(op.announced_first.dtype));
}

int print(std::span<char> out, const wire::AnnounceBody& body) noexcept {
  const auto dtype = dtype_name(static_cast<DType>(body.dtype));
  const auto reduction = reduction_name(static_cast<Reduction>(body.reduction));
  const auto role = role_name(static_cast<Role>(body.role));
  const plan::Plan* const plan = plan::find(body.kind);
  char shares[24] = "";
  if (body.counts_crc != 0) {
    std::snprintf(shares, sizeof(shares), ", counts %08x", body.counts_crc);
  }
  char root[24] = "";
  if (plan != nullptr && plan->has_root) {
    const bool from = plan->contributors == plan::Ranks::root;
    std::snprintf(root, sizeof(root), " %s %u", from ? "from" : "to", body.root);
  }
  if (plan != nullptr && plan->moves()) {
    const bool lossy = (body.flags & wire::kAnnounceLossy) != 0;
    return std::snprintf(
        out.data(), out.size(), "rank %u says %s %llu %.*s%s (%.*s%s)", body.rank, plan->name,
        static_cast<unsigned long long>(body.count), static_cast<int>(dtype.size()), dtype.data(),
        root, lossy ? 5 : static_cast<int>(role.size()), lossy ? "lossy" : role.data(), shares);
  }
  return std::snprintf(
      out.data(), out.size(), "rank %u says %s %llu %.*s %.*s%s (%.*s, memory %u, gen %llu%s)",
      body.rank, plan::name_of(body.kind), static_cast<unsigned long long>(body.count),
      static_cast<int>(dtype.size()), dtype.data(), static_cast<int>(reduction.size()),
      reduction.data(), root, static_cast<int>(role.size()), role.data(), body.memory,
      static_cast<unsigned long long>(body.generation), shares);
}

// What this node sees of an op that takes the two legs until its part is done. Where it may get no
// sum for it, a contribution is done when it is sent.
std::uint32_t steps_of(const Op& op, const GroupShape& shape) noexcept {
  std::uint32_t steps = op.chunks.owned(shape.node);
  for (std::uint32_t node = 0; node < shape.nodes(); ++node) {
    if (node == shape.node) continue;
    steps += op.chunks.sent(node, shape.node);
    if (op.plan->hides_sums()) steps += op.chunks.owned(node);
  }
  return steps;
}

}  // namespace

void describe(Op& op, const wire::AnnounceBody& body, const GroupShape& shape) {
  const plan::Plan* const plan = plan::find(body.kind);
  TERN_CHECK(plan != nullptr);
  op.plan = travelling_plan(body, *plan, shape);
  op.announced_first = body;
  op.root_node = plan->has_root ? shape.node_of_rank(body.root) : 0;
  const bool has_counts = body.counts_crc != 0;
  const bool has_nothing = body.count == 0 && !has_counts;
  op.form = has_nothing || may_be_eager(body, *plan, shape) ? Form::eager : Form::legs;
  // What travels with the announcements has no chunks, unless a node declines.
  if (!has_counts && !op.is_eager()) cut(op, shape, nullptr);
}

void cut(Op& op, const GroupShape& shape, const std::uint64_t* counts) {
  plan::Shape of_op = shape_for(op, 0, shape);
  of_op.counts = counts;
  const shm::Sharding sharding =
      plan::cut(*op.plan, of_op,
                {.tensor = op.key.tensor,
                 .sequence = op.key.sequence,
                 .chunk_bytes = shape.chunk_bytes,
                 .version = shape.cut,
                 .nodes = shape.nodes(),
                 .lanes = shape.lanes,
                 .one_lane = (op.announced_first.flags & wire::kAnnounceOneLane) != 0});
  op.chunks = ChunkMap(*op.plan, sharding, shape, {op.root_node, op.share_begins, op.pairs});
  op.form = may_announce_chunks(op, sharding, shape) ? Form::announced_chunks : Form::legs;
  // Known before the op starts here: an owner that needs no contribution may have heard of all
  // nodes earlier.
  op.steps_left = steps_of(op, shape);
}

plan::Shape shape_for(const Op& op, std::uint32_t rank, const GroupShape& shape) noexcept {
  const wire::AnnounceBody& body = op.announced_first;
  plan::Shape result;
  result.count = body.count;
  result.dtype = static_cast<DType>(body.dtype);
  result.reduction = static_cast<Reduction>(body.reduction);
  result.names_tensor = op.key.tensor != 0;
  result.root = body.root;
  result.rank = rank;
  result.ranks = shape.group_size();
  return result;
}

void decline_eager(Op& op, const GroupShape& shape) noexcept {
  if (!op.is_eager() || op.has_started() || op.failed() || may_bring_block(op, shape)) return;
  cut(op, shape, nullptr);
}

bool may_bring_block(const Op& op, const GroupShape& shape) noexcept {
  return may_bring_block(op.announced_first, *op.plan, shape);
}

bool declines(const Op& op, const GroupShape& shape) noexcept {
  return !op.is_eager() && op.plan->has_one_leg() && op.plan->may_decline_eager() &&
         may_be_eager(op.announced_first, *op.plan, shape);
}

std::uint64_t eager_bytes_of(const Op& op, std::uint32_t from, std::uint32_t to,
                             const GroupShape& shape) noexcept {
  return op.is_eager() && may_be_eager(op.announced_first, *op.plan, shape)
             ? bytes_between(op, from, to, shape)
             : 0;
}

bool eager_bytes_agree(Op& op, std::uint32_t node, const wire::AnnounceBody& body,
                       const GroupShape& shape) noexcept {
  const bool is_block = (body.flags & wire::kAnnounceBlock) != 0;
  if (op.announces_chunks() && op.chunks.owned(shape.node) != 0) {
    return is_block && body.eager_bytes >= wire::kBlockHeaderBytes;
  }
  if (!may_be_eager(body, *op.plan, shape)) return body.eager_bytes == 0 && !is_block;
  const std::uint64_t expected = bytes_between(op, node, shape.node, shape);
  if (may_bring_block(body, *op.plan, shape)) {
    return is_block ? body.eager_bytes >= wire::kBlockHeaderBytes : body.eager_bytes == expected;
  }
  if (is_block) return false;
  const bool by_absence = op.plan->eager == plan::Eager::contributions;
  const bool declined =
      op.plan->may_decline_eager() && ((body.flags & wire::kAnnounceDeclines) != 0 ||
                                       (by_absence && body.eager_bytes == 0 && expected != 0));
  if (declined) decline_eager(op, shape);
  return body.eager_bytes == (declined ? 0 : expected);
}

// Everything that ranks must agree on; `rank`, eager bytes, prescale and lost streams are each
// node's own.
bool same_op(const wire::AnnounceBody& a, const wire::AnnounceBody& b) noexcept {
  const plan::Plan* const plan = plan::find(a.kind);
  const bool pairs = plan != nullptr && plan->has_pairs();  // each has counts of its own
  return a.count == b.count && a.kind == b.kind && a.dtype == b.dtype &&
         a.reduction == b.reduction && a.role == b.role && a.memory == b.memory &&
         a.alpha_bits == b.alpha_bits && a.state_scale_bits == b.state_scale_bits &&
         ((a.flags ^ b.flags) & ~kOwnFlags) == 0 && a.root == b.root &&
         a.generation == b.generation &&
         (pairs ? (a.counts_crc == 0) == (b.counts_crc == 0) : a.counts_crc == b.counts_crc);
}

void write_mismatch(const wire::AnnounceBody& first, const wire::AnnounceBody& other,
                    std::span<char> out) noexcept {
  const int used = print(out, first);
  if (used <= 0 || static_cast<std::size_t>(used) + 3 >= out.size()) return;
  const auto rest = out.subspan(static_cast<std::size_t>(used));
  rest[0] = ',';
  rest[1] = ' ';
  print(rest.subspan(2), other);
}

}  // namespace tern::collective
