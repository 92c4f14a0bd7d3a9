#include "shm/wakeup.h"

#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

#include "base/passed_descriptors.h"

namespace tern::shm {
namespace {

// Not FUTEX_PRIVATE: the two sides are different processes.
void futex_wake(std::uint32_t& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

Result<Fd> make_eventfd() {
  Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) return fail_errno(Errc::io_error, "cannot make an eventfd", errno);
  return fd;
}

Result<std::pair<Fd, Fd>> make_notify_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return fail_errno(Errc::io_error, "cannot make a socket pair", errno);
  }
  refuse_passed_descriptors(ends[0]);
  return std::pair<Fd, Fd>(Fd(ends[0]), Fd(ends[1]));
}

bool drain_eventfd(int eventfd) noexcept {
  std::uint64_t count = 0;
  iovec piece{&count, sizeof count};
  ssize_t got = 0;
  do {
    got = ::preadv2(eventfd, &piece, 1, -1, RWF_NOWAIT);
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof count);
}

void ring_doorbell(SegmentHeader& header, int notify_fd) noexcept {
  std::atomic_ref<std::uint32_t>(header.doorbell).fetch_add(1, std::memory_order_seq_cst);
  if (std::atomic_ref<std::uint32_t>(header.sleepers).load(std::memory_order_seq_cst) != 0) {
    futex_wake(header.doorbell);
  }
  std::atomic_ref<std::uint32_t> armed(header.fd_armed);
  // Looked at before it is taken, so that the line stays shared while nobody arms it.
  if (armed.load(std::memory_order_seq_cst) == 1 &&
      armed.exchange(0, std::memory_order_seq_cst) == 1) {
    const char byte = 1;
    // A full socket is readable already, a closed one is the conductor's to notice.
    (void)::send(notify_fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

bool wake_lane(LaneRings& rings, int eventfd) noexcept {
  if (std::atomic_ref<std::uint32_t>(rings.lane_sleeps).load(std::memory_order_seq_cst) == 0) {
    return false;
  }
  const std::uint64_t one = 1;
  // EAGAIN means that the counter is at its limit, hence readable.
  while (::write(eventfd, &one, sizeof one) < 0 && errno == EINTR) {
  }
  return true;
}

void sleep_on_doorbell(SegmentHeader& header, std::uint32_t seen,
                       std::uint64_t timeout_ns) noexcept {
  timespec timeout{};
  timeout.tv_sec = static_cast<std::time_t>(timeout_ns / 1'000'000'000u);
  timeout.tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000u);
  std::atomic_ref<std::uint32_t> sleepers(header.sleepers);
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &header.doorbell, FUTEX_WAIT, seen, &timeout, nullptr, 0);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void wake_sleepers(SegmentHeader& header) noexcept {
  std::atomic_ref<std::uint32_t>(header.doorbell).fetch_add(1, std::memory_order_seq_cst);
  futex_wake(header.doorbell);
}

std::size_t drain_notify(int notify_fd) noexcept {
  char bytes[64];
  std::size_t all = 0;
  ssize_t got = 0;
  do {
    got = ::recv(notify_fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0) all += static_cast<std::size_t>(got);
  } while (got == static_cast<ssize_t>(sizeof bytes) || (got < 0 && errno == EINTR));
  return all;
}

}  // namespace tern::shm
