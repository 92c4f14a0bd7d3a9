#pragma once

// Chunks to blocks: this node's contributions, and the results of chunks that it owns, which it
// delivers to its own ranks too.

#include <cstdint>
#include <span>

#include "codec/codec.h"
#include "codec/pay_back.h"
#include "daemon/lane/block_decoder.h"
#include "daemon/lane/node_values.h"
#include "daemon/lane/op_blocks.h"

namespace tern::daemon {

class BlockEncoder {
 public:
  // Everything given outlives this. The decoder reads results back, as every other node will.
  BlockEncoder(OpBlocks& blocks, const NodeValues& values, BlockDecoder& decoder)
      : blocks_(blocks), values_(values), decoder_(decoder) {}

  // Of BlockVerb; each requires what is said there.
  BlockCompletion gather(const BlockRequest& request);
  BlockCompletion scan(const BlockRequest& request);
  BlockCompletion encode(const BlockRequest& request);
  BlockCompletion finish(const BlockRequest& request);
  BlockCompletion finish_parked(const BlockRequest& request);
  BlockCompletion publish(const BlockRequest& request);

 private:
  struct Encoded {
    std::uint32_t bytes = 0;  // 0: not encoded
    bool nonfinite = false;
  };

  BlockCompletion take_block(const BlockRequest& request);
  BlockCompletion publish_lossy(const BlockRequest& request);
  BlockCompletion publish_with_residual(const BlockRequest& request);
  BlockCompletion publish_exact(const BlockRequest& request, bool nonfinite);
  BlockCompletion encode_exact(const BlockRequest& request, bool nonfinite);
  BlockCompletion finish_exact(const BlockRequest& request, Reduction how, bool nonfinite);
  BlockCompletion finish_lossy(const BlockRequest& request, std::span<const float> sum,
                               float state_scale);

  // ---- Codecs. What they write goes to request.block. ----
  struct LossyInput {
    wire::Leg leg;
    std::span<const float> values;
    float state_scale;
  };
  void use_state(const BlockRequest& request, wire::Leg leg, codec::EncodeRequest& encode);
  // A block of a stream has been made.
  void count_sent(const BlockRequest& request);
  Encoded encode_lossy(const BlockRequest& request, const LossyInput& input);
  std::uint32_t encode_lossless(const BlockRequest& request, std::span<const std::byte> input);

  // ---- One scale for a whole tensor: nothing can be encoded before its largest value is known ---
  void scan_part(collective::OpId op, const ChunkPart& part);
  bool park(const BlockRequest& request, std::span<const float> sum);

  // ---- Residuals that a lossy recipe left to an exact one ----
  bool has_pending_residual(const BlockRequest& request) const;
  bool pay_back(const BlockRequest& request, codec::Owed owed, std::span<float> values);

  OpBlocks& blocks_;
  const NodeValues& values_;
  BlockDecoder& decoder_;
};

}  // namespace tern::daemon
