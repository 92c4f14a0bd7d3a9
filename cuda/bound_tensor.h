#pragma once

#include <memory>

#include "cuda/decode_pass.h"
#include "cuda/encode_pass.h"
#include "cuda/residual.h"
#include "cuda/state_part.h"
#include "gpu/streams.h"

// A tensor with all that its operations need: slots, residual, and the two ways between these and
// device memory. It has one operation in flight.
namespace tern::cuda {

class BoundTensor {
 public:
  struct Place {
    const Device& device;
    tern_client* client;
    tern_group* group;
    // Residuals come and go there. It waits for no stream of the program.
    const gpu::OwnStream& stream;
  };
  // Returns when the device has done its part. `pin_failed` tells whether that was the cause.
  // Requires: what is in `place` outlives it, and the context is current.
  static Result<std::unique_ptr<BoundTensor>> create(const Place& place, tern_tensor* tensor,
                                                     bool& pin_failed);

  tern_tensor* tensor() const noexcept { return tensor_; }
  tern_group* group() const noexcept { return place_.group; }
  std::uint64_t count() const noexcept { return map_.count(); }
  const TensorSlots& slots() const noexcept { return *slots_; }
  EncodePass& encode_pass() noexcept { return *encode_pass_; }
  DecodePass& decode_pass() noexcept { return *decode_pass_; }
  const gpu::Stopwatch& encode_watch() const noexcept { return *encode_watch_; }
  const gpu::Stopwatch& decode_watch() const noexcept { return *decode_watch_; }

  struct NextUse {
    std::uint64_t step;       // what the operation's blocks say
    std::uint32_t raw_first;  // of the chunks of each other node so many go raw
  };
  // The next operation is encoded as the daemon says. Requires: nothing is in flight.
  Result<NextUse> prepare();

  // With the device's residual in the daemon's part; and the other way round. Both wait for
  // the place's stream. Requires: nothing is in flight.
  Result<StatePart> export_state() const;
  Status read_residual();
  // The last thing before the end: gives the slots back, whose room may be needed for the rest, and
  // the residual to the daemon, which keeps it for the tensor's next declaration.
  Status hand_over();

  HeldBytes held() const noexcept;

  // Guarded by: the mutex of OperationTable.
  bool in_use = false;

 private:
  BoundTensor(const Place& place, tern_tensor* tensor, ChunkMap map)
      : place_(place), tensor_(tensor), map_(std::move(map)) {}

  Status make_passes(const DeviceRecipe& recipe, const tern_block_layout& layout, bool has_state);
  // Enqueues it. Requires: the part stays until that is done.
  Status fill_residual(StatePart& part);

  Place place_;
  tern_tensor* tensor_;
  ChunkMap map_;
  bool owes_ = false;  // the recipe has a residual, be it all of the daemon's
  std::unique_ptr<TensorSlots> slots_;
  std::unique_ptr<Residual> residual_;  // null: there is none
  std::unique_ptr<Owed> owed_;          // null: there is none, or the recipe stays
  std::unique_ptr<EncodePass> encode_pass_;
  std::unique_ptr<DecodePass> decode_pass_;
  std::unique_ptr<gpu::Stopwatch> encode_watch_;
  std::unique_ptr<gpu::Stopwatch> decode_watch_;
};

}  // namespace tern::cuda
