// Blocks in place of elements, as C sees them.

#include <cstddef>

#include "client_lib/handles.h"
#include "client_lib/sized_struct.h"
#include "shm/sharding.h"

using namespace tern::client_lib;

tern_status tern_tensor_get_block_layout(tern_tensor* tensor, tern_block_layout* layout) {
  if (tensor == nullptr || layout == nullptr) return refuse("tensor or layout is NULL");
  return guarded(*tensor->owner->owner, [&]() -> tern_status {
    if (const tern_status status = check_size(layout, "layout"); status != TERN_OK) return status;
    TensorState& state = *tensor->state;
    if (!state.blocks) {
      set_error_detail("the tensor was declared without client_blocks");
      return TERN_ERR_UNKNOWN_TENSOR;
    }
    const TensorBlocks& blocks = *state.blocks;
    tern_block_layout known = TERN_BLOCK_LAYOUT_INIT;
    known.travels_whole = blocks.travels_whole ? 1 : 0;
    known.count = blocks.slots.count;
    known.chunk_elements = blocks.slots.chunk_elements;
    known.chunks = blocks.slots.slots();
    known.slot_bytes = blocks.slots.slot_bytes();
    known.most_block_bytes = blocks.most_block_bytes;
    known.tensor = state.id;
    known.seed = blocks.seed;
    const auto next = tensor->owner->owner->client->tell_next_use(
        state, layout->struct_size > offsetof(tern_block_layout, is_tuned));
    known.next_use = next.number;
    known.is_tuned = blocks.is_tuned ? 1 : 0;
    known.raw_first = next.by.raw_first;
    known.node = static_cast<std::uint32_t>(state.group->node);
    known.nodes = state.group->node_count;
    known.first_owner = static_cast<std::uint32_t>(tern::shm::spread_of(state.id, 0) % known.nodes);
    known.dtype = static_cast<tern_dtype>(state.dtype);
    blocks.recipes[next.by.recipe].copy(known.recipe, sizeof known.recipe - 1);
    write_struct(known, layout);
    return TERN_OK;
  });
}
