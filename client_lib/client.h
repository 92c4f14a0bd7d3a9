#pragma once

// One connection to the daemon, behind the C functions of tern.h. The sources are split by verb:
// client.cc connects and ends, group.cc asks over the socket, submit.cc and wait.cc are the data
// path.

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
#include "client_lib/arena.h"
#include "client_lib/fork_guard.h"
#include "client_lib/op_table.h"
#include "client_lib/pollable_fd.h"
#include "client_lib/requests.h"
#include "shm/layout.h"
#include "shm/segment.h"

namespace tern::client_lib {

struct ConnectOptions {
  std::string socket_path;
  std::string job;
  std::uint64_t arena_bytes = 0;
  std::int64_t timeout_ms = 0;  // also for every later request that has no timeout of its own
};

struct JoinOptions {
  std::int32_t rank = 0;
  std::int32_t size = 0;
  bool verify = false;
  std::uint64_t seed = 0;
  std::int64_t timeout_ms = 0;
  std::int64_t op_timeout_ms = 0;
};

struct DeclareOptions {
  std::string_view name;
  std::string_view recipe;
  std::string_view level;
  std::uint64_t count = 0;
  DType dtype = DType::f32;
  Role role = Role::exact;
  std::int32_t priority = 0;
  bool exempt = false;
};

// Already validated apart from what only the client's state can tell. input and output are the same
// for "in place", null for an op without elements.
struct OpRequest {
  shm::OpKind kind = shm::OpKind::barrier;
  std::shared_ptr<GroupState> group;
  std::shared_ptr<TensorState> tensor;  // null: anonymous
  const void* input = nullptr;
  void* output = nullptr;
  bool input_matters = true;  // false on the ranks of a broadcast that are not the root
  std::uint64_t count = 0;
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
  std::uint32_t root = 0;
  std::int32_t priority = 0;
  float prescale = 1;
  float state_scale = 1;
  std::string_view recipe;
};

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

  Result<shm::GroupMintedPacket> mint();
  Result<std::shared_ptr<GroupState>> join(const std::string& id, const JoinOptions& options);
  Status leave(const std::shared_ptr<GroupState>& group);
  Result<std::shared_ptr<TensorState>> declare(const std::shared_ptr<GroupState>& group,
                                               const DeclareOptions& options);
  Status release(const std::shared_ptr<TensorState>& tensor);
  // What the codec remembers of the tensor on this node, for checkpoints.
  Result<std::uint64_t> state_bytes(const TensorState& tensor);
  Result<std::uint64_t> export_state(const TensorState& tensor, std::span<std::byte> part);
  Status import_state(const TensorState& tensor, std::span<const std::span<const std::byte>> parts);
  Result<shm::TensorStatsPacket> stats(const TensorState& tensor);

  Result<std::uint64_t> submit(const OpRequest& request);
  Status cancel(std::uint64_t ticket);

  // The end of one of the tickets, timeout, or unknown_ticket; index tells which. The text of a
  // failed op goes to set_error_detail(). Allocates nothing.
  Errc wait(std::span<const std::uint64_t> tickets, std::int64_t timeout_ms, std::size_t& index);
  Result<int> pollable_fd();

 private:
  class Undo;

  Client(shm::PacketSocket socket, ForkGuard guard, std::int64_t timeout_ms)
      : guard_(std::move(guard)), requests_(std::move(socket)), request_timeout_ms_(timeout_ms) {}

  Status shake_hands(const ConnectOptions& options, Deadline deadline);
  Status take_welcome(const shm::WelcomePacket& welcome, std::vector<Fd> fds);
  Deadline request_deadline() const noexcept { return Deadline::after_ms(request_timeout_ms_); }
  // The failure of a request; a broken connection also ends all ops.
  tl::unexpected<Error> request_failed(Error error);
  template <typename Fill, typename Take>
  Result<std::uint64_t> move_state(const TensorState& tensor, shm::StateAction action,
                                   std::uint64_t bytes, Fill fill, Take take);

  // REQUIRES, for all below: mutex_ held.
  std::uint64_t completed_prefix(const GroupState& group) noexcept;
  Status prepare(const OpRequest& request, Op& op);
  Status place_copies(const OpRequest& request, Op& op);
  Result<std::uint64_t> push(const OpRequest& request, Op& op);
  bool lanes_have_room(std::uint32_t lanes) noexcept;
  void abandon_op(Op& op) noexcept;
  void poll_completions() noexcept;
  void take_completion(std::uint32_t lane, const shm::CompletionEntry& entry) noexcept;
  void end_op(Op& op) noexcept;
  void refresh_pollable() noexcept;
  void lose_locked() noexcept;
  void free_copies(Op& op) noexcept;
  void send_release(const TensorState& tensor) noexcept;

  // REQUIRES: mutex_ not held.
  Result<std::uint64_t> try_submit(const OpRequest& request);
  Errc report(Op& op);
  void notice_loss() noexcept;
  bool idle(std::uint32_t seen, std::uint64_t remaining_ns, bool& spun);
  void wake_lanes(std::uint32_t lanes) noexcept;

  std::optional<std::uint64_t> arena_offset(const void* memory, std::uint64_t bytes,
                                            DType dtype) const noexcept;
  bool touches_arena(const void* memory, std::uint64_t bytes) const noexcept;

  ForkGuard guard_;
  Requests requests_;
  std::int64_t request_timeout_ms_;

  // Constant after connect.
  shm::Segment segment_;
  Fd notify_;
  std::vector<Fd> eventfds_;

  // Set once, by whoever notices the end of the connection.
  std::atomic<bool> lost_{false};
  std::atomic<std::uint64_t> last_loss_check_ns_{0};

  std::mutex mutex_;
  std::optional<Arena> arena_;
  std::uint64_t copies_in_use_ = 0;
  std::vector<shm::RingProducer<shm::SubmitEntry>> submit_;
  std::vector<shm::RingConsumer<shm::CompletionEntry>> completions_;
  OpTable ops_;
  std::uint64_t unreported_ = 0;  // ops in state ended
  std::optional<PollableFd> pollable_;
  // How many of its first ops a group left earlier had completed, by group id.
  std::unordered_map<std::string, std::uint64_t> completed_by_id_;
};

}  // namespace tern::client_lib
