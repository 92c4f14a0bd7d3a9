#include "bench/meeting.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <new>
#include <stdexcept>
#include <system_error>

namespace tern::bench {

// All zero is the state before the first meeting, so that a file that was just made to length needs
// no set-up by anyone. The counters only grow; that 2^32 arrivals are enough is the caller's
// patience.
struct Meeting::Page {
  std::atomic<std::uint32_t> arrived;
  std::atomic<std::uint32_t> round;  // the futex word: rounds that are complete
  std::atomic<std::uint32_t> aligned;
  std::atomic<std::uint32_t> go_on;
  std::atomic<std::uint32_t> failed;
  Slot slots[kMaxRanks];
};

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{60};

[[noreturn]] void throw_errno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Not a private futex: the waiters are other processes.
void wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  const timespec second{1, 0};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &second, nullptr, 0);
}

}  // namespace

Meeting::Meeting(const std::string& path, std::uint32_t rank, std::uint32_t size)
    : rank_(rank), size_(size), page_(nullptr, [](Page* page) { ::munmap(page, sizeof(Page)); }) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(Page)) != 0) throw_errno(path);
  void* const memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED) throw_errno(path);
  page_.reset(static_cast<Page*>(memory));
}

void Meeting::meet() {
  const std::uint32_t round = ++rounds_;
  if (page_->arrived.fetch_add(1) + 1 == round * size_) {
    page_->round.store(round);
    wake_all(page_->round);
  }
  wait_asleep(round);
}

void Meeting::wait_asleep(std::uint32_t round) {
  const auto deadline = Clock::now() + kPatience;
  for (;;) {
    check_failed();
    const std::uint32_t seen = page_->round.load();
    if (seen >= round) return;
    sleep_while(page_->round, seen);
    if (Clock::now() > deadline) {
      give_up();
      throw std::runtime_error("another rank did not come within a minute");
    }
  }
}

void Meeting::align() {
  meet();
  const std::uint32_t all = ++alignments_ * size_;
  page_->aligned.fetch_add(1);
  while (page_->aligned.load() < all) {
    check_failed();
    ::sched_yield();
  }
}

void Meeting::check_failed() const {
  if (page_->failed.load() != 0) throw std::runtime_error("another rank has given up");
}

void Meeting::give_up() {
  page_->failed.store(1);
  wake_all(page_->round);
}

void Meeting::set_verdict(bool go_on) { page_->go_on.store(go_on ? 1 : 0); }

bool Meeting::verdict() const { return page_->go_on.load() != 0; }

Meeting::Slot& Meeting::mine() { return page_->slots[rank_]; }

std::span<const Meeting::Slot> Meeting::slots() const { return {page_->slots, size_}; }

}  // namespace tern::bench
