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
  // Takes the checksums of this node's outputs, for the others. Valid until the next call.
  std::span<const wire::VerifyBody> take(collective::OpId op, const OpBlocks& blocks);
  // The same where all nodes compare the blocks of results, whose checksum is given.
  std::span<const wire::VerifyBody> take(collective::OpId op, std::uint32_t blocks_crc);
  // Of another node. False: they are not of its ranks.
  bool accept(collective::OpId op, std::uint32_t node, std::span<const std::byte> payload);
  // REQUIRES: all nodes' checksums are here.
  Verdict compare(collective::OpId op) const;

 private:
  std::uint32_t& checksum(collective::OpId op, std::uint32_t rank) noexcept {
    return checksums_[std::size_t{op} * size_ + rank];
  }

  const collective::GroupShape& shape_;
  std::uint32_t size_;
  std::vector<std::uint32_t> checksums_;  // op slot x rank
  std::vector<wire::VerifyBody> own_;     // by local rank
};

}  // namespace tern::daemon
