#pragma once

// Sends and recvs whose memory is a copy that goes on while the lane works, as CopyWatch has it for
// ops: the client raises a watermark over what it sends, and copies out what is listed as received.

#include <cstdint>
#include <vector>

#include "collective/mailbox.h"
#include "daemon/lane/group_core.h"
#include "daemon/lane/lane_clients.h"
#include "daemon/lane/memory_copy.h"

namespace tern::daemon {

class PassCopies {
 public:
  // Everything given outlives this.
  PassCopies(GroupCore& core, collective::Mailbox& mailbox) : core_(core), mailbox_(mailbox) {}

  // The pass has been submitted by the entry. REQUIRES: the entry has been checked.
  void begin(collective::PassId pass, const shm::SubmitEntry& entry, LaneClient& client);
  // Nothing uses the pass any more.
  void end(collective::PassId pass);

  // Reads the watermarks. One that says more than there is, or less than it did, fails its send.
  // True: some send has more to read.
  bool look();
  // Fails sends whose watermark has stood still for so long. One that has not risen yet does not
  // stand still while its client copies anything else. True: as look().
  bool expire(std::uint64_t now_ns, std::uint64_t timeout_ns);

  // Bytes of a recv's memory that will not change any more.
  void deliver(collective::PassId recv, const shm::DeliveredRecord& piece) noexcept;

 private:
  struct Copy {
    MemoryCopy copy;
    LaneClient* client = nullptr;
    std::uint64_t bytes = 0;  // of what is sent
  };

  void fail(collective::PassId send, Errc code, const char* text);

  GroupCore& core_;
  collective::Mailbox& mailbox_;
  std::vector<Copy> copies_;                  // by pass
  std::vector<collective::PassId> arriving_;  // sends that are not all there
};

}  // namespace tern::daemon
