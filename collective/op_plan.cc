#include "collective/op_plan.h"

#include <bit>
#include <cstdio>

#include "base/check.h"
#include "plan/plans.h"
#include "shm/sharding.h"

namespace tern::collective {
namespace {

std::uint64_t bytes_of(const wire::AnnounceBody& body) noexcept {
  return body.count * dtype_bytes(static_cast<DType>(body.dtype));
}

// An op without elements needs no values, whatever its plan.
bool may_be_eager(const wire::AnnounceBody& body, const plan::Plan& plan,
                  const GroupShape& shape) noexcept {
  const std::uint64_t bytes = bytes_of(body);
  return plan.eager != plan::Eager::nothing && bytes != 0 && bytes <= shape.eager_bytes;
}

int print(std::span<char> out, const wire::AnnounceBody& body) noexcept {
  const auto dtype = dtype_name(static_cast<DType>(body.dtype));
  const auto reduction = reduction_name(static_cast<Reduction>(body.reduction));
  const auto role = role_name(static_cast<Role>(body.role));
  const plan::Plan* const plan = plan::find(body.kind);
  if (plan != nullptr && plan->moves()) {
    return std::snprintf(out.data(), out.size(), "rank %u says %s %llu %.*s from %u (%.*s)",
                         body.rank, plan->name, static_cast<unsigned long long>(body.count),
                         static_cast<int>(dtype.size()), dtype.data(), body.root,
                         static_cast<int>(role.size()), role.data());
  }
  return std::snprintf(
      out.data(), out.size(), "rank %u says %s %llu %.*s %.*s (%.*s, memory %u, gen %llu)",
      body.rank, plan::name_of(body.kind), static_cast<unsigned long long>(body.count),
      static_cast<int>(dtype.size()), dtype.data(), static_cast<int>(reduction.size()),
      reduction.data(), static_cast<int>(role.size()), role.data(), body.memory,
      static_cast<unsigned long long>(body.generation));
}

}  // namespace

void describe(Op& op, const wire::AnnounceBody& body, const GroupShape& shape) {
  const plan::Plan* const plan = plan::find(body.kind);
  TERN_CHECK(plan != nullptr);
  op.plan = plan;
  op.announced_first = body;
  op.root_node = plan->has_root ? shape.node_of_rank(body.root) : 0;
  const auto sharding =
      shm::make_sharding({.tensor = op.key.tensor,
                          .sequence = op.key.sequence,
                          .count = body.count,
                          .dtype = static_cast<DType>(body.dtype),
                          .chunk_bytes = shape.chunk_bytes,
                          .nodes = shape.nodes(),
                          .lanes = shape.lanes,
                          .one_lane = (body.flags & wire::kAnnounceOneLane) != 0});
  op.chunks = ChunkMap(sharding, shape.lane, plan->ownership, op.root_node);
  op.eager = body.count == 0 || may_be_eager(body, *plan, shape);
  // Known before the op starts here: an owner that needs no contribution may have heard of all
  // nodes earlier.
  if (!op.eager) op.chunks_left = op.chunks.owned_by_all();
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
  result.ranks = 0;
  for (const auto& ranks : shape.ranks) result.ranks += static_cast<std::uint32_t>(ranks.size());
  return result;
}

void decline_eager(Op& op) noexcept {
  if (!op.eager || op.started || op.failed) return;
  op.eager = false;
  op.chunks_left = op.chunks.owned_by_all();
}

std::uint64_t eager_bytes_of(const Op& op, std::uint32_t node) noexcept {
  if (!op.eager || op.plan->eager == plan::Eager::nothing) return 0;
  if (op.plan->eager == plan::Eager::root_values && op.root_node != node) return 0;
  return bytes_of(op.announced_first);
}

bool eager_bytes_agree(Op& op, std::uint32_t node, const wire::AnnounceBody& body,
                       const GroupShape& shape) noexcept {
  if (!may_be_eager(body, *op.plan, shape)) return body.eager_bytes == 0;
  if (op.plan->eager == plan::Eager::root_values) {
    return body.eager_bytes == (op.root_node == node ? bytes_of(body) : 0);
  }
  if (body.eager_bytes == 0) decline_eager(op);
  return body.eager_bytes == 0 || body.eager_bytes == bytes_of(body);
}

// Everything that ranks must agree on; `rank`, eager bytes, prescale and lost streams are each
// node's own.
bool same_op(const wire::AnnounceBody& a, const wire::AnnounceBody& b) noexcept {
  return a.count == b.count && a.kind == b.kind && a.dtype == b.dtype &&
         a.reduction == b.reduction && a.role == b.role && a.memory == b.memory &&
         a.alpha_bits == b.alpha_bits && a.state_scale_bits == b.state_scale_bits &&
         a.flags == b.flags && a.root == b.root && a.generation == b.generation;
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
