#pragma once

// The way of contributions: granted by a chunk's owner, encoded and sent to it, added there in a
// fixed order. Of small ops they come with the announcements, and are added here all the same.

#include <cstdint>

#include "daemon/lane/block_path.h"
#include "daemon/lane/chunk_table.h"
#include "daemon/lane/eager_inputs.h"
#include "daemon/lane/group_core.h"
#include "daemon/lane/op_tuning.h"

namespace tern::daemon {

class ReduceLeg {
 public:
  // Everything given outlives this.
  ReduceLeg(GroupCore& core, OpTuning& tuning, BlockPath& path, const EagerInputs& announced)
      : core_(core),
        tuning_(tuning),
        path_(path),
        announced_(announced),
        chunks_(core.setup().shape) {}
  void attach() { chunks_.attach(core_.resources().memory, core_.job()); }

  // ---- Actions, and what follows when their blocks are done ----
  void grant(const collective::Action& action);
  void scan(const collective::Action& action);
  void contribute(const collective::Action& action);
  void contributed(const BlockRequest& request, const BlockCompletion& completion);
  void add(const collective::Action& action);  // begin and begin_add too
  void added(const BlockRequest& request, const BlockCompletion& completion);

  // ---- Frames. False: the peer has broken the protocol. ----
  bool accept_grant(std::uint32_t node, const wire::FrameHeader& header);
  bool place_contribution(std::uint32_t node, const wire::FrameHeader& header,
                          net::PayloadPlace& place);
  void accept_contribution(std::uint32_t node, const wire::FrameHeader& header);
  // The frame is given up. A slab whose chunk goes on is the chunk's.
  void abandoned(const filling::Orphan& orphan) noexcept { chunks_.give_slab(orphan.slab); }

  // ---- Sums, for the result leg ----
  ChunkTable& chunks() noexcept { return chunks_; }
  void release(collective::ChunkId chunk);
  void release_all(collective::OpId op);

 private:
  // Whether a frame is being received into the slab: it is given back when that ends.
  auto is_filling();

  GroupCore& core_;
  OpTuning& tuning_;
  BlockPath& path_;
  const EagerInputs& announced_;
  ChunkTable chunks_;
};

}  // namespace tern::daemon
