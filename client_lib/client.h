#pragma once

// One connection to the daemon, behind the C functions of tern.h. The sources are split by verb:
// client.cc connects, gives memory and ends, group.cc and state.cc ask over the socket, submit.cc
// and wait.cc are the data path.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "client_lib/arena_memory.h"
#include "client_lib/fork_guard.h"
#include "client_lib/op_copies.h"
#include "client_lib/op_table.h"
#include "client_lib/options.h"
#include "client_lib/pollable_fd.h"
#include "client_lib/questions.h"
#include "client_lib/regions.h"
#include "client_lib/submission_lanes.h"
#include "shm/layout.h"
#include "shm/segment.h"

namespace tern::client_lib {

// Thread: any, for all functions, until disconnect.
class Client {
 public:
  static Result<std::unique_ptr<Client>> connect(const ConnectOptions& options);

  // Tells the daemon and waits for it a little. Nothing may be called afterwards.
  void disconnect();

  // Whether this process is a child of the one that connected: then only drop_in_child may be
  // called.
  bool forked() const noexcept { return guard_.forked(); }
  void drop_in_child() noexcept;

  Result<void*> allocate(std::uint64_t bytes);
  Status free(void* memory);
  Result<void*> create_region(std::uint64_t bytes);
  Status report_device(const shm::DeviceReportPacket& report) {
    return questions_.report_device(report, features_);
  }

  Result<shm::GroupMintedPacket> mint();
  Result<std::shared_ptr<GroupState>> join(const std::string& id, const JoinOptions& options);
  // Null: the rank has no part in a child.
  Result<std::shared_ptr<GroupState>> split(const GroupState& group, const SplitOptions& options);
  Status leave(const std::shared_ptr<GroupState>& group);
  Result<std::shared_ptr<TensorState>> declare(const std::shared_ptr<GroupState>& group,
                                               const DeclareOptions& options);
  Status release(const std::shared_ptr<TensorState>& tensor);
  // What the codec remembers of the tensor on this node, for checkpoints.
  Result<std::uint64_t> state_bytes(const TensorState& tensor);
  Result<std::uint64_t> export_state(const TensorState& tensor, std::span<std::byte> part);
  Status import_state(const TensorState& tensor, std::span<const std::span<const std::byte>> parts);
  Result<shm::TensorStatsPacket> stats(const TensorState& tensor);
  struct NextUse {
    std::uint64_t number = 0;  // how many operations on the tensor were submitted so far
    shm::EncodedBy by;
  };
  // Of a tensor with client_blocks, whose program is told so now. One that does not expect the recipe
  // to change is told raw.
  NextUse tell_next_use(TensorState& tensor, bool expects_changes);

  // All or none of them. Gives each request a ticket, or all together one.
  Status submit(std::span<const OpRequest> requests, std::span<std::uint64_t> tickets);
  Status cancel(std::uint64_t ticket);

  // The end of one of the tickets, timeout, or unknown_ticket; index tells which. The text of a
  // failed op goes to set_error_detail(). Allocates nothing.
  Errc wait(std::span<const std::uint64_t> tickets, std::int64_t timeout_ms, std::size_t& index);
  Result<int> pollable_fd();

 private:
  class Reserved;

  Client(shm::PacketSocket socket, ForkGuard guard, std::int64_t timeout_ms)
      : guard_(std::move(guard)), questions_(std::move(socket), timeout_ms) {}

  Status take_welcome(const shm::WelcomePacket& welcome, std::vector<Fd> fds);
  // The failure of a request; a broken connection also ends all ops.
  tl::unexpected<Error> request_failed(Error error);
  template <typename Room>
  Result<std::uint64_t> move_state(const TensorState& tensor, shm::StateAction action,
                                   const Room& wanted);

  // REQUIRES, for all below: mutex_ held.
  Status prepare(const OpRequest& request, Op& op);
  Result<std::uint32_t> push(std::span<const OpRequest> requests, Op& first);
  void number(const OpRequest& request, Op& op) noexcept;
  void give_tickets(Op& first, std::span<std::uint64_t> tickets) noexcept;
  void abandon_op(Op& op) noexcept;
  void poll_completions() noexcept;
  void take_completion(std::uint32_t lane, const shm::CompletionEntry& entry) noexcept;
  void end_op(Op& op) noexcept;
  void refresh_pollable() noexcept;
  void lose_locked() noexcept;

  // REQUIRES: mutex_ not held.
  Status try_submit(std::span<const OpRequest> requests, std::span<std::uint64_t> tickets,
                    std::uint64_t& missing_bytes);
  bool take_deliveries(std::span<const std::uint64_t> tickets, std::unique_lock<std::mutex>& lock);
  Errc report(Op& first);
  void notice_loss() noexcept;
  bool idle(std::uint32_t seen, std::uint64_t remaining_ns, bool& spun);

  ForkGuard guard_;
  Questions questions_;
  std::mutex state_move_mutex_;  // the daemon moves one after the other, each in its time

  // Constant after connect.
  shm::Segment segment_;
  Fd notify_;
  std::uint32_t features_ = 0;  // of the daemon

  // Set once, by whoever notices the end of the connection.
  std::atomic<bool> lost_{false};
  std::atomic<std::uint64_t> last_loss_check_ns_{0};

  std::mutex mutex_;
  std::optional<ArenaMemory> arena_;
  Regions regions_;
  std::optional<SubmissionLanes> lanes_;
  std::optional<OpCopies> copies_;
  std::vector<shm::RingConsumer<shm::CompletionEntry>> completions_;
  OpTable ops_;
  std::uint64_t unreported_ = 0;  // ops in state ended
  std::optional<PollableFd> pollable_;
  // How many of its first ops a group left earlier had completed, by group id.
  std::unordered_map<std::string, std::uint64_t> completed_by_id_;
};

}  // namespace tern::client_lib
