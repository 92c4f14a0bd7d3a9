#pragma once

// What a lane asks of its blocks, and what it is told when that is done. One request is one step of
// an op on one chunk, or one piece of a send; its memory stays as it is until the completion.

#include <cstdint>

#include "codec/recipe.h"
#include "collective/action.h"
#include "daemon/lane/frame_memory.h"
#include "daemon/lane/operand.h"
#include "wire/block.h"

namespace tern::daemon {

enum class BlockVerb : std::uint8_t {
  gather,         // this node's contribution to an eager op, as plain elements
  scan,           // the largest value of what this node sends of a chunk: BlockStats
  encode,         // this node's contribution to a chunk of another node, or to an eager op
  begin,          // sum = this node's own contribution
  add,            // sum += the block of `node`
  begin_add,      // sum = this node's own contribution + the block of `node`
  finish,         // the sum is complete: the chunk's result, which is delivered here too
  finish_parked,  // likewise a sum that was parked in the residual's place
  publish,        // the root's elements of a chunk, which are delivered here too
  deliver,        // the result of `node` goes to the outputs
  reduce,         // all eager values of an op to the outputs
};

struct BlockRequest {
  BlockVerb verb = BlockVerb::gather;
  bool in_place = false;  // deliver: plain elements lie in the first output already
  collective::OpId op = collective::kNoSlot;  // of a piece: the send or recv
  std::uint32_t number = 0;                   // of the chunk in its op; of a piece: its offer
  std::uint32_t node = 0;                     // who made the block, or whom it is for
  const codec::Recipe* recipe = nullptr;      // of what is encoded
  // add, deliver: the block with its header (in_place: the header alone). gather, encode, finish,
  // publish: room for one.
  Operand block;
  Operand sum;               // begin, add, finish: the accumulator; of a piece: its elements
  std::uint64_t offset = 0;  // of a piece: where it begins in what is sent, in bytes

  // What the lane needs for the step after it; not looked at by who carries it out.
  collective::Action action;
  Cookie cookie = 0;                     // of the frame that the block will travel in
  std::uint32_t slab = SlabPool::kNone;  // where `block` is
};

// Where the block is that came out.
enum class BlockForm : std::uint8_t {
  none,      // none came out
  encoded,   // in `block`, header and payload
  elements,  // plain elements, in `block`
  input,     // plain elements, in the input of the rank
  sum,       // plain elements, in `sum`
  parked,    // nowhere yet: finish_parked comes for it
};

struct BlockCompletion {
  BlockForm form = BlockForm::none;
  bool nonfinite = false;         // a lossy recipe met a value that is not finite, and sends it raw
  std::uint32_t bytes = 0;        // of the block, or of its elements
  const char* problem = nullptr;  // the block makes no sense, and why
  std::uint32_t node = 0;         // reduce: whose block that is
  wire::BlockHeader header;       // of the block that was read
  std::uint64_t work_ns = 0;      // what reading it took
};

}  // namespace tern::daemon
