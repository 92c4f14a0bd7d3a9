#pragma once

// Ops whose memory is a copy that goes on while the lane works: the client submits first, then
// copies its input to the arena and raises a watermark, and copies out what lanes list as delivered
// (shm/copy_progress.h). Here is what the lane knows of the watermarks, and who lies in them.

#include <cstdint>
#include <span>
#include <vector>

#include "collective/input_gate.h"
#include "collective/op_rows.h"
#include "daemon/lane/block_request.h"
#include "daemon/lane/group_core.h"
#include "daemon/lane/lane_clients.h"
#include "daemon/lane/memory_copy.h"

namespace tern::daemon {

class CopyWatch final : public collective::InputGate {
 public:
  // Everything given outlives this.
  explicit CopyWatch(GroupCore& core)
      : core_(core),
        copies_(core.ops().table().slots(), core.setup().shape.local_ranks(),
                core.setup().shape.max_ops_in_flight),
        arriving_of_(core.ops().table().slots()) {
    arriving_.reserve(arriving_of_.size() * core.setup().shape.local_ranks());
  }

  struct Rank {
    collective::OpId op = collective::kNoSlot;
    std::uint32_t local_rank = 0;
  };
  // It has submitted the op, and its slot is filled. REQUIRES: the entry has been checked.
  void begin(const Rank& who, const shm::SubmitEntry& entry, const LaneClient& client);
  // It has ended, and its slot is another's.
  void forget(collective::OpId op) noexcept;
  // Reads the watermarks. One that says more than there is, or less than it did, fails its op.
  // True: some input is further than it was.
  bool look();
  // Fails ops one of whose watermarks has stood still for so long. One that has not risen yet does
  // not stand still while its rank copies anything else. True as look(), which it begins with.
  bool expire(std::uint64_t now_ns, std::uint64_t timeout_ns);

  // As of the last look(): the answers hold however a client writes meanwhile.
  bool has(collective::OpId op, std::uint32_t chunk) const noexcept override;
  bool has_all(collective::OpId op) const noexcept override;

  // A block is done. If it brings elements to the outputs of this node's ranks, `clients`, which do
  // not change any more, they are listed.
  void on_block(const BlockRequest& request, const BlockCompletion& completion,
                std::span<LaneClient* const> clients) noexcept;
  void deliver(collective::OpId op, const plan::Range& elements,
               std::span<LaneClient* const> clients) noexcept;

 private:
  bool is_over(collective::OpId op) const noexcept;
  bool look_at(const Rank& one);
  bool has_ended(const Rank& one) const noexcept;
  void begin_next(std::uint32_t local_rank) noexcept;
  void fail(const Rank& one, Errc code, const char* text);

  const MemoryCopy& copy_of(const Rank& one) const noexcept {
    return copies_.read(one.op, one.local_rank);
  }
  std::uint64_t input_bytes(const Rank& one) const noexcept {
    return core_.lane_ops().ranks(one.op)[one.local_rank].input.bytes;
  }
  // All of it.
  bool has_input(const Rank& one) const noexcept {
    return !copy_of(one).exists() || copy_of(one).input_bytes() == input_bytes(one);
  }

  GroupCore& core_;
  collective::OpRows<MemoryCopy> copies_;   // by local rank
  std::vector<std::uint32_t> arriving_of_;  // ranks of an op whose inputs are not all there yet
  std::vector<Rank> arriving_;              // whose input is not there yet, as they have submitted
};

}  // namespace tern::daemon
