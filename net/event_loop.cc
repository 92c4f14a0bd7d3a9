#include "net/event_loop.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/bind_allocator.hpp>
#include <chrono>
#include <optional>
#include <utility>

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
  const auto drain = [fd] {
    std::uint64_t count;
    // One read takes all that was written. None: the event was an older one's.
    [[maybe_unused]] const ssize_t read = ::read(fd, &count, sizeof count);
  };
  wake = std::make_shared<Watched>(*this, drain, true);
  TERN_CHECK(wake->open(Fd(fd)).has_value());
  wake->wait();
}

void EventLoop::Impl::begin_waits() {
  for (const auto& waiter : waiters) waiter->wait();
  waiters.clear();
}

void EventLoop::Impl::begin_doorbell_waits() {
  for (const auto& doorbell : rung) doorbell->wait();
  rung.clear();
}

Status EventLoop::Impl::Watched::open(Fd fd) {
  boost::system::error_code error;
  descriptor_.assign(fd.get(), error);
  if (error) return fail(Errc::io_error, "cannot watch a descriptor: " + error.message());
  (void)fd.release();  // Asio's now
  return {};
}

void EventLoop::Impl::Watched::wait() {
  if (removed_) return;
  if (std::exchange(has_rung_, false)) call_();
  descriptor_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                         boost::asio::bind_allocator(
                             WaitAllocator<std::byte>(memory_),
                             [self = shared_from_this()](const boost::system::error_code& error) {
                               if (!error && !self->removed_) self->on_event();
                             }));
}

void EventLoop::Impl::Watched::on_event() {
  if (is_doorbell_) {
    has_rung_ = loop_.has_event = true;
    loop_.rung.push_back(shared_from_this());
    return;
  }
  if (is_readable(fd())) call_();
  if (!removed_) loop_.wait_later(shared_from_this());
}

void EventLoop::Impl::Watched::remove() noexcept {
  removed_ = true;
  boost::system::error_code ignored;
  descriptor_.close(ignored);
}

EventLoop::EventLoop() : impl_(std::make_unique<Impl>()) {}
EventLoop::~EventLoop() = default;

// A descriptor that is always readable, because somebody floods it, must not keep the thread in
// here.
int EventLoop::poll() {
  constexpr int kHandlersPerPoll = 64;
  if (impl_->since == Impl::Since::event) {
    impl_->since = Impl::Since::skipped_poll;
    return 0;
  }
  const bool left_doorbells = impl_->since == Impl::Since::poll_that_left_doorbells;
  std::optional<TimeSlice> slice;
  if (clock_ != nullptr) slice.emplace(*clock_, longest_poll_ns_);
  int handlers = 0;
  while (handlers < kHandlersPerPoll && impl_->io.poll_one() > 0) {
    ++handlers;
    if (slice && slice->is_over()) break;
  }
  // Last, so that their events are for the next poll: more has come by then, and is read at once.
  impl_->begin_waits();
  // A doorbell's wait costs two system calls: what this poll has brought is worked off before. Not
  // twice in a row, so that no doorbell stays unwatched however much there is to do.
  if (handlers > 0 && !impl_->rung.empty() && !left_doorbells) {
    impl_->since = Impl::Since::poll_that_left_doorbells;
  } else {
    impl_->since = Impl::Since::poll;
    impl_->begin_doorbell_waits();
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
  // This drains: a thread that has said that it sleeps must look again.
  impl_->begin_waits();
  impl_->begin_doorbell_waits();
  if (std::exchange(impl_->since, Impl::Since::poll) != Impl::Since::poll) return 0;
  impl_->has_event = false;
  // In a wait that has an end Asio wakes every second.
  const auto timeout = std::chrono::nanoseconds(std::min(timeout_ns, kLongest));
  const auto handlers = static_cast<int>(timeout_ns < kForeverNs ? impl_->io.run_one_for(timeout)
                                                                 : impl_->io.run_one());
  if (impl_->has_event) impl_->since = Impl::Since::event;
  return handlers;
}

void EventLoop::wake() noexcept {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then the loop is awake anyway.
  [[maybe_unused]] const auto written = ::write(impl_->wake->fd(), &one, sizeof one);
}

Result<std::uint64_t> EventLoop::watch(Fd fd, std::function<void()> readable) {
  return add(std::move(fd), std::move(readable), false);
}

Result<std::uint64_t> EventLoop::watch_doorbell(Fd fd, std::function<void()> drain) {
  return add(std::move(fd), std::move(drain), true);
}

Result<std::uint64_t> EventLoop::add(Fd fd, std::function<void()> call, bool is_doorbell) {
  if (!fd) return fail(Errc::io_error, "cannot watch a descriptor that could not be made");
  auto watched = std::make_shared<Impl::Watched>(*impl_, std::move(call), is_doorbell);
  if (Status opened = watched->open(std::move(fd)); !opened) {
    return tl::unexpected(std::move(opened.error()));
  }
  watched->wait();
  const std::uint64_t handle = impl_->next_handle++;
  impl_->watched.emplace(handle, std::move(watched));
  return handle;
}

void EventLoop::unwatch(std::uint64_t handle) {
  const auto found = impl_->watched.find(handle);
  if (found == impl_->watched.end()) return;
  found->second->remove();
  impl_->watched.erase(found);
}

}  // namespace tern::net
