#include "net/event_loop.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/check.h"
#include "base/time_slice.h"
#include "net/event_loop_asio.h"

namespace tern::net {
namespace {

// Asio may call for what had a descriptor's place before: for an event that epoll gave it in one
// batch with another, whose handler has closed the one and watched the other.
bool is_readable(int fd) noexcept {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) != 0;
}

}  // namespace

EventLoop::Impl::Impl() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  TERN_CHECK(fd >= 0);
  wake = std::make_shared<Watched>(io, [fd] {
    std::uint64_t count;
    while (::read(fd, &count, sizeof count) > 0) {
    }
  });
  wake->descriptor.assign(fd);
  wait_readable(wake);
}

void EventLoop::Impl::wait_readable(std::shared_ptr<Watched> watched) {
  auto& descriptor = watched->descriptor;
  descriptor.async_wait(boost::asio::posix::descriptor_base::wait_read,
                        [watched = std::move(watched)](const boost::system::error_code& error) {
                          if (error || watched->removed) return;
                          watched->readable();
                          if (!watched->removed) wait_readable(watched);
                        });
}

EventLoop::EventLoop() : impl_(std::make_unique<Impl>()) {}
EventLoop::~EventLoop() = default;

// A descriptor that is always readable, because somebody floods it, must not keep the thread in
// here.
int EventLoop::poll() {
  constexpr int kHandlersPerPoll = 64;
  std::optional<TimeSlice> slice;
  if (clock_ != nullptr) slice.emplace(*clock_, longest_poll_ns_);
  int handlers = 0;
  while (handlers < kHandlersPerPoll && impl_->io.poll_one() > 0) {
    ++handlers;
    if (slice && slice->is_over()) break;
  }
  return handlers;
}

void EventLoop::bound_polls(const Clock& clock, std::uint64_t ns) {
  clock_ = &clock;
  longest_poll_ns_ = ns;
}

int EventLoop::wait(std::uint64_t timeout_ns) {
  // Longer than any timer of ours, and short enough not to overflow a time point.
  constexpr std::uint64_t kLongest = 3'600'000'000'000;
  const auto timeout = std::chrono::nanoseconds(std::min(timeout_ns, kLongest));
  return static_cast<int>(impl_->io.run_one_for(timeout));
}

void EventLoop::wake() noexcept {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then the loop is awake anyway.
  [[maybe_unused]] const auto written =
      ::write(impl_->wake->descriptor.native_handle(), &one, sizeof one);
}

Result<std::uint64_t> EventLoop::watch(Fd fd, std::function<void()> readable) {
  if (!fd) return fail(Errc::io_error, "cannot watch a descriptor that could not be made");
  auto watched =
      std::make_shared<Impl::Watched>(impl_->io, [fd = fd.get(), call = std::move(readable)] {
        if (is_readable(fd)) call();
      });
  boost::system::error_code error;
  watched->descriptor.assign(fd.get(), error);
  if (error) return fail(Errc::io_error, "cannot watch a descriptor: " + error.message());
  (void)fd.release();  // Asio's now
  const std::uint64_t handle = impl_->next_handle++;
  impl_->watched.emplace(handle, watched);
  Impl::wait_readable(std::move(watched));
  return handle;
}

void EventLoop::unwatch(std::uint64_t handle) {
  const auto found = impl_->watched.find(handle);
  if (found == impl_->watched.end()) return;
  found->second->removed = true;
  boost::system::error_code ignored;
  found->second->descriptor.close(ignored);
  impl_->watched.erase(found);
}

}  // namespace tern::net
