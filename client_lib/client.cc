#include "client_lib/client.h"

#include <utility>

namespace tern::client_lib {
Result<std::unique_ptr<Client>> Client::connect(const ConnectOptions& options) {
  const Deadline deadline = Deadline::after_ms(options.timeout_ms);
  Result<ForkGuard> guard = ForkGuard::create();
  if (!guard) return tl::unexpected(std::move(guard.error()));
  Result<shm::PacketSocket> socket =
      shm::PacketSocket::connect(options.socket_path, options.timeout_ms);
  if (!socket) return tl::unexpected(std::move(socket.error()));
  std::unique_ptr<Client> client(
      new Client(std::move(*socket), std::move(*guard), options.timeout_ms));
  std::vector<Fd> fds;
  Result<shm::WelcomePacket> welcome = client->questions_.hello(options, deadline, fds);
  if (!welcome) return tl::unexpected(std::move(welcome.error()));
  if (Status taken = client->take_welcome(*welcome, std::move(fds)); !taken) {
    return tl::unexpected(std::move(taken.error()));
  }
  return client;
}

Status Client::take_welcome(const shm::WelcomePacket& welcome, std::vector<Fd> fds) {
  if (welcome.abi != wire::kShmAbi) {
    return fail(Errc::version_mismatch, "ternd chose shared memory version " +
                                            std::to_string(welcome.abi) + ", libtern speaks " +
                                            std::to_string(wire::kShmAbi));
  }
  const std::uint32_t lane_count = welcome.lane_count;
  if (lane_count < 1 || lane_count > shm::kMaxLanes || fds.size() != 2 + lane_count) {
    return fail(Errc::protocol_error, "ternd's welcome does not fit its descriptors");
  }
  Result<shm::Segment> segment = shm::Segment::map(std::move(fds[0]), welcome.segment_bytes);
  if (!segment) {
    const bool unready = segment.error().code == Errc::would_block;
    return fail(unready ? Errc::protocol_error : segment.error().code, segment.error().text);
  }
  if (segment->lane_count() != lane_count) {
    return fail(Errc::protocol_error, "ternd's welcome and its shared memory differ in lanes");
  }
  segment_ = std::move(*segment);
  features_ = welcome.features;
  notify_ = std::move(fds[1]);
  for (std::uint32_t lane = 0; lane < lane_count; ++lane) {
    completions_.emplace_back(segment_.completion_ring(lane));
  }
  fds.erase(fds.begin(), fds.begin() + 2);
  lanes_.emplace(segment_, std::move(fds));
  arena_.emplace(segment_.arena());
  copies_.emplace(mutex_, *arena_, *lanes_, features_);
  return {};
}

void Client::disconnect() {
  if (lost_.load()) return;
  questions_.goodbye();
  questions_.close(Errc::daemon_lost, "the client has disconnected");
}

// Locks nothing: a mutex may have been held by a thread that the child does not have. What is in
// memory stays there; the descriptors are the child's own copies and the parent's connection does
// not notice.
void Client::drop_in_child() noexcept {
  questions_.close_fd();
  segment_.close_fd();
  segment_.abandon();
  regions_.abandon();
  if (arena_) arena_->copy_regions().abandon();
  notify_.reset();
  if (lanes_) lanes_->close_fds();
  if (pollable_) pollable_->close_fds();
}

Result<void*> Client::allocate(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  return arena_->allocate(bytes);
}

Status Client::free(void* memory) {
  std::unique_lock lock(mutex_);
  const std::optional<std::uint32_t> number = regions_.find(memory);
  if (!number) return arena_->free(memory);
  arena_->remove_region(*number);
  const Regions::Region region = regions_.take(*number);
  lock.unlock();
  // The daemon frees it when no op uses it any more; here it ends at once.
  Status freed = questions_.free_region(region.number);
  if (freed || lost_.load()) return {};
  return request_failed(std::move(freed.error()));
}

Result<void*> Client::create_region(std::uint64_t bytes) {
  if ((features_ & shm::kFeatureRegions) == 0) {
    return fail(Errc::unsupported,
                "ternd is too old to make regions; connect with a larger arena_bytes");
  }
  Result<Regions::Region> made = Regions::make(questions_, bytes);
  // What is kept for copies gives way to the program's own.
  if (!made && made.error().code == Errc::quota_exceeded &&
      arena_->copy_regions().give_back(questions_, mutex_)) {
    made = Regions::make(questions_, bytes);
  }
  if (!made) return request_failed(std::move(made.error()));
  const std::span<std::byte> memory = made->segment.arena();
  const std::lock_guard lock(mutex_);
  arena_->add_region(made->number, memory);
  regions_.add(std::move(*made));
  return memory.data();
}

Result<int> Client::pollable_fd() {
  const std::lock_guard lock(mutex_);
  if (!pollable_) {
    Result<PollableFd> made = PollableFd::create(notify_.get());
    if (!made) return tl::unexpected(std::move(made.error()));
    pollable_ = std::move(*made);
    refresh_pollable();
  }
  return pollable_->fd();
}

}  // namespace tern::client_lib
