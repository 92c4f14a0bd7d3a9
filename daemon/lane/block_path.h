#pragma once

// The way of blocks: requests in, completions out. Who carries them out is an executor: the
// processor does it at once, others may come back later and in any order.

#include <cstdint>
#include <vector>

#include "daemon/lane/block_request.h"

namespace tern::daemon {

class BlockPath;

// What requests mean on this processor: each runs to its end within the call.
class BlockPerformer {
 public:
  virtual BlockCompletion perform(const BlockRequest& request) = 0;

 protected:
  ~BlockPerformer() = default;
};

// Thread: the lane's.
class BlockExecutor {
 public:
  virtual ~BlockExecutor() = default;
  // Carries out path.request(slot), now or later, and calls path.complete() once.
  virtual void start(BlockPath& path, std::uint32_t slot) = 0;
  // Completes what is due. Returns how much there is still to wait for or has been completed, so
  // that the lane does not sleep over it.
  virtual int poll() = 0;
  // Completes all that it has of the path.
  virtual void drain(BlockPath& path) = 0;
};

// On this processor, within start().
class HostExecutor final : public BlockExecutor {
 public:
  void start(BlockPath& path, std::uint32_t slot) override;
  int poll() override { return 0; }
  void drain(BlockPath&) override {}
};

// Is told of every completion; may submit again from there.
class BlockSink {
 public:
  virtual void on_block(const BlockRequest& request, const BlockCompletion& completion) = 0;

 protected:
  ~BlockSink() = default;
};

class BlockPath {
 public:
  // Everything given outlives the path. REQUIRES: slots > 0, the most that are in flight at once.
  BlockPath(BlockPerformer& codec, BlockSink& sink, std::uint32_t slots);

  void use(BlockExecutor& executor) noexcept { executor_ = &executor; }
  // When all slots are taken, waits for the executor.
  void submit(const BlockRequest& request);
  std::uint32_t in_flight() const noexcept { return in_flight_; }

  // ---- For executors ----
  const BlockRequest& request(std::uint32_t slot) const noexcept { return requests_[slot]; }
  // On this processor.
  BlockCompletion perform(std::uint32_t slot);
  void complete(std::uint32_t slot, const BlockCompletion& completion);

 private:
  BlockPerformer& codec_;
  BlockSink& sink_;
  BlockExecutor* executor_ = nullptr;
  std::vector<BlockRequest> requests_;
  std::vector<std::uint32_t> free_;
  std::uint32_t in_flight_ = 0;
};

}  // namespace tern::daemon
