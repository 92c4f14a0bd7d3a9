#include "daemon/conductor/tensor_registry.h"

#include <bit>
#include <cstring>
#include <utility>

#include "daemon/conductor/declaration_check.h"
#include "daemon/membership/tensor_travel.h"
#include "daemon/tensor/tensor_id.h"

namespace tern::daemon {
namespace {

RecipeTerms terms_of(const MemberGroup& group, const TensorState& state, bool has_tuner) {
  return {.dtype = state.dtype,
          .role = state.role,
          .exempt = state.exempt,
          .has_tuner = has_tuner,
          .nodes = static_cast<std::uint32_t>(group.addresses.size()),
          .chunk_elements = shm::most_chunk_elements(group.chunk_bytes, state.dtype)};
}

}  // namespace

// ---- Declarations -------------------------------------------------------------------------------

bool TensorRegistry::declare(Client& client, const shm::TensorDeclarePacket& packet) {
  const std::uint64_t request = packet.header.request;
  // Whatever becomes of this declaration, what was read for it is for no other.
  std::shared_ptr<ReplayReading> before = std::exchange(client.reading, nullptr);
  MemberGroup* const group = partners_.groups.by_number(packet.group);
  MemberRank* const rank = group != nullptr ? group->rank_of_client(client.id) : nullptr;
  if (rank == nullptr) {
    outlets_.answers.done(client.id, request, Errc::unknown_group,
                          "this client is not in that group");
    leave(client, before);
    return true;
  }
  Declaration declaration{client, *group, *rank, packet, packet.name, {}, {}, {}};
  Status done = prepare(declaration);
  if (done) done = read_log(declaration, before);
  if (done && declaration.reading && !declaration.reading->is_done()) {
    client.reading = declaration.reading;
    return false;
  }
  if (done) done = take(declaration);
  if (!done) {
    partners_.refusals.declaration({client, request, short_uid(group->uid)}, done.error().code,
                                   done.error().text);
  }
  leave(client, declaration.reading);
  leave(client, before);
  return true;
}

// There may be much of it, which is not freed here.
void TensorRegistry::leave(const Client& client, std::shared_ptr<ReplayReading>& reading) const {
  if (!reading) return;
  const std::uint32_t account = settings_.sub_users.owner_of(client.credentials.uid);
  outlets_.reading.take_whole(account, std::move(reading));
}

Status TensorRegistry::prepare(Declaration& declaration) const {
  Status sound = check_declaration(declaration.packet);
  if (sound) sound = check_rank(declaration);
  return sound ? describe(declaration) : sound;
}

// Whether this rank may declare the name now.
Status TensorRegistry::check_rank(const Declaration& declaration) const {
  const MemberGroup& group = declaration.group;
  if (group.has_ended()) return fail(group.end_code, group.end_text);
  if (!group.names.of(group.index_of(declaration.rank), declaration.name).holds) return {};
  return fail(Errc::already_exists, "the tensor " + declaration.name + " is declared already");
}

// The text of the recipe that holds: the declaration's, the policy's or the default.
Result<std::string> TensorRegistry::recipe_of(Declaration& declaration) const {
  std::string text = declaration.packet.recipe;
  if (text.empty() && partners_.tuning != nullptr) {
    text = partners_.tuning->policy().advice(declaration.group.job, declaration.name).recipe;
  }
  if (text.empty()) {
    text = role_may_be_lossy(declaration.state->role) ? settings_.tensors.default_gradient_recipe
                                                      : "raw";
  }
  // A log of choices stands in for the tuner that has written it.
  constexpr std::string_view kReplay = "replay:";
  if (!text.starts_with(kReplay)) return text;
  declaration.replay = text.substr(kReplay.size());
  if (declaration.replay.empty()) {
    return fail(Errc::bad_recipe, "replay: give the name of a log");
  }
  return std::string("auto");
}

// Makes what the declaration says, without codec state.
Status TensorRegistry::describe(Declaration& declaration) const {
  const shm::TensorDeclarePacket& packet = declaration.packet;
  const MemberGroup& group = declaration.group;
  const std::uint32_t generation =
      group.names.of(group.index_of(declaration.rank), declaration.name).times;
  auto state = std::make_shared<TensorState>(group.lane_count);
  state->id = tensor_id(declaration.name, generation);
  state->name = declaration.name;
  state->dtype = static_cast<DType>(packet.dtype);
  state->role = static_cast<Role>(packet.role);
  state->count = packet.count;
  state->exempt = packet.exempt != 0;
  state->priority = packet.priority;
  state->generation = generation;
  declaration.state = state;
  const auto text = recipe_of(declaration);
  if (!text) return tl::unexpected(text.error());
  const auto resolved =
      resolve_declared(*text, terms_of(group, *state, partners_.tuning != nullptr));
  if (!resolved) return tl::unexpected(resolved.error());
  state->declared = *resolved;
  state->declared.asked = packet.recipe[0] != '\0' && !resolved->recipe.automatic;
  return packet.client_blocks != 0 ? take_blocks(declaration) : Status{};
}

// The client encodes: it must be able to, and one residual has one home.
Status TensorRegistry::take_blocks(Declaration& declaration) const {
  TensorState& state = *declaration.state;
  const MemberGroup& group = declaration.group;
  const codec::Recipe& recipe = state.declared.recipe;
  if (group.ranks.size() != 1) {
    return fail(Errc::unsupported,
                "client_blocks needs one rank of the group on its node, and here are " +
                    std::to_string(group.ranks.size()) + ": split the group, or send elements");
  }
  if (state.declared.tuned && !declaration.replay.empty()) {
    return fail(Errc::bad_recipe,
                "client_blocks cannot follow a log of choices: replay the tensor with elements");
  }
  if (state.declared.tuned && declaration.packet.client_blocks != shm::kBlocksByTuner) {
    return fail(Errc::bad_recipe,
                "client_blocks with the recipe auto needs a newer libtern: update it, or write a "
                "recipe out");
  }
  if (codec::needs_shift(recipe) || recipe.compressor == codec::Compressor::xordelta) {
    return fail(Errc::bad_recipe, "client_blocks is for recipes with the memory none or ef");
  }
  if (codec::scans_tensor(recipe) || state.declared.one_lane) {
    return fail(Errc::bad_recipe,
                "client_blocks needs a scale for each chunk, or for less: write scale=4096");
  }
  // Its other nodes would add elements in one hop, in another order than an owner's.
  if (state.count * dtype_bytes(state.dtype) <= group.eager_bytes && !travels_whole(group, state)) {
    return fail(
        Errc::unsupported,
        "client_blocks of so small a tensor needs version 2 of the eager form on all nodes of "
        "the group: leave eager_form as it is and update their ternd, or send elements");
  }
  state.slots = block_slots(group, state);
  return {};
}

// A log may be long and its disk slow: the conductor does not wait for it. Of a tensor that another
// rank has declared none is read.
Status TensorRegistry::read_log(Declaration& declaration,
                                const std::shared_ptr<ReplayReading>& before) const {
  const Client& client = declaration.client;
  const MemberGroup& group = declaration.group;
  const TensorState& state = *declaration.state;
  const bool named = state.declared.tuned && !declaration.replay.empty();
  if (!named || group.tensors.find(state.id) != nullptr) return {};
  const auto wanted = partners_.tuning->reading_of(declaration.replay, group, state);
  if (!wanted) return tl::unexpected(wanted.error());
  if (before && before->terms() == (*wanted)->terms()) {
    declaration.reading = before;
    return {};
  }
  const std::uint32_t account = settings_.sub_users.owner_of(client.credentials.uid);
  if (outlets_.reading.is_stuck(account)) {
    return fail(Errc::quota_exceeded,
                "replay: other logs of this user are still being read; declare the tensor later, "
                "or see why the disk of choice_directory is slow");
  }
  declaration.reading = *wanted;
  // A client that goes meanwhile leaves it unread.
  const auto read = [left = std::weak_ptr(*wanted)] {
    if (const std::shared_ptr<ReplayReading> reading = left.lock()) reading->read();
    return false;
  };
  outlets_.reading.take(account, read, ReplayTerms::kMostBytes);
  return {};
}

Status TensorRegistry::take(Declaration& declaration) {
  MemberGroup& group = declaration.group;
  const std::uint64_t id = declaration.state->id;
  const DeclaredTensor* const found = group.tensors.find(id);
  Status settled = found != nullptr ? match(declaration, *found) : add(declaration);
  if (!settled) return settled;
  DeclaredTensor& tensor = group.tensors.at(id);
  group.names.declare(group.index_of(declaration.rank), declaration.name);
  if (found != nullptr && tensor.holders == 0) {
    // Its ranks so far have released it, and lanes may have let go of it.
    tensor.dropped = 0;
    outlets_.lanes.send_to_group(group, command::AddTensor{nullptr, tensor.state.get()});
  }
  tensor.holders |= group.bit_of(declaration.rank);
  auto reply = shm::make_packet<shm::TensorDeclaredPacket>(shm::PacketKind::tensor_declared,
                                                           declaration.packet.header.request);
  reply.tensor = id;
  reply.next_sequence = 0;
  reply.one_lane = tensor.state->declared.one_lane ? 1 : 0;
  outlets_.answers.send(declaration.client.id, reply);
  return {};
}

// Another rank has declared the tensor: both must say the same.
Status TensorRegistry::match(const Declaration& declaration, const DeclaredTensor& tensor) const {
  const TensorState& other = *tensor.state;
  const TensorState& mine = *declaration.state;
  const std::string& name = declaration.name;
  if (other.name != name) {
    return fail(Errc::already_exists, "the name " + name + " cannot be told from " + other.name +
                                          "; choose another name");
  }
  if (other.dtype == mine.dtype && other.count == mine.count && other.role == mine.role &&
      other.exempt == mine.exempt && same_state(other.declared, mine.declared)) {
    return {};
  }
  const auto holder = static_cast<std::size_t>(std::countr_zero(tensor.holders));
  const std::string who =
      tensor.holders == 0
          ? "a rank that has released it said "
          : "rank " + std::to_string(declaration.group.ranks[holder].rank) + " says ";
  return fail(Errc::mismatch, name + ": " + who + declaration_text(other) + ", rank " +
                                  std::to_string(declaration.rank.rank) + " says " +
                                  declaration_text(mine));
}

// The first of this node's ranks to declare it.
Status TensorRegistry::add(Declaration& declaration) {
  const std::uint32_t user = declaration.client.credentials.uid;
  MemberGroup& group = declaration.group;
  if (std::string problem = partners_.quotas.tensor_problem(user); !problem.empty()) {
    return fail(Errc::quota_exceeded, std::move(problem));
  }
  if (!group.names.has(declaration.name)) {
    std::string problem = partners_.quotas.name_problem(user);
    if (!problem.empty()) return fail(Errc::quota_exceeded, std::move(problem));
  }
  DeclaredTensor tensor;
  tensor.state = declaration.state;
  const std::string key =
      KeptStates::key_of(user, {declaration.client.job, group.lineage}, declaration.name);
  forget_last_of(key, declaration.name);
  const std::uint64_t freed = partners_.kept.bytes_of(key, group.account);
  if (Status made = allocate(declaration, freed); !made) return made;
  if (tensor.state->declared.tuned) {
    Status begun = partners_.tuning->begin(group, *tensor.state, declaration.packet.level,
                                           declaration.reading.get());
    if (!begun) return begun;
  }
  if (partners_.kept.adopt(group, key, tensor)) count_reset(group, *tensor.state);
  TensorState* const state = tensor.state.get();
  group.tensors.add(std::move(tensor));
  outlets_.lanes.send_to_group(group, command::AddTensor{nullptr, state});
  return {};
}

Status TensorRegistry::allocate(const Declaration& declaration, std::uint64_t freed) const {
  TensorState& state = *declaration.state;
  if (!state.declared.compresses()) return {};
  const CodecState::Shape shape = codec_shape(declaration.group, state);
  const ReplayReading* const replayed = declaration.reading.get();
  const std::uint64_t bytes = CodecState::bytes_of(state.declared.recipe, shape) +
                              (replayed != nullptr ? replayed->bytes() : 0);
  const std::uint32_t user = declaration.group.uid_of_user;  // pays, whoever declares
  if (auto problem = partners_.quotas.state_problem(user, freed, bytes); !problem.empty()) {
    return fail(Errc::quota_exceeded, std::move(problem));
  }
  if (!state.codec.allocate(state.declared.recipe, shape)) {
    return fail(Errc::out_of_memory, "no memory for the tensor's codec state");
  }
  return {};
}

std::string TensorRegistry::recipe_text(const TensorState& state) const {
  std::string text = codec::canonical_text(state.declared.recipe);
  if (partners_.tuning != nullptr && state.tuning) {
    text += ": " + partners_.tuning->choice_text(state);
  }
  return text;
}

// ---- Statistics ---------------------------------------------------------------------------------

void TensorRegistry::tell_stats(const Client& client, const shm::TensorReleasePacket& packet) {
  MemberGroup* const group = partners_.groups.by_number(packet.group);
  const bool member = group != nullptr && group->rank_of_client(client.id) != nullptr;
  const TensorState* const state = member ? group->tensor(packet.tensor) : nullptr;
  if (state == nullptr) {
    return outlets_.answers.done(client.id, packet.header.request, Errc::unknown_tensor,
                                 "the tensor is not declared");
  }
  const TensorTotals totals = total(*state);
  auto reply = shm::make_packet<shm::TensorStatsPacket>(shm::PacketKind::tensor_stats_reply,
                                                        packet.header.request);
  reply.ops = totals.ops;
  reply.bytes_raw = totals.bytes_raw;
  reply.bytes_sent = totals.bytes_sent;
  const double ratio = totals.residual_ratio();
  std::memcpy(&reply.residual_ratio_bits, &ratio, sizeof(ratio));
  reply.encode_ns = totals.encode_ns;
  reply.queue_ns = totals.queue_ns;
  reply.wire_ns = totals.wire_ns;
  reply.decode_ns = totals.decode_ns;
  reply.wait_ns = totals.wait_ns;
  reply.raw_fallbacks = totals.raw_fallbacks;
  reply.state_bytes = state->state_bytes();
  std::strncpy(reply.recipe, recipe_text(*state).c_str(), sizeof(reply.recipe) - 1);
  outlets_.answers.send(client.id, reply);
}

const TensorState* TensorRegistry::with_blocks(const Client& client,
                                               const shm::TensorReleasePacket& packet) const {
  MemberGroup* const group = partners_.groups.by_number(packet.group);
  const bool member = group != nullptr && group->rank_of_client(client.id) != nullptr;
  const TensorState* const state = member ? group->tensor(packet.tensor) : nullptr;
  if (state != nullptr && state->slots) return state;
  outlets_.answers.done(client.id, packet.header.request, Errc::unknown_tensor,
                        "the tensor is not declared with client_blocks");
  return nullptr;
}

void TensorRegistry::tell_blocks(const Client& client, const shm::TensorReleasePacket& packet) {
  const TensorState* const state = with_blocks(client, packet);
  if (state == nullptr) return;
  const MemberGroup* const group = partners_.groups.by_number(packet.group);
  auto reply = shm::make_packet<shm::TensorBlocksPacket>(shm::PacketKind::tensor_blocks_reply,
                                                         packet.header.request);
  reply.chunk_elements = state->slots->chunk_elements;
  reply.seed = group->seed;
  reply.most_block_bytes = most_block_bytes(*group, *state);
  reply.travels_whole = travels_whole(*group, *state) ? 1 : 0;
  const std::uint64_t bytes = state->count * dtype_bytes(state->dtype);
  const bool worth_it = bytes >= group->lossy_min_bytes && state->declared.compresses();
  // What the tuner chooses begins with raw.
  reply.is_tuned = worth_it && state->tuning != nullptr ? 1 : 0;
  const bool is_raw = !worth_it || reply.is_tuned != 0;
  const std::string text = is_raw ? "raw" : codec::canonical_text(state->declared.recipe);
  text.copy(reply.recipe, sizeof(reply.recipe) - 1);
  outlets_.answers.send(client.id, reply);
}

void TensorRegistry::tell_recipes(const Client& client, const shm::TensorReleasePacket& packet) {
  const TensorState* const state = with_blocks(client, packet);
  if (state == nullptr) return;
  if (state->tuning == nullptr) {
    constexpr const char* kFixed = "the tensor's recipe is not auto";
    return outlets_.answers.done(client.id, packet.header.request, Errc::bad_recipe, kFixed);
  }
  auto reply = shm::make_packet<shm::TensorRecipesPacket>(shm::PacketKind::tensor_recipes_reply,
                                                          packet.header.request);
  for (const codec::Recipe& recipe : state->tuning->recipes()) {
    codec::canonical_text(recipe).copy(reply.recipes[reply.count++], sizeof(reply.recipes[0]) - 1);
  }
  outlets_.answers.send(client.id, reply);
}

}  // namespace tern::daemon
