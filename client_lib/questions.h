#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "client_lib/options.h"
#include "client_lib/requests.h"

namespace tern::client_lib {

// What a client asks of its daemon over the socket, and which answers make sense. Of an answer that
// does not the connection is closed. Thread: any.
class Questions {
 public:
  Questions(shm::PacketSocket socket, std::int64_t timeout_ms)
      : requests_(std::move(socket)), timeout_ms_(timeout_ms) {}

  // `fds`: those that came with the answer.
  Result<shm::WelcomePacket> hello(const ConnectOptions& options, Deadline deadline,
                                   std::vector<Fd>& fds);
  void goodbye();

  Result<shm::GroupMintedPacket> mint();
  // `completed_ops`: how many of its first ops this client had completed in the epoch before.
  Result<shm::GroupJoinedPacket> join(const std::string& id, const JoinOptions& options,
                                      std::uint64_t completed_ops, std::uint32_t lane_count);
  // The child's number is 0 where the rank has no part in any.
  Result<shm::GroupSplitReplyPacket> split(const GroupState& group, const SplitOptions& options,
                                           std::uint32_t lane_count);
  Status leave(const GroupState& group);
  // `daemon_features`: of the welcome.
  Result<std::shared_ptr<TensorState>> declare(const std::shared_ptr<GroupState>& group,
                                               const DeclareOptions& options,
                                               std::uint32_t daemon_features);
  Status release(const TensorState& tensor);
  // Does not wait.
  void post_release(const TensorState& tensor) noexcept;
  Result<shm::TensorStatsPacket> stats(const TensorState& tensor);
  // `offset` and `bytes`: of the room in the arena.
  Result<std::uint64_t> state(const TensorState& tensor, shm::StateAction action,
                              std::uint64_t offset, std::uint64_t bytes);

  // `fds`: its descriptor.
  Result<shm::RegionCreatedPacket> create_region(std::uint64_t bytes, std::vector<Fd>& fds);
  Status open_region(std::uint32_t region);
  Status free_region(std::uint32_t region);

  // Does not wait, and a report for which there is no room is lost.
  Status report_device(const shm::DeviceReportPacket& report, std::uint32_t daemon_features);

  // Whether the connection has ended, by either side.
  bool lost() noexcept { return requests_.lost(); }
  // Ends the connection: all that wait get the error.
  void close(Errc code, const char* text) noexcept { requests_.close(code, text); }
  // In a forked child: closes the child's copy of the descriptor and nothing else.
  void close_fd() noexcept { requests_.close_fd(); }

 private:
  // Of a tensor with client_blocks.
  Result<TensorBlocks> blocks(const TensorState& tensor);
  Result<std::vector<std::string>> recipes(const TensorState& tensor);
  Deadline join_deadline(const JoinOptions& options) const noexcept;
  Deadline deadline() const noexcept { return Deadline::after_ms(timeout_ms_); }
  tl::unexpected<Error> nonsense(const char* text);

  Requests requests_;
  std::int64_t timeout_ms_;
};

}  // namespace tern::client_lib
