#include "daemon/membership/tensor_travel.h"

#include <algorithm>

#include "daemon/lane/eager_inputs.h"

namespace tern::daemon {

bool travels_whole(const MemberGroup& group, const TensorState& state) noexcept {
  return group.eager_form >= collective::EagerForm::blocks &&
         state.count * dtype_bytes(state.dtype) <= group.eager_bytes;
}

bool announces_chunks(const MemberGroup& group, const TensorState& state) noexcept {
  return group.eager_form >= collective::EagerForm::chunks && !state.declared.one_lane &&
         !travels_whole(group, state) &&
         collective::chunks_fit({state.count, group.chunk_elements(state.count, state.dtype),
                                 dtype_bytes(state.dtype)},
                                group.eager_bytes,
                                static_cast<std::uint32_t>(group.addresses.size()));
}

CodecState::Shape codec_shape(const MemberGroup& group, const TensorState& state) {
  CodecState::Shape shape;
  shape.count = state.count;
  shape.chunk_elements = group.chunk_elements(state.count, state.dtype);
  shape.nodes = static_cast<std::uint32_t>(group.addresses.size());
  shape.self = group.node;
  shape.dtype = state.dtype;
  if (state.declared.announced_memory != wire::AnnouncedMemory::ef) return shape;
  shape.eager = travels_whole(group, state);
  shape.announced = shape.eager || announces_chunks(group, state);
  return shape;
}

shm::BlockSlots block_slots(const MemberGroup& group, const TensorState& state) noexcept {
  const std::uint64_t chunk =
      travels_whole(group, state) ? state.count : group.chunk_elements(state.count, state.dtype);
  return {state.count, chunk, dtype_bytes(state.dtype)};
}

std::uint64_t most_block_bytes(const MemberGroup& group, const TensorState& state) noexcept {
  const std::uint64_t frame = travels_whole(group, state) || announces_chunks(group, state)
                                  ? EagerInputs::most_bytes(group.eager_form, group.eager_bytes)
                                  : group.chunk_bytes + wire::kBlockHeaderBytes;
  return std::min(frame, state.slots->slot_bytes());
}

}  // namespace tern::daemon
