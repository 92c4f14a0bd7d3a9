#pragma once

// What the C functions ask of a client, already validated apart from what only its state can tell.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "client_lib/op_table.h"
#include "plan/plan.h"

namespace tern::client_lib {

struct ConnectOptions {
  std::string socket_path;
  std::string job;
  std::uint64_t arena_bytes = 0;
  std::int64_t timeout_ms = 0;  // also for every later request that has no timeout of its own
};

struct JoinOptions {
  std::int32_t rank = 0;
  std::int32_t size = 0;
  bool verify = false;
  std::uint64_t seed = 0;
  std::int64_t timeout_ms = 0;
  std::int64_t op_timeout_ms = 0;
};

struct SplitOptions {
  std::int32_t color = 0;
  std::int32_t key = 0;
  JoinOptions join;  // without rank and size
};

struct DeclareOptions {
  std::string_view name;
  std::string_view recipe;
  std::string_view level;
  std::uint64_t count = 0;
  DType dtype = DType::f32;
  Role role = Role::exact;
  std::int32_t priority = 0;
  bool exempt = false;
  bool client_blocks = false;
};

// input and output are the same for "in place", null for an op without elements.
struct OpRequest {
  const plan::Plan* plan = nullptr;
  std::shared_ptr<GroupState> group;
  std::shared_ptr<TensorState> tensor;  // null: anonymous
  const void* input = nullptr;
  void* output = nullptr;
  std::uint64_t count = 0;
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
  std::uint32_t root = 0;  // of a send or recv: the other rank, or shm::kAnySource
  std::uint32_t tag = 0;
  tern_received* received = nullptr;  // written to when the op is reported to have succeeded
  tern_encoded encoded = TERN_ENCODED_INIT;
  std::int32_t priority = 0;
  float prescale = 1;
  float state_scale = 1;
  std::string_view recipe;
  const std::uint64_t* counts = nullptr;   // see plan::Shape
  std::vector<std::uint64_t> pair_counts;  // what `counts` points to, of an op with pairs

  plan::Shape shape() const noexcept {
    plan::Shape shape;
    shape.count = count;
    shape.dtype = dtype;
    shape.reduction = reduction;
    shape.names_tensor = tensor != nullptr;
    shape.prescale = prescale;
    shape.state_scale = state_scale;
    shape.root = root;
    shape.rank = static_cast<std::uint32_t>(group->rank);
    shape.ranks = static_cast<std::uint32_t>(group->size);
    shape.counts = counts;
    return shape;
  }
  // Of this rank. REQUIRES, for all three: the plan has no objection.
  plan::Extents extents() const { return plan->extents(shape()); }
  std::uint64_t input_bytes() const { return bytes_of(extents().input); }
  std::uint64_t output_bytes() const { return bytes_of(extents().output); }
  // In place of elements.
  bool has_blocks() const noexcept { return tensor != nullptr && tensor->blocks.has_value(); }
  // Of one of the extents.
  std::uint64_t bytes_of(const plan::Range& elements) const noexcept {
    return has_blocks() ? tensor->blocks->slots.bytes() : elements.count * dtype_bytes(dtype);
  }
};

// The text of what is wrong with one operation of a batch, for which all are refused.
std::string in_batch(std::size_t index, std::string_view kind, std::string_view problem);

}  // namespace tern::client_lib
