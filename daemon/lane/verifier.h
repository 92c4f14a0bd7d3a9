#pragma once

// verify=on: the checksums of every rank's result, compared on every node.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/errc.h"
#include "collective/group_shape.h"
#include "collective/op.h"
#include "daemon/lane/node_values.h"
#include "wire/op_frames.h"

namespace tern::daemon {

class Verifier {
 public:
  struct Verdict {
    Errc code = Errc::ok;
    char text[120] = {};  // which ranks differ
  };

  // Without `shape.verify` it holds nothing.
  Verifier(const collective::GroupShape& shape, std::uint32_t group_size, std::uint32_t op_slots);

  // Bytes of the payload with which a node tells its checksums; 0: it may not.
  std::size_t payload_bytes(std::uint32_t node) const noexcept;
  // Some node has results as blocks, so that all nodes compare what blocks say and no outputs.
  void compare_blocks(collective::OpId op) noexcept;
  // The payload of a result's block that this node has made or got. They come in any order. An op
  // that announces its chunks may have some before it is known whether blocks are compared.
  void add_block(collective::OpId op, std::uint32_t number, std::span<const std::byte> payload,
                 bool may_be_compared) noexcept;
  // Of those added so far; 0 where none are compared.
  std::uint32_t blocks_crc(collective::OpId op) const noexcept;
  // An op's results are there: their checksums are to be taken, some in each turn.
  void begin(const collective::Action& action) { under_way_.push_back(action); }
  bool is_busy() const noexcept { return !under_way_.empty(); }
  struct Taken {
    collective::Action action;  // that is done; none: there is more to do
    // This node's, for the others; none of an op that has failed. Valid until the next call.
    std::span<const wire::VerifyBody> checksums;
  };
  // Goes on until it has seen so many bytes, and to the end of a chunk. REQUIRES: is_busy().
  Taken take_some(const OpBlocks& blocks, std::size_t bytes);
  // Of another node. False: they are not of its ranks.
  bool accept(collective::OpId op, std::uint32_t node, std::span<const std::byte> payload);
  // REQUIRES: all nodes' checksums are here.
  Verdict compare(collective::OpId op) const;
  // The op's slot is free.
  void forget(collective::OpId op) noexcept;

 private:
  struct Blocks {
    bool are_compared = false;
    std::uint32_t crc = 0;
  };

  // How far the checksums of the first op that is under way are.
  struct Place {
    std::size_t rank = 0;  // of this node
    std::uint32_t node = 0, index = 0;
    std::uint32_t crc = 0;  // of the rank's chunks before
  };

  // Adds the chunk's bytes to `seen`. False: the rank has no more.
  bool take_chunk(const OpBlocks& blocks, collective::OpId op, std::size_t& seen);
  std::size_t count_in(const OpBlocks& blocks, collective::OpId op, const ChunkPart& part);
  std::uint32_t& checksum(collective::OpId op, std::uint32_t rank) noexcept {
    return checksums_[std::size_t{op} * size_ + rank];
  }

  const collective::GroupShape& shape_;
  std::uint32_t size_;
  std::vector<std::uint32_t> checksums_;  // op slot x rank
  std::vector<Blocks> blocks_;            // by op slot
  std::vector<wire::VerifyBody> own_;     // by local rank, of the first op that is under way
  std::vector<collective::Action> under_way_;
  Place place_;
};

}  // namespace tern::daemon
