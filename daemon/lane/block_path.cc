#include "daemon/lane/block_path.h"

namespace tern::daemon {

void HostExecutor::start(BlockPath& path, std::uint32_t slot) {
  path.complete(slot, path.perform(slot));
}

BlockPath::BlockPath(BlockPerformer& codec, BlockSink& sink, std::uint32_t slots)
    : codec_(codec), sink_(sink), requests_(slots), free_(slots) {
  for (std::uint32_t i = 0; i < slots; ++i) free_[i] = slots - 1 - i;
}

void BlockPath::submit(const BlockRequest& request) {
  // What is drained may lead to further requests, which take the places again.
  while (free_.empty()) executor_->drain(*this);
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  ++in_flight_;
  requests_[slot] = request;
  executor_->start(*this, slot);
}

BlockCompletion BlockPath::perform(std::uint32_t slot) { return codec_.perform(requests_[slot]); }

void BlockPath::complete(std::uint32_t slot, const BlockCompletion& completion) {
  const BlockRequest request = requests_[slot];  // the sink may submit another into the slot
  free_.push_back(slot);
  --in_flight_;
  sink_.on_block(request, completion);
}

}  // namespace tern::daemon
