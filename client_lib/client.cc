#include "client_lib/client.h"

#include <algorithm>
#include <cstring>

#include "shm/wakeup.h"

namespace tern::client_lib {
namespace {

// An orderly end is a courtesy: the daemon notices the hang-up as well.
constexpr std::int64_t kGoodbyeMs = 1000;

}  // namespace

Result<std::unique_ptr<Client>> Client::connect(const ConnectOptions& options) {
  const Deadline deadline = Deadline::after_ms(options.timeout_ms);
  Result<ForkGuard> guard = ForkGuard::create();
  if (!guard) return tl::unexpected(std::move(guard.error()));
  Result<shm::PacketSocket> socket =
      shm::PacketSocket::connect(options.socket_path, options.timeout_ms);
  if (!socket) return tl::unexpected(std::move(socket.error()));
  std::unique_ptr<Client> client(
      new Client(std::move(*socket), std::move(*guard), options.timeout_ms));
  if (Status shaken = client->shake_hands(options, deadline); !shaken) {
    return tl::unexpected(std::move(shaken.error()));
  }
  return client;
}

Status Client::shake_hands(const ConnectOptions& options, Deadline deadline) {
  auto hello = shm::make_packet<shm::HelloPacket>(shm::PacketKind::hello, 0);
  hello.abi_min = wire::kShmAbi;
  hello.abi_max = wire::kShmAbi;
  hello.arena_bytes = options.arena_bytes;
  options.job.copy(hello.job, sizeof hello.job - 1);
  std::vector<Fd> fds;
  Result<shm::WelcomePacket> welcome =
      requests_.ask<shm::WelcomePacket>(hello, shm::PacketKind::welcome, deadline, &fds);
  if (!welcome) return tl::unexpected(std::move(welcome.error()));
  return take_welcome(*welcome, std::move(fds));
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
  notify_ = std::move(fds[1]);
  for (std::uint32_t lane = 0; lane < lane_count; ++lane) {
    eventfds_.push_back(std::move(fds[2 + lane]));
    submit_.emplace_back(segment_.submit_ring(lane));
    completions_.emplace_back(segment_.completion_ring(lane));
  }
  arena_.emplace(segment_.arena_bytes());
  return {};
}

void Client::disconnect() {
  if (lost_.load()) return;
  const auto goodbye = shm::make_packet<shm::PacketHeader>(shm::PacketKind::goodbye, 0);
  (void)requests_.ask<shm::DonePacket>(
      goodbye, shm::PacketKind::done,
      Deadline::after_ms(std::min(kGoodbyeMs, request_timeout_ms_)));
  requests_.close(Errc::daemon_lost, "the client has disconnected");
}

// Locks nothing: a mutex may have been held by a thread that the child does not have. What is in
// memory stays there; the descriptors are the child's own copies and the parent's connection does
// not notice.
void Client::drop_in_child() noexcept {
  requests_.close_fd();
  segment_.close_fd();
  segment_.abandon();
  notify_.reset();
  for (Fd& eventfd : eventfds_) eventfd.reset();
  if (pollable_) pollable_->close_fds();
}

Result<void*> Client::allocate(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::optional<std::uint64_t> offset = arena_->allocate(bytes);
  if (!offset) {
    return fail(Errc::out_of_memory,
                "no " + std::to_string(bytes) +
                    " bytes in one piece in the arena: " + std::to_string(arena_->used_bytes()) +
                    " of " + std::to_string(segment_.arena_bytes()) +
                    " are in use; connect with a larger arena_bytes");
  }
  return segment_.arena().data() + *offset;
}

Status Client::free(void* memory) {
  const auto* byte = static_cast<const std::byte*>(memory);
  if (!touches_arena(byte, 1)) {
    return fail(Errc::invalid_argument, "the memory is not from tern_alloc of this client");
  }
  const std::lock_guard lock(mutex_);
  if (!arena_->free(static_cast<std::uint64_t>(byte - segment_.arena().data()))) {
    return fail(Errc::invalid_argument, "the memory was not allocated, or is free already");
  }
  return {};
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

bool Client::touches_arena(const void* memory, std::uint64_t bytes) const noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const auto arena = reinterpret_cast<std::uintptr_t>(segment_.arena().data());
  return begin < arena + segment_.arena_bytes() && begin + bytes > arena;
}

// The place of memory that the daemon can use where it is. Memory without its type's alignment is
// copied like any outside the arena.
std::optional<std::uint64_t> Client::arena_offset(const void* memory, std::uint64_t bytes,
                                                  DType dtype) const noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const auto arena = reinterpret_cast<std::uintptr_t>(segment_.arena().data());
  if (begin < arena || begin - arena > segment_.arena_bytes()) return std::nullopt;
  const std::uint64_t offset = begin - arena;
  if (bytes > segment_.arena_bytes() - offset || offset % dtype_bytes(dtype) != 0) {
    return std::nullopt;
  }
  return offset;
}

}  // namespace tern::client_lib
