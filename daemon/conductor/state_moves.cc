#include "daemon/conductor/state_moves.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/membership/tensor_travel.h"
#include "plan/plans.h"
#include "wire/crc32c.h"

namespace tern::daemon {
namespace {

// Of one client. Libraries ask for one after the other, a few threads at a time.
constexpr std::size_t kMaxWaiting = 64;

std::uint32_t placement_of(const MemberGroup& group) {
  std::uint32_t crc = 0;
  for (const std::vector<std::uint32_t>& ranks : group.ranks_of_node) {
    const auto count = static_cast<std::uint32_t>(ranks.size());
    crc = wire::crc32c(std::as_bytes(std::span(&count, 1)), crc);
    crc = wire::crc32c(std::as_bytes(std::span(ranks)), crc);
  }
  return crc;
}

// By which operation the state is used. A tensor that none has used yet takes what the first part
// says that belongs to one, which is foreign: it is compared with all of them later.
OneLegUse use_of(const StateMove& move, const MemberGroup& group) {
  const MemoryUse& memory = move.tensor->memory_use;
  OneLegUse use{memory.kind(), memory.counts_crc(), placement_of(group), memory.root(), group.size};
  if (memory.kind() != 0) return memory.has_one_leg() ? use : OneLegUse{};
  if (!move.imports) return {};
  const StatePartHeader first = StatePart::first_of_one_leg(move.room);
  const plan::Plan* const plan = plan::find(first.kind);
  const bool sound =
      plan != nullptr && plan->may_lose && plan->has_one_leg() && move.part.has_residuals();
  if (!sound) return {};
  use.kind = first.kind;
  use.counts_crc = plan->has_shares() ? first.counts_crc : 0;
  use.root = plan->has_root ? first.root - std::uint32_t{1} : MemoryUse::kNoRoot;
  return use;
}

// Of parts of another layout: whether this group has the root that they are of.
Status check_root(const StateMove& move, const MemberGroup& group) {
  const StatePartHeader& part = move.part.header();
  const plan::Plan* const plan = plan::find(part.kind);
  if (move.same_layout || plan == nullptr || !plan->has_root) return {};
  if (part.root == 0) {
    return fail(Errc::state_mismatch,
                "the parts are of another layout, and do not say which rank is the root: an older "
                "ternd has written them. Start from zero: do not import them");
  }
  if (part.root > group.size) {
    return fail(Errc::state_mismatch, "the state is of an operation with root " +
                                          std::to_string(part.root - 1) + ", and the group has " +
                                          std::to_string(group.size) + " ranks");
  }
  return {};
}

}  // namespace

void StateMoves::begin(const Client& client, const shm::TensorStatePacket& packet) {
  const bool is_first = std::none_of(moves_.begin(), moves_.end(), [&client](const auto& move) {
    return move->client == client.id;
  });
  if (is_first) {
    start(client, packet);
    return;
  }
  auto& waiting = waiting_[client.id];
  if (waiting.size() >= kMaxWaiting) {
    return outlets_.answers.done(client.id, packet.header.request, Errc::quota_exceeded,
                                 "this client waits for " + std::to_string(kMaxWaiting) +
                                     " moves of state already; wait for one of them");
  }
  waiting.push_back(packet);
}

void StateMoves::start_next(std::uint64_t client) {
  const Client* const found = clients_.find(client);
  for (bool started = false; !started;) {
    const auto waiting = waiting_.find(client);
    if (waiting == waiting_.end()) return;
    const shm::TensorStatePacket packet = waiting->second.front();
    waiting->second.pop_front();
    if (waiting->second.empty()) waiting_.erase(waiting);
    started = found != nullptr && !found->is_going() && start(*found, packet);
  }
}

bool StateMoves::start(const Client& client, const shm::TensorStatePacket& packet) {
  const std::uint64_t request = packet.header.request;
  const auto refuse = [&](Errc code, const std::string& text) {
    outlets_.answers.done(client.id, request, code, text);
    return false;
  };
  const auto answer = [&](std::uint64_t bytes) {
    tell(client.id, request, bytes);
    return false;
  };
  MemberGroup* const group = groups_.by_number(packet.group);
  const MemberRank* const rank = group != nullptr ? group->rank_of_client(client.id) : nullptr;
  const DeclaredTensor* const found =
      rank != nullptr ? group->tensors.find(packet.tensor) : nullptr;
  if (found == nullptr || (found->holders & group->bit_of(*rank)) == 0) {
    return refuse(Errc::unknown_tensor, "this rank has not declared the tensor");
  }
  TensorState& state = *found->state;
  // A client that has half of the residual hands it over at its end, whatever ended before.
  if (group->has_ended() && !state.slots) return refuse(group->end_code, group->end_text);
  const auto memory = state.codec.empty() ? codec::Memory::none : state.declared.recipe.memory;
  const bool averages = state.averages.load(std::memory_order_relaxed);
  const float alpha = averages && memory == codec::Memory::ef ? static_cast<float>(group->size)
                                                              : state.codec.alpha();
  auto move = std::make_unique<StateMove>(
      StateMove{StatePart(memory, alpha, codec_shape(*group, state), state.id & shm::kSpreadMask)});
  move->tensor = &state;
  const bool asks_size = static_cast<shm::StateAction>(packet.action) == shm::StateAction::size;
  if (asks_size) {
    move->part.belong_to(use_of(*move, *group));
    return answer(move->part.bytes());
  }
  if (const Status prepared = prepare(*move, client, *group, packet); !prepared) {
    return refuse(prepared.error().code, prepared.error().text);
  }
  if (memory == codec::Memory::none) return answer(move->part.bytes());
  move->lanes_left = group->lane_count;
  const command::MoveState command{nullptr, move.get()};
  moves_.push_back(std::move(move));
  outlets_.lanes.send_to_group(*group, command);
  return true;
}

Status StateMoves::prepare(StateMove& move, const Client& client, const MemberGroup& group,
                           const shm::TensorStatePacket& packet) const {
  const auto action = static_cast<shm::StateAction>(packet.action);
  if (action != shm::StateAction::export_part && action != shm::StateAction::import_parts) {
    return fail(Errc::invalid_argument, "no such action on a tensor's state");
  }
  const auto arena = client.memory->segment.arena();
  if (packet.offset > arena.size() || packet.bytes > arena.size() - packet.offset) {
    return fail(Errc::invalid_argument, "the room for the state is not inside the arena");
  }
  move.room = arena.subspan(packet.offset, packet.bytes);
  move.client = client.id;
  move.request = packet.header.request;
  move.imports = action == shm::StateAction::import_parts;
  move.part.belong_to(use_of(move, group));
  if (move.imports) {
    if (Status checked = move.part.check(move.room, move.same_layout, move.own); !checked) {
      return checked;
    }
    move.of_averages = move.part.has_residuals() && StatePart::are_of_averages(move.room);
    Result<std::vector<std::uint64_t>> begins = move.part.read_counts(move.room);
    if (!begins) return tl::unexpected(begins.error());
    move.share_begins = std::move(*begins);
    return check_root(move, group);
  }
  if (move.room.size() < move.part.bytes()) {
    return fail(Errc::invalid_argument,
                "the part has " + std::to_string(move.part.bytes()) + " bytes");
  }
  std::memcpy(move.room.data(), &move.part.header(), sizeof(StatePartHeader));
  return {};
}

void StateMoves::tell(std::uint64_t client, std::uint64_t request, std::uint64_t bytes) {
  auto reply =
      shm::make_packet<shm::TensorStateReplyPacket>(shm::PacketKind::tensor_state_reply, request);
  reply.bytes = bytes;
  outlets_.answers.send(client, reply);
}

void StateMoves::on_moved(const event::StateMoved& event) {
  const MemberGroup* const group = groups_.of_lane(event.group);
  if (group == nullptr) return;
  StateMove* const move = event.move;
  if (event.code != Errc::ok && move->verdict == Errc::ok) {
    move->verdict = event.code;
    move->text = event.text.c_str();
  }
  if (event.begun) move->taken = move->imports;
  if (--move->lanes_left != 0) return;
  finish(*move, *group);
  const std::uint64_t client = move->client;
  std::erase_if(moves_, [move](const auto& one) { return one.get() == move; });
  start_next(client);
}

void StateMoves::finish(const StateMove& move, const MemberGroup& group) {
  if (move.taken) {
    TensorState& tensor = *move.tensor;
    tensor.half_imported = move.verdict != Errc::ok;
    tensor.imported = true;
    if (move.of_averages) tensor.averages.store(true, std::memory_order_relaxed);
    const StatePartHeader& part = move.part.header();
    if (part.kind != 0) {
      tensor.memory_use.take({part.kind, true, part.counts_crc, part.root - std::uint32_t{1}});
    }
    if (move.verdict == Errc::ok) {
      tensor.residual_with_client.store(false, std::memory_order_relaxed);
      // What an op that failed has left in doubt is not there any more; but what the end of an epoch
      // has, its client does not know.
      if (!group.has_ended()) tensor.doubtful.store(false, std::memory_order_relaxed);
    }
  }
  if (clients_.find(move.client) == nullptr) return;
  if (move.verdict == Errc::ok) {
    tell(move.client, move.request, move.part.bytes());
  } else {
    outlets_.answers.done(move.client, move.request, move.verdict, move.text);
  }
}

}  // namespace tern::daemon
