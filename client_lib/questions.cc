#include "client_lib/questions.h"

#include <algorithm>
#include <cstring>

namespace tern::client_lib {
namespace {

// An orderly end is a courtesy: the daemon notices the hang-up as well.
constexpr std::int64_t kGoodbyeMs = 1000;
// Lanes move codec state beside the operations of all jobs: at least so much, and usually far more.
constexpr std::uint64_t kMovedBytesPerMs = 20'000;

// REQUIRES: text fits with its zero; the C functions have checked it.
template <std::size_t kBytes>
void write_text(char (&field)[kBytes], std::string_view text) noexcept {
  text.copy(field, kBytes - 1);
}

// Of an answer to a join or a split.
template <typename Joined>
bool plausible(const Joined& joined, std::uint32_t lane_count) noexcept {
  return joined.lane_count >= 1 && joined.lane_count <= lane_count && joined.chunk_bytes >= 64 &&
         joined.node_count >= 1 && joined.node >= 0 && joined.node < joined.node_count &&
         joined.max_ops_in_flight >= 1;
}

shm::RegionPacket about(std::uint32_t region, shm::PacketKind kind) noexcept {
  auto question = shm::make_packet<shm::RegionPacket>(kind, 0);
  question.region = region;
  return question;
}

shm::TensorReleasePacket about(const TensorState& tensor, shm::PacketKind kind) noexcept {
  auto question = shm::make_packet<shm::TensorReleasePacket>(kind, 0);
  question.group = tensor.group->number;
  question.tensor = tensor.id;
  return question;
}

Status status_of(Result<shm::DonePacket> done) {
  if (!done) return tl::unexpected(std::move(done.error()));
  return {};
}

}  // namespace

tl::unexpected<Error> Questions::nonsense(const char* text) {
  requests_.close(Errc::protocol_error, text);
  return fail(Errc::protocol_error, text);
}

Result<shm::WelcomePacket> Questions::hello(const ConnectOptions& options, Deadline deadline,
                                            std::vector<Fd>& fds) {
  auto question = shm::make_packet<shm::HelloPacket>(shm::PacketKind::hello, 0);
  question.abi_min = wire::kShmAbi;
  question.abi_max = wire::kShmAbi;
  question.arena_bytes = options.arena_bytes;
  write_text(question.job, options.job);
  return requests_.ask<shm::WelcomePacket>(question, shm::PacketKind::welcome, deadline, &fds);
}

void Questions::goodbye() {
  const auto question = shm::make_packet<shm::PacketHeader>(shm::PacketKind::goodbye, 0);
  const std::int64_t most_ms = timeout_ms_ < 0 ? kGoodbyeMs : std::min(kGoodbyeMs, timeout_ms_);
  (void)requests_.ask<shm::DonePacket>(question, shm::PacketKind::done,
                                       Deadline::after_ms(most_ms));
}

Result<shm::GroupMintedPacket> Questions::mint() {
  const auto question = shm::make_packet<shm::PacketHeader>(shm::PacketKind::group_mint, 0);
  Result<shm::GroupMintedPacket> minted =
      requests_.ask<shm::GroupMintedPacket>(question, shm::PacketKind::group_minted, deadline());
  if (minted && std::memchr(minted->id, 0, sizeof minted->id) == nullptr) {
    return nonsense("ternd minted a group id without an end");
  }
  return minted;
}

Result<shm::GroupJoinedPacket> Questions::join(const std::string& id, const JoinOptions& options,
                                               std::uint64_t completed_ops,
                                               std::uint32_t lane_count) {
  auto question = shm::make_packet<shm::GroupJoinPacket>(shm::PacketKind::group_join, 0);
  write_text(question.id, id);
  question.rank = options.rank;
  question.size = options.size;
  question.verify = options.verify ? 1 : 0;
  question.seed = options.seed;
  question.timeout_ms = options.timeout_ms;
  question.op_timeout_ms = options.op_timeout_ms;
  question.completed_ops = completed_ops;
  Result<shm::GroupJoinedPacket> joined = requests_.ask<shm::GroupJoinedPacket>(
      question, shm::PacketKind::group_joined, join_deadline(options));
  if (joined && !plausible(*joined, lane_count)) {
    return nonsense("ternd joined a group with impossible numbers");
  }
  return joined;
}

// The daemon ends a join at the time asked for and says who was missing; its answer needs time,
// too.
Deadline Questions::join_deadline(const JoinOptions& options) const noexcept {
  const bool forever = options.timeout_ms < 0 || timeout_ms_ < 0;
  std::int64_t wait_ms = -1;
  if (!forever && (__builtin_add_overflow(options.timeout_ms, timeout_ms_, &wait_ms) ||
                   __builtin_add_overflow(wait_ms, shm::kJoinLastWordMs, &wait_ms))) {
    wait_ms = -1;
  }
  return Deadline::after_ms(wait_ms);
}

Result<shm::GroupSplitReplyPacket> Questions::split(const GroupState& group,
                                                    const SplitOptions& options,
                                                    std::uint32_t lane_count) {
  auto question = shm::make_packet<shm::GroupSplitPacket>(shm::PacketKind::group_split, 0);
  question.group = group.number;
  question.color = options.color;
  question.key = options.key;
  question.verify = options.join.verify ? 1 : 0;
  question.seed = options.join.seed;
  question.timeout_ms = options.join.timeout_ms;
  question.op_timeout_ms = options.join.op_timeout_ms;
  Result<shm::GroupSplitReplyPacket> reply = requests_.ask<shm::GroupSplitReplyPacket>(
      question, shm::PacketKind::group_split_reply, join_deadline(options.join));
  if (!reply) return reply;
  const bool has_part = options.color >= 0;
  const bool sound = has_part ? plausible(*reply, lane_count) && reply->group != 0 &&
                                    reply->rank >= 0 && reply->rank < reply->size
                              : reply->group == 0;
  if (!sound) return nonsense("ternd split a group with impossible numbers");
  return reply;
}

Status Questions::leave(const GroupState& group) {
  auto question = shm::make_packet<shm::GroupLeavePacket>(shm::PacketKind::group_leave, 0);
  question.group = group.number;
  return status_of(requests_.ask<shm::DonePacket>(question, shm::PacketKind::done, deadline()));
}

Result<std::shared_ptr<TensorState>> Questions::declare(const std::shared_ptr<GroupState>& group,
                                                        const DeclareOptions& options,
                                                        std::uint32_t daemon_features) {
  const bool takes_choices = (daemon_features & shm::kFeatureTunedBlocks) != 0;
  if (options.client_blocks && (daemon_features & shm::kFeatureBlocks) == 0) {
    return fail(Errc::unsupported,
                "this ternd is of a version that takes no blocks: declare the tensor without "
                "client_blocks, or update ternd");
  }
  auto question = shm::make_packet<shm::TensorDeclarePacket>(shm::PacketKind::tensor_declare, 0);
  question.group = group->number;
  question.count = options.count;
  question.dtype = static_cast<std::uint8_t>(options.dtype);
  question.role = static_cast<std::uint8_t>(options.role);
  question.exempt = options.exempt ? 1 : 0;
  if (options.client_blocks) {
    question.client_blocks = takes_choices ? shm::kBlocksByTuner : shm::kBlocksByRecipe;
  }
  question.priority = options.priority;
  write_text(question.name, options.name);
  write_text(question.recipe, options.recipe);
  write_text(question.level, options.level);
  Result<shm::TensorDeclaredPacket> declared = requests_.ask<shm::TensorDeclaredPacket>(
      question, shm::PacketKind::tensor_declared, deadline());
  if (!declared) return tl::unexpected(std::move(declared.error()));
  if (declared->tensor == 0) return nonsense("ternd declared a tensor with id 0");
  auto tensor = std::make_shared<TensorState>();
  tensor->group = group;
  tensor->id = declared->tensor;
  tensor->count = options.count;
  tensor->dtype = options.dtype;
  tensor->role = options.role;
  tensor->priority = options.priority;
  tensor->one_lane = declared->one_lane != 0;
  tensor->next_sequence = declared->next_sequence;
  if (!options.client_blocks) return tensor;
  Result<TensorBlocks> blocks = this->blocks(*tensor);
  if (!blocks) {
    post_release(*tensor);
    return tl::unexpected(std::move(blocks.error()));
  }
  tensor->blocks = std::move(*blocks);
  return tensor;
}

Result<TensorBlocks> Questions::blocks(const TensorState& tensor) {
  Result<shm::TensorBlocksPacket> reply =
      requests_.ask<shm::TensorBlocksPacket>(about(tensor, shm::PacketKind::tensor_blocks),
                                             shm::PacketKind::tensor_blocks_reply, deadline());
  if (!reply) return tl::unexpected(std::move(reply.error()));
  if (reply->chunk_elements == 0 || !shm::terminated(reply->recipe) || reply->recipe[0] == '\0') {
    return nonsense("ternd said impossible things of a tensor's blocks");
  }
  TensorBlocks blocks{{tensor.count, reply->chunk_elements, dtype_bytes(tensor.dtype)},
                      reply->travels_whole != 0,
                      reply->most_block_bytes,
                      reply->seed,
                      {reply->recipe},
                      reply->is_tuned != 0};
  if (!blocks.is_tuned) return blocks;
  auto recipes = this->recipes(tensor);
  if (!recipes) return tl::unexpected(std::move(recipes.error()));
  blocks.recipes = std::move(*recipes);
  return blocks;
}

Result<std::vector<std::string>> Questions::recipes(const TensorState& tensor) {
  Result<shm::TensorRecipesPacket> reply =
      requests_.ask<shm::TensorRecipesPacket>(about(tensor, shm::PacketKind::tensor_recipes),
                                              shm::PacketKind::tensor_recipes_reply, deadline());
  if (!reply) return tl::unexpected(std::move(reply.error()));
  const auto is_text = [](const auto& text) { return shm::terminated(text) && text[0] != '\0'; };
  const bool sound = reply->count != 0 && reply->count <= shm::kMaxTunedRecipes &&
                     std::all_of(reply->recipes, reply->recipes + reply->count, is_text);
  if (!sound) return nonsense("ternd said impossible things of a tensor's recipes");
  return std::vector<std::string>(reply->recipes, reply->recipes + reply->count);
}

Status Questions::release(const TensorState& tensor) {
  return status_of(requests_.ask<shm::DonePacket>(about(tensor, shm::PacketKind::tensor_release),
                                                  shm::PacketKind::done, deadline()));
}

void Questions::post_release(const TensorState& tensor) noexcept {
  requests_.post(about(tensor, shm::PacketKind::tensor_release));
}

Status Questions::report_device(const shm::DeviceReportPacket& report,
                                std::uint32_t daemon_features) {
  if ((daemon_features & shm::kFeatureDevices) == 0) {
    return fail(Errc::unsupported, "ternd is too old to be told of devices: update it");
  }
  requests_.post(report);
  if (lost()) return fail(Errc::daemon_lost, "ternd closed the connection");
  return {};
}

Result<shm::TensorStatsPacket> Questions::stats(const TensorState& tensor) {
  return requests_.ask<shm::TensorStatsPacket>(about(tensor, shm::PacketKind::tensor_stats),
                                               shm::PacketKind::tensor_stats_reply, deadline());
}

Result<shm::RegionCreatedPacket> Questions::create_region(std::uint64_t bytes,
                                                          std::vector<Fd>& fds) {
  auto question = shm::make_packet<shm::RegionCreatePacket>(shm::PacketKind::region_create, 0);
  question.bytes = bytes;
  Result<shm::RegionCreatedPacket> made = requests_.ask<shm::RegionCreatedPacket>(
      question, shm::PacketKind::region_created, deadline(), &fds);
  if (made && (made->region == 0 || fds.size() != 1)) {
    return nonsense("ternd made a region without a number or a descriptor");
  }
  return made;
}

Status Questions::open_region(std::uint32_t region) {
  return status_of(requests_.ask<shm::DonePacket>(about(region, shm::PacketKind::region_open),
                                                  shm::PacketKind::done, deadline()));
}

Status Questions::free_region(std::uint32_t region) {
  return status_of(requests_.ask<shm::DonePacket>(about(region, shm::PacketKind::region_free),
                                                  shm::PacketKind::done, deadline()));
}

Result<std::uint64_t> Questions::state(const TensorState& tensor, shm::StateAction action,
                                       std::uint64_t offset, std::uint64_t bytes) {
  auto question = shm::make_packet<shm::TensorStatePacket>(shm::PacketKind::tensor_state, 0);
  question.group = tensor.group->number;
  question.tensor = tensor.id;
  question.action = static_cast<std::uint32_t>(action);
  question.offset = offset;
  question.bytes = bytes;
  std::int64_t patience_ms = timeout_ms_;
  if (patience_ms >= 0) patience_ms += static_cast<std::int64_t>(bytes / kMovedBytesPerMs);
  Result<shm::TensorStateReplyPacket> reply = requests_.ask<shm::TensorStateReplyPacket>(
      question, shm::PacketKind::tensor_state_reply, Deadline::after_ms(patience_ms));
  if (!reply) return tl::unexpected(std::move(reply.error()));
  return reply->bytes;
}

}  // namespace tern::client_lib
