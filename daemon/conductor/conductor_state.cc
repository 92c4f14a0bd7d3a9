// Codec state for checkpoints: a client gives room in its arena, the lanes copy their chunks'
// records.

#include <bit>
#include <cstring>

#include "daemon/conductor/conductor.h"
#include "daemon/tensor/state_part.h"

namespace tern::daemon {

void Conductor::on_tensor_state(Client& client, const shm::TensorStatePacket& packet) {
  const std::uint64_t request = packet.header.request;
  const auto refuse = [&](Errc code, const std::string& text) {
    answer(client.id, request, code, text);
  };
  MemberGroup* group = group_by_number(packet.group);
  const MemberRank* rank = group != nullptr ? rank_of_client(*group, client.id) : nullptr;
  if (rank == nullptr || !group->tensors.contains(packet.tensor) ||
      (group->tensors.at(packet.tensor).holders & group->bit_of(*rank)) == 0) {
    return refuse(Errc::unknown_tensor, "this rank has not declared the tensor");
  }
  if (group->ended) return refuse(group->end_code, group->end_text);
  TensorState& state = *group->tensors.at(packet.tensor).state;
  const auto memory = state.codec.empty() ? codec::Memory::none : state.declared.recipe.memory;
  auto move = std::make_unique<StateMove>(StateMove{StatePart(
      memory, state.codec.alpha(), codec_shape(*group, state), state.id & shm::kSpreadMask)});
  const auto action = static_cast<shm::StateAction>(packet.action);
  if (action == shm::StateAction::size) {
    return state_moved(client.id, request, move->part.bytes());
  }
  if (action != shm::StateAction::export_part && action != shm::StateAction::import_parts) {
    return refuse(Errc::invalid_argument, "no such action on a tensor's state");
  }
  const auto arena = client.memory->segment.arena();
  if (packet.offset > arena.size() || packet.bytes > arena.size() - packet.offset) {
    return refuse(Errc::invalid_argument, "the room for the state is not inside the arena");
  }
  move->room = arena.subspan(packet.offset, packet.bytes);
  move->tensor = &state;
  move->client = client.id;
  move->request = request;
  move->imports = action == shm::StateAction::import_parts;
  if (move->imports) {
    const auto checked = move->part.check(move->room, move->same_layout, move->own);
    if (!checked) return refuse(checked.error().code, checked.error().text);
  } else {
    if (move->room.size() < move->part.bytes()) {
      return refuse(Errc::invalid_argument,
                    "the part has " + std::to_string(move->part.bytes()) + " bytes");
    }
    std::memcpy(move->room.data(), &move->part.header(), sizeof(StatePartHeader));
  }
  if (memory == codec::Memory::none) return state_moved(client.id, request, move->part.bytes());
  move->lanes_left = group->lane_count;
  const command::MoveState command{nullptr, move.get()};
  moves_.push_back(std::move(move));
  command_all(*group, command);
}

void Conductor::state_moved(std::uint64_t client, std::uint64_t request, std::uint64_t bytes) {
  auto reply =
      shm::make_packet<shm::TensorStateReplyPacket>(shm::PacketKind::tensor_state_reply, request);
  reply.bytes = bytes;
  answer_packet(client, reply);
}

void Conductor::on(std::uint32_t, const event::StateMoved& event) {
  if (group_of(event.group) == nullptr) return;
  StateMove* const move = event.move;
  if (event.code != Errc::ok && move->verdict == Errc::ok) {
    move->verdict = event.code;
    move->text = event.text.c_str();
  }
  // A lane with an operation in flight refuses before it takes anything.
  if (event.code != Errc::would_block) move->taken = move->imports;
  if (--move->lanes_left != 0) return;
  if (move->taken) {
    move->tensor->half_imported = move->verdict != Errc::ok;
    move->tensor->imported = true;
    // What an op that failed has left in doubt is not there any more.
    if (move->verdict == Errc::ok) move->tensor->doubtful.store(false, std::memory_order_relaxed);
  }
  if (clients_.contains(move->client)) {
    if (move->verdict == Errc::ok) {
      state_moved(move->client, move->request, move->part.bytes());
    } else {
      answer(move->client, move->request, move->verdict, move->text);
    }
  }
  std::erase_if(moves_, [move](const auto& one) { return one.get() == move; });
}

}  // namespace tern::daemon
