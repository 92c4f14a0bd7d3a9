#pragma once

// How a tensor travels in its group, which its codec state and a client's blocks are cut after.

#include <cstdint>

#include "daemon/membership/member_group.h"
#include "daemon/tensor/tensor_state.h"
#include "shm/block_slots.h"

namespace tern::daemon {

// Of operations whose plan announces blocks (plan::Plan::announces_blocks).
//
// Whether one brings all contributions with its announcements, as blocks.
bool travels_whole(const MemberGroup& group, const TensorState& state) noexcept;

// Whether each owner hears its chunk's contributions with the announcements of one that does not
// travel whole. For tensors whose memory is the sender's alone.
bool announces_chunks(const MemberGroup& group, const TensorState& state) noexcept;

// The shape of its codec state on this node.
CodecState::Shape codec_shape(const MemberGroup& group, const TensorState& state);

// The slots in which a client puts its blocks.
shm::BlockSlots block_slots(const MemberGroup& group, const TensorState& state) noexcept;

// What a client's contribution has room for on its way. REQUIRES: the tensor has slots.
std::uint64_t most_block_bytes(const MemberGroup& group, const TensorState& state) noexcept;

}  // namespace tern::daemon
