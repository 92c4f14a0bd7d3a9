#pragma once

#include <cstdint>

#include "collective/slots.h"

namespace tern::collective {

// What the lane has free for actions that have not been issued. An action that needs more than
// there is does not come out of GroupOps::next().
struct Room {
  std::uint32_t accumulators = 0;   // for chunks this node owns
  std::uint32_t receive_slabs = 0;  // for contributions of other nodes
  std::uint32_t contributions = 0;  // that may still be sent before one is acknowledged
  std::uint32_t results = 0;        // likewise, results
};

enum class ActionKind : std::uint8_t {
  none,
  announce,    // send the op's announcement to every other node
  grant,       // chunks [index, index + count) of this node: reserve room, tell every other node;
               // where contributions came with the announcements, room for the sums alone
  scan,        // look through chunk `index` of `node` for the largest value this node sends of it;
               // only of ops with one scale for all, which contribute or publish nothing before
  contribute,  // encode chunk `index` of `node`, send it there
  begin,       // accumulator of `chunk` = this node's own contribution; there is no other node
  begin_add,   // accumulator of `chunk` = this node's own contribution + that of `node`, as in add
  add,         // accumulator of `chunk` += contribution of `node`; its slab is free
  finish,      // the sum of `chunk` is complete: encode, send to all, deliver
  finish_parked,   // likewise chunk `index`, whose sum was parked until all sums were known
  publish,         // a plan that moves: send chunk `index` of this node's input to all, deliver
  send_on,         // likewise chunk `index` of this node, which the root has sent it: to the others
  reduce_eager,    // all values came with the announcements: reduce or move them, deliver
  verify,          // compute the results' checksums, send them to all
  fail_remote,     // send the op's failure to every other node
  tell_submitted,  // send every other node which ranks of this one have submitted the op
  complete,        // tell every local rank that submitted; then release()
};

struct Action {
  ActionKind kind = ActionKind::none;
  OpId op = kNoSlot;
  std::uint32_t node = 0;
  std::uint32_t index = 0;  // position among the owner's chunks
  std::uint32_t count = 0;
  ChunkId chunk = 0;
};

}  // namespace tern::collective
