#pragma once

// Pieces of sends as blocks, and back: a piece of a send that writes out a recipe is a block. No
// codec state is kept from one piece to the next.

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/mailbox.h"
#include "daemon/lane/block_path.h"
#include "daemon/lane/lane_resources.h"

namespace tern::daemon {

class PassBlocks final : public BlockPerformer {
 public:
  // `mailbox` has the sends and recvs, and outlives this. `seed` of the group's random draws.
  PassBlocks(const collective::Mailbox& mailbox, std::uint64_t seed)
      : mailbox_(mailbox), seed_(seed) {}
  // Before the first request. `lane` outlives this.
  void attach(LaneResources& lane) noexcept { lane_ = &lane; }

  // Of the pass `op`, with the piece's elements in `sum`, at most a chunk, where their owner may
  // write meanwhile:
  // - encode: writes its block to `block`, which has room for the longest. Without a recipe, and
  //   where a value is not finite, the elements travel as they are.
  // - deliver: the block, of which measure() has nothing to say and whose elements `sum` has room
  //   for. REQUIRES: takes() the type.
  BlockCompletion perform(const BlockRequest& request) override;

  // Whether recipes lose values of such a type.
  static bool takes(DType type) noexcept;

  // How many bytes of elements a block brings as its header says, which is foreign; or what is
  // wrong with that. `room` is what there may be of them.
  struct Measure {
    wire::BlockHeader header;
    std::uint64_t bytes = 0;
    const char* problem = nullptr;
  };
  static Measure measure(std::span<const std::byte> block, DType type, std::uint64_t room) noexcept;

 private:
  BlockCompletion encode(const BlockRequest& request);
  BlockCompletion deliver(const BlockRequest& request);
  const char* decode(const wire::BlockHeader& header, const BlockRequest& request, DType type);
  std::span<const float> floats_of(std::span<const std::byte> elements, DType type) noexcept;

  const collective::Mailbox& mailbox_;
  std::uint64_t seed_;
  LaneResources* lane_ = nullptr;
};

}  // namespace tern::daemon
