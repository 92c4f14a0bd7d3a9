// The C functions of groups and tensors.

#include <bit>
#include <limits>

#include "client_lib/handles.h"
#include "client_lib/sized_struct.h"

using namespace tern::client_lib;
using tern::Result;
using tern::Status;

namespace {

constexpr std::int32_t kMaxRanks = 1024;
constexpr std::int64_t kDefaultJoinMs = 60'000;

tern_status join(tern_client& client, const tern_group_id& id, const tern_join_options* passed,
                 tern_group** group) {
  tern_join_options options;
  if (const tern_status status = read_struct(passed, "options", options); status != TERN_OK) {
    return status;
  }
  const std::size_t length = ::strnlen(id.text, sizeof id.text);
  if (length == 0 || length == sizeof id.text) return refuse("the group id is empty or has no end");
  if (options.size < 1 || options.size > kMaxRanks) return refuse("size must be 1..1024");
  if (options.rank < 0 || options.rank >= options.size) return refuse("rank must be 0..size-1");
  if (options.verify > 1) return refuse("verify must be 0 or 1");
  if (!is_timeout(options.timeout_ms) || options.op_timeout_ms < 0) {
    return refuse("timeout_ms must be -1 or more, op_timeout_ms 0 or more");
  }
  JoinOptions given;
  given.rank = options.rank;
  given.size = options.size;
  given.verify = options.verify == 1;
  given.seed = options.seed;
  given.timeout_ms = options.timeout_ms != 0 ? options.timeout_ms : kDefaultJoinMs;
  given.op_timeout_ms = options.op_timeout_ms;
  auto handle = std::make_unique<tern_group>();
  handle->owner = &client;
  Result<std::shared_ptr<GroupState>> joined =
      client.client->join(std::string(id.text, length), given);
  if (!joined) return report_error(joined.error());
  handle->state = std::move(*joined);
  const std::lock_guard lock(client.handles_mutex);
  client.groups.push_back(std::move(handle));
  *group = client.groups.back().get();
  return TERN_OK;
}

tern_status split(tern_group& parent, const tern_split_options& options, SplitOptions given,
                  tern_group** child) {
  if (options.verify > 1) return refuse("verify must be 0 or 1");
  if (!is_timeout(options.timeout_ms) || options.op_timeout_ms < 0) {
    return refuse("timeout_ms must be -1 or more, op_timeout_ms 0 or more");
  }
  given.join.verify = options.verify == 1;
  given.join.seed = options.seed;
  given.join.timeout_ms = options.timeout_ms != 0 ? options.timeout_ms : kDefaultJoinMs;
  given.join.op_timeout_ms = options.op_timeout_ms;
  tern_client& client = *parent.owner;
  auto handle = std::make_unique<tern_group>();
  handle->owner = &client;
  Result<std::shared_ptr<GroupState>> made = client.client->split(*parent.state, given);
  if (!made) return report_error(made.error());
  if (*made == nullptr) return TERN_OK;
  handle->state = std::move(*made);
  const std::lock_guard lock(client.handles_mutex);
  client.groups.push_back(std::move(handle));
  *child = client.groups.back().get();
  return TERN_OK;
}

// Nothing if the text is not 1..max_bytes; NULL is empty.
bool read_text(const char* text, std::size_t max_bytes, std::string_view& out) noexcept {
  if (text == nullptr) return true;
  const std::size_t length = ::strnlen(text, max_bytes + 1);
  out = {text, length};
  return length >= 1 && length <= max_bytes;
}

constexpr const char* kBadLevel =
    "level must have 1..15 bytes: lossless, conservative, balanced, aggressive, loss<=NUMBER or "
    "residual<=NUMBER";

bool read_level(const char* text, std::string_view& level) noexcept {
  return read_text(text, 15, level);
}

std::string level_of(const tern_group& group) {
  const std::lock_guard lock(group.owner->handles_mutex);
  return group.level;
}

tern_status declare(tern_group& group, const tern_tensor_options* passed, tern_tensor** tensor) {
  tern_tensor_options options;
  if (const tern_status status = read_struct(passed, "options", options); status != TERN_OK) {
    return status;
  }
  if (options.reserved != 0) return refuse("options.reserved must be 0");
  DeclareOptions given;
  if (options.name == nullptr || !read_text(options.name, 127, given.name)) {
    return refuse("name must have 1..127 bytes");
  }
  if (!read_text(options.recipe, 63, given.recipe)) {
    set_error_detail("recipe must have 1..63 bytes");
    return TERN_ERR_BAD_RECIPE;
  }
  if (!read_level(options.level, given.level)) return refuse(kBadLevel);
  const std::string of_group = level_of(group);
  if (given.level.empty()) given.level = of_group;
  given.dtype = static_cast<tern::DType>(raw(options.dtype));
  if (raw(options.dtype) > raw(TERN_U64)) return refuse("dtype is not one of tern_dtype");
  if (raw(options.role) > TERN_WEIGHTS) return refuse("role is not one of tern_role");
  given.role = static_cast<tern::Role>(raw(options.role));
  const std::uint64_t max_count =
      std::numeric_limits<std::int64_t>::max() / tern::dtype_bytes(given.dtype);
  if (options.count < 1 || options.count > max_count) return refuse("count is 0 or too large");
  if (options.exempt > 1) return refuse("exempt must be 0 or 1");
  if (options.client_blocks > 1) return refuse("client_blocks must be 0 or 1");
  if (options.reserved1 != 0) return refuse("options.reserved1 must be 0");
  given.count = options.count;
  given.priority = options.priority;
  given.exempt = options.exempt == 1;
  given.client_blocks = options.client_blocks == 1;
  auto handle = std::make_unique<tern_tensor>();
  handle->owner = &group;
  Result<std::shared_ptr<TensorState>> declared = group.owner->client->declare(group.state, given);
  if (!declared) return report_error(declared.error());
  handle->state = std::move(*declared);
  const std::lock_guard lock(group.owner->handles_mutex);
  group.tensors.push_back(std::move(handle));
  *tensor = group.tensors.back().get();
  return TERN_OK;
}

}  // namespace

