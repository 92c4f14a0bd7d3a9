#pragma once

// What the blocks of ops mean on this processor. Nothing of a request is kept but the codec state
// of its tensor and what it has cost.

#include "daemon/lane/block_decoder.h"
#include "daemon/lane/block_encoder.h"
#include "daemon/lane/block_path.h"

namespace tern::daemon {

class BlockCodec final : public BlockPerformer {
 public:
  // Everything given outlives the codec.
  BlockCodec(const collective::GroupOps& ops, const LaneOps& lane_ops, const EagerInputs& eager,
             const OpBlocks::Identity& identity)
      : blocks_(ops, lane_ops, identity),
        values_(blocks_),
        decoder_(blocks_, values_, eager),
        encoder_(blocks_, values_, decoder_) {}
  BlockCodec(const BlockCodec&) = delete;
  BlockCodec& operator=(const BlockCodec&) = delete;

  BlockCompletion perform(const BlockRequest& request) override;

  OpBlocks& blocks() noexcept { return blocks_; }
  const NodeValues& values() const noexcept { return values_; }

 private:
  OpBlocks blocks_;
  NodeValues values_;
  BlockDecoder decoder_;
  BlockEncoder encoder_;
};

}  // namespace tern::daemon
