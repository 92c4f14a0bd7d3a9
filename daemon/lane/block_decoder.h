#pragma once

// Blocks to values: contributions into sums, results into outputs, eager values into both. A block
// says itself how it is decoded; what a stream's reader remembers belongs to the declaration.

#include <cstdint>
#include <span>

#include "collective/eager_pieces.h"
#include "daemon/lane/eager_inputs.h"
#include "daemon/lane/node_values.h"
#include "daemon/lane/op_blocks.h"

namespace tern::daemon {

class BlockDecoder {
 public:
  // Everything given outlives this.
  BlockDecoder(OpBlocks& blocks, const NodeValues& values, const EagerInputs& eager)
      : blocks_(blocks), values_(values), eager_(eager) {}

  // Of BlockVerb; each requires what is said there. `add` is begin_add too.
  BlockCompletion begin(const BlockRequest& request);
  BlockCompletion add(const BlockRequest& request);
  BlockCompletion deliver(const BlockRequest& request);
  BlockCompletion reduce(const BlockRequest& request);
  // A result that this node has made itself. Null, or why it makes no sense.
  const char* deliver_own(const BlockRequest& request, std::span<const std::byte> bytes);
  // A lossy block of the op is this node's too: its codec state is of this kind of operation.
  void note_use_by(collective::OpId op, const wire::BlockHeader& header);
  // Null, or why the op can have no such block of the chunk. REQUIRES: the header is sound.
  const char* objection_to(const BlockRequest& request, const wire::BlockHeader& header) const;

 private:
  struct Sum {
    std::span<std::byte> bytes;      // of the accumulator
    const std::byte* own = nullptr;  // what it begins with; null: it has begun
    bool empty = false;              // the block is the first that it gets
  };
  void deliver_eager(collective::OpId op, std::uint32_t node);
  BlockCompletion add_eager(collective::OpId op, const collective::EagerPiece& piece,
                            std::uint64_t before);
  // Null, or what is wrong with what came with the node's announcement.
  const char* add_eager_block(collective::OpId op, std::uint32_t node, const Sum& sum);
  struct Block {
    wire::BlockHeader header;
    std::span<const std::byte> bytes;  // header and payload
    std::span<const std::byte> payload;
    const char* problem = nullptr;  // it is none of this chunk
  };

  Block read(const BlockRequest& request, std::span<const std::byte> bytes) const;
  static bool is(const wire::BlockHeader& header, wire::CodecId codec) noexcept {
    return header.codec == static_cast<std::uint8_t>(codec);
  }
  bool is(const Block& block, wire::CodecId codec) const noexcept {
    return block.header.codec == static_cast<std::uint8_t>(codec);
  }
  // Null, or why a block of elements in their own type is none of this op's.
  const char* objection_to_elements(const BlockRequest& request,
                                    const wire::BlockHeader& header) const;
  const char* objection_to_lossy(collective::OpId op) const;

  const char* add_block(const BlockRequest& request, const Block& block, const Sum& sum);
  const char* add_lossy(const BlockRequest& request, const Block& block, const Sum& into);
  void add_elements(const BlockRequest& request, const std::byte* elements, const Sum& sum);
  const char* deliver_block(const BlockRequest& request, const Block& block);
  const char* decode_lossy(const BlockRequest& request, const Block& block, std::span<float> out);
  const char* decode_lossless(const BlockRequest& request, const Block& block,
                              std::span<std::byte> out);
  // What nodes have of a tensor is of one operation, also where a node only reads.
  void note_use(collective::OpId op);
  void note(const BlockRequest& request, const Block& block, std::uint64_t begin_ns);

  OpBlocks& blocks_;
  const NodeValues& values_;
  const EagerInputs& eager_;
};

}  // namespace tern::daemon