tern_status tern_group_mint(tern_client* client, tern_group_id* id) {
  if (client == nullptr || id == nullptr) return refuse("client or id is NULL");
  return guarded(*client, [&]() -> tern_status {
    const Result<tern::shm::GroupMintedPacket> minted = client->client->mint();
    if (!minted) return report_error(minted.error());
    static_assert(sizeof id->text == sizeof minted->id);
    std::memcpy(id->text, minted->id, sizeof id->text);
    return TERN_OK;
  });
}

tern_status tern_group_join(tern_client* client, const tern_group_id* id,
                            const tern_join_options* options, tern_group** group) {
  if (client == nullptr || id == nullptr || options == nullptr || group == nullptr) {
    return refuse("client, id, options or group is NULL");
  }
  return guarded(*client, [&] {
    *group = nullptr;
    return join(*client, *id, options, group);
  });
}

tern_status tern_group_split(tern_group* parent, int32_t color, int32_t key,
                             const tern_split_options* options, tern_group** child) {
  if (parent == nullptr || child == nullptr) return refuse("parent or child is NULL");
  return guarded(*parent->owner, [&]() -> tern_status {
    *child = nullptr;
    tern_split_options read = TERN_SPLIT_OPTIONS_INIT;
    if (options != nullptr) {
      const tern_status status = read_struct(options, "options", read);
      if (status != TERN_OK) return status;
    }
    return split(*parent, read, {color, key, {}}, child);
  });
}

tern_status tern_group_set_level(tern_group* group, const char* level) {
  if (group == nullptr) return refuse("group is NULL");
  return guarded(*group->owner, [&]() -> tern_status {
    std::string_view read;
    if (!read_level(level, read)) return refuse(kBadLevel);
    const std::lock_guard lock(group->owner->handles_mutex);
    group->level = read;
    return TERN_OK;
  });
}

tern_status tern_group_leave(tern_group* group) {
  if (group == nullptr) return refuse("group is NULL");
  return guarded(*group->owner, [&]() -> tern_status {
    tern_client& client = *group->owner;
    const Status left = client.client->leave(group->state);
    const std::lock_guard lock(client.handles_mutex);
    (void)take_handle(client.groups, group);
    return left ? TERN_OK : report_error(left.error());
  });
}

tern_status tern_group_get_info(tern_group* group, tern_group_info* info) {
  if (group == nullptr || info == nullptr) return refuse("group or info is NULL");
  return guarded(*group->owner, [&]() -> tern_status {
    if (const tern_status status = check_size(info, "info"); status != TERN_OK) return status;
    const GroupState& state = *group->state;
    tern_group_info known = TERN_GROUP_INFO_INIT;
    known.rank = state.rank;
    known.size = state.size;
    known.node = state.node;
    known.node_count = static_cast<std::int32_t>(state.node_count);
    known.epoch = state.epoch;
    known.last_common_op = state.last_common_op;
    known.number = state.number;
    write_struct(known, info);
    return TERN_OK;
  });
}

tern_status tern_tensor_declare(tern_group* group, const tern_tensor_options* options,
                                tern_tensor** tensor) {
  if (group == nullptr || options == nullptr || tensor == nullptr) {
    return refuse("group, options or tensor is NULL");
  }
  return guarded(*group->owner, [&] {
    *tensor = nullptr;
    return declare(*group, options, tensor);
  });
}

tern_status tern_tensor_release(tern_tensor* tensor) {
  if (tensor == nullptr) return TERN_OK;
  return guarded(*tensor->owner->owner, [&]() -> tern_status {
    tern_group& group = *tensor->owner;
    const Status released = group.owner->client->release(tensor->state);
    const std::lock_guard lock(group.owner->handles_mutex);
    (void)take_handle(group.tensors, tensor);
    return released ? TERN_OK : report_error(released.error());
  });
}

tern_status tern_tensor_get_stats(tern_tensor* tensor, tern_tensor_stats* stats) {
  if (tensor == nullptr || stats == nullptr) return refuse("tensor or stats is NULL");
  return guarded(*tensor->owner->owner, [&]() -> tern_status {
    if (const tern_status status = check_size(stats, "stats"); status != TERN_OK) return status;
    const auto answer = tensor->owner->owner->client->stats(*tensor->state);
    if (!answer) return report_error(answer.error());
    tern_tensor_stats known = TERN_TENSOR_STATS_INIT;
    known.ops = answer->ops;
    known.bytes_raw = answer->bytes_raw;
    known.bytes_sent = answer->bytes_sent;
    known.ratio = answer->bytes_sent == 0 ? 1.0
                                          : static_cast<double>(answer->bytes_raw) /
                                                static_cast<double>(answer->bytes_sent);
    known.residual_ratio = std::bit_cast<double>(answer->residual_ratio_bits);
    known.encode_ns = answer->encode_ns;
    known.queue_ns = answer->queue_ns;
    known.wire_ns = answer->wire_ns;
    known.decode_ns = answer->decode_ns;
    known.wait_ns = answer->wait_ns;
    known.raw_fallbacks = answer->raw_fallbacks;
    known.state_bytes = answer->state_bytes;
    static_assert(sizeof known.recipe == sizeof answer->recipe);
    std::memcpy(known.recipe, answer->recipe, sizeof known.recipe);
    known.recipe[sizeof known.recipe - 1] = '\0';
    write_struct(known, stats);
    return TERN_OK;
  });
}
