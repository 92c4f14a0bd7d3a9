// Codec state to and from checkpoints, through the arena.

#include <algorithm>
#include <cstring>
#include <utility>

#include "client_lib/client.h"

namespace tern::client_lib {
namespace {

// What a question about state brings to the arena, and takes from there.
template <typename Fill, typename Take>
struct StateRoom {
  StateRoom(std::uint64_t of_bytes, Fill to_fill, Take to_take)
      : bytes(of_bytes), fill(std::move(to_fill)), take(std::move(to_take)) {}

  std::uint64_t bytes;
  Fill fill;  // writes the room before the question
  Take take;  // reads the room after the answer, which it is given as well
};

}  // namespace

template <typename Room>
Result<std::uint64_t> Client::move_state(const TensorState& tensor, shm::StateAction action,
                                         const Room& wanted) {
  const std::lock_guard one_at_a_time(state_move_mutex_);
  std::byte* room = nullptr;
  std::uint64_t offset = 0;
  if (wanted.bytes != 0) {
    Result<void*> memory = allocate(wanted.bytes);
    if (!memory) return tl::unexpected(std::move(memory.error()));
    room = static_cast<std::byte*>(*memory);
    offset = static_cast<std::uint64_t>(room - segment_.arena().data());
    wanted.fill(room);
  }
  Result<std::uint64_t> reply = questions_.state(tensor, action, offset, wanted.bytes);
  if (reply && room != nullptr) wanted.take(room, *reply);
  // A daemon that was too slow may still write: then the room is not for anybody else.
  const bool unanswered = !reply && reply.error().code == Errc::timeout;
  if (room != nullptr && !unanswered) (void)free(room);
  if (!reply) return request_failed(std::move(reply.error()));
  return *reply;
}

Result<std::uint64_t> Client::state_bytes(const TensorState& tensor) {
  const auto nothing = [](auto&&...) {};
  return move_state(tensor, shm::StateAction::size, StateRoom(0, nothing, nothing));
}

Result<std::uint64_t> Client::export_state(const TensorState& tensor, std::span<std::byte> part) {
  return move_state(tensor, shm::StateAction::export_part,
                    StateRoom{part.size(), [](std::byte*) {},
                              [part](const std::byte* room, std::uint64_t bytes) {
                                std::memcpy(part.data(), room,
                                            std::min<std::uint64_t>(bytes, part.size()));
                              }});
}

Status Client::import_state(const TensorState& tensor,
                            std::span<const std::span<const std::byte>> parts) {
  std::uint64_t bytes = 0;
  for (const auto& part : parts) bytes += part.size();
  const auto moved = move_state(tensor, shm::StateAction::import_parts,
                                StateRoom{bytes,
                                          [parts](std::byte* room) {
                                            for (const auto& part : parts) {
                                              std::memcpy(room, part.data(), part.size());
                                              room += part.size();
                                            }
                                          },
                                          [](const std::byte*, std::uint64_t) {}});
  if (!moved) return tl::unexpected(moved.error());
  return {};
}

}  // namespace tern::client_lib
