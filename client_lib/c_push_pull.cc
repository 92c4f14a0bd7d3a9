// The C functions of a parameter server on the ranks: a reduce_scatter and an all_gather over the
// same shards, each on a tensor of its own, so that each has a residual of its own.

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>

#include "client_lib/handles.h"
#include "client_lib/sized_struct.h"
#include "plan/shares.h"

using namespace tern::client_lib;

namespace {

constexpr std::size_t kMaxNameBytes = 122;  // and ".push" make a tensor's name

tern_status check(const tern_group& group, const tern_push_pull_options& options) {
  if (options.reserved != 0) return refuse("options.reserved must be 0");
  if (options.name == nullptr || options.name[0] == '\0' ||
      ::strnlen(options.name, kMaxNameBytes + 1) > kMaxNameBytes) {
    return refuse("name must have 1..122 bytes");
  }
  if (options.count < 1 || options.count > tern::plan::kMaxElements) {
    return refuse("count must be 1..2^40");
  }
  if (options.server < TERN_EVERY_RANK || options.server >= group.state->size) {
    return refuse("server must be TERN_EVERY_RANK or a rank of the group");
  }
  if (raw(options.reduction) > raw(TERN_AVERAGE)) {
    return refuse("reduction must be TERN_SUM or TERN_AVERAGE");
  }
  return TERN_OK;
}

void cut_shards(const tern_push_pull_options& options, tern_push_pull& made) {
  const auto ranks = static_cast<std::uint64_t>(made.owner->state->size);
  made.counts.assign(ranks, 0);
  if (options.server != TERN_EVERY_RANK) {
    made.counts[static_cast<std::size_t>(options.server)] = options.count;
  } else {
    // The remainder goes to the first ranks, an element each.
    for (std::uint64_t rank = 0; rank < ranks; ++rank) {
      made.counts[rank] = options.count / ranks + (rank < options.count % ranks ? 1 : 0);
    }
  }
  made.equal = std::all_of(made.counts.begin(), made.counts.end(),
                           [&](std::uint64_t count) { return count == made.counts[0]; });
}

struct Declared {
  const char* suffix;
  tern_role role;
  const char* recipe;
};

tern_status declare_one(tern_group* group, const tern_push_pull_options& options,
                        const Declared& declared, tern_tensor** tensor) {
  const std::string name = std::string(options.name) + declared.suffix;
  tern_tensor_options one = TERN_TENSOR_OPTIONS_INIT;
  one.name = name.c_str();
  one.count = options.count;
  one.dtype = options.dtype;
  one.role = declared.role;
  one.recipe = declared.recipe;
  one.priority = options.priority;
  return tern_tensor_declare(group, &one, tensor);
}

// The first failure is what the caller hears.
tern_status declare_both(const tern_push_pull_options& options, tern_push_pull& made) {
  tern_status status =
      declare_one(made.owner, options, {".push", TERN_GRADIENT, options.push_recipe}, &made.push);
  if (status != TERN_OK) return status;
  status = declare_one(made.owner, options, {".pull", TERN_DELTA, options.pull_recipe}, &made.pull);
  if (status == TERN_OK) return TERN_OK;
  const std::string detail = tern_error_detail();
  (void)tern_tensor_release(made.push);
  set_error_detail(detail);
  return status;
}

tern_status declare(tern_group& group, const tern_push_pull_options* passed,
                    tern_push_pull** push_pull) {
  tern_push_pull_options options;
  if (const tern_status sized = read_struct(passed, "options", options); sized != TERN_OK) {
    return sized;
  }
  if (const tern_status status = check(group, options); status != TERN_OK) return status;
  auto made = std::make_unique<tern_push_pull>();
  made->owner = &group;
  made->count = options.count;
  made->reduction = options.reduction;
  cut_shards(options, *made);
  if (const tern_status status = declare_both(options, *made); status != TERN_OK) return status;
  const std::lock_guard lock(group.owner->handles_mutex);
  group.push_pulls.push_back(std::move(made));
  *push_pull = group.push_pulls.back().get();
  return TERN_OK;
}

tern_op op_on(const tern_push_pull& push_pull, tern_tensor* tensor) {
  tern_op op = TERN_OP_INIT;
  op.tensor = tensor;
  op.counts = push_pull.equal ? nullptr : push_pull.counts.data();
  return op;
}

}  // namespace

tern_status tern_push_pull_declare(tern_group* group, const tern_push_pull_options* options,
                                   tern_push_pull** push_pull) {
  if (group == nullptr || options == nullptr || push_pull == nullptr) {
    return refuse("group, options or push_pull is NULL");
  }
  return guarded(*group->owner, [&] {
    *push_pull = nullptr;
    return declare(*group, options, push_pull);
  });
}

tern_status tern_push_pull_release(tern_push_pull* push_pull) {
  if (push_pull == nullptr) return TERN_OK;
  return guarded(*push_pull->owner->owner, [&]() -> tern_status {
    tern_group& group = *push_pull->owner;
    const tern_status pushed = tern_tensor_release(push_pull->push);
    const std::string detail = tern_error_detail();
    const tern_status pulled = tern_tensor_release(push_pull->pull);
    if (pushed != TERN_OK) set_error_detail(detail);
    const std::lock_guard lock(group.owner->handles_mutex);
    (void)take_handle(group.push_pulls, push_pull);
    return pushed != TERN_OK ? pushed : pulled;
  });
}

tern_status tern_push_pull_get_shard(tern_push_pull* push_pull, int32_t rank, uint64_t* begin,
                                     uint64_t* count) {
  if (push_pull == nullptr || begin == nullptr || count == nullptr) {
    return refuse("push_pull, begin or count is NULL");
  }
  return guarded(*push_pull->owner->owner, [&]() -> tern_status {
    const std::int32_t ranks = push_pull->owner->state->size;
    if (rank < 0 || rank >= ranks) return refuse("rank must be 0..size-1");
    const tern::plan::Shares shares{push_pull->count, static_cast<std::uint32_t>(ranks),
                                    push_pull->counts.data()};
    *begin = shares.begin(static_cast<std::uint32_t>(rank));
    *count = shares.of(static_cast<std::uint32_t>(rank));
    return TERN_OK;
  });
}

tern_status tern_push_pull_get_tensors(tern_push_pull* push_pull, tern_tensor** push,
                                       tern_tensor** pull) {
  if (push_pull == nullptr || push == nullptr || pull == nullptr) {
    return refuse("push_pull, push or pull is NULL");
  }
  return guarded(*push_pull->owner->owner, [&]() -> tern_status {
    *push = push_pull->push;
    *pull = push_pull->pull;
    return TERN_OK;
  });
}

tern_status tern_push(tern_push_pull* push_pull, const void* gradient, void* shard,
                      tern_ticket* ticket) {
  if (push_pull == nullptr) return refuse("push_pull is NULL");
  tern_op op = op_on(*push_pull, push_pull->push);
  op.input = gradient;
  op.output = shard;
  op.reduction = push_pull->reduction;
  return tern_reduce_scatter(push_pull->owner, &op, ticket);
}

tern_status tern_pull(tern_push_pull* push_pull, const void* difference, void* all,
                      tern_ticket* ticket) {
  if (push_pull == nullptr) return refuse("push_pull is NULL");
  tern_op op = op_on(*push_pull, push_pull->pull);
  op.input = difference;
  op.output = all;
  return tern_all_gather(push_pull->owner, &op, ticket);
}
