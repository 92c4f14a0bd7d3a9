#pragma once

// What block requests mean on this processor. Every request runs to its end here; nothing of it is
// kept but the codec state of its tensor and what it has cost.

#include "daemon/lane/block_decoder.h"
#include "daemon/lane/block_encoder.h"

namespace tern::daemon {

class BlockCodec {
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

  BlockCompletion perform(const BlockRequest& request);

  OpBlocks& blocks() noexcept { return blocks_; }
  const NodeValues& values() const noexcept { return values_; }

 private:
  OpBlocks blocks_;
  NodeValues values_;
  BlockDecoder decoder_;
  BlockEncoder encoder_;
};

}  // namespace tern::daemon
