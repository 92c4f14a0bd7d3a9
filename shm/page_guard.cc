#include "shm/page_guard.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <mutex>

namespace tern::shm {
namespace {

// What takes the place of a page, and of those around it: a codec goes through many pages before a
// lane looks whether one was replaced, and each piece costs a mapping of the few that a process may
// have.
constexpr std::size_t kSpareBytes = 64 << 10;

std::atomic<PageGuard::Watch*> watches{nullptr};  // grows at its front
std::mutex watches_lock;                          // not the handler's: of who takes and gives back
struct sigaction before_us;

// A mapping that is watched, as it was at one moment.
struct Watched {
  PageGuard::Watch* watch = nullptr;
  std::uintptr_t begin = 0, end = 0;
};

// Begin and end of a watch that is made, changed or given back just now may be of different
// mappings. Nobody uses the memory of such a one yet, or any more: it is not the one sought.
Watched watched_at(std::uintptr_t address) noexcept {
  for (auto* watch = watches.load(std::memory_order_acquire); watch; watch = watch->next) {
    const std::uint32_t version = watch->version.load(std::memory_order_acquire);
    const Watched one{watch, watch->begin.load(std::memory_order_acquire),
                      watch->end.load(std::memory_order_acquire)};
    if (version % 2 != 0 || watch->version.load(std::memory_order_relaxed) != version) continue;
    if (address >= one.begin && address < one.end) return one;
  }
  return {};
}

// REQUIRES: one at a time for each watch.
void watch_over(PageGuard::Watch& watch, std::uintptr_t begin, std::uintptr_t end) noexcept {
  watch.version.fetch_add(1, std::memory_order_acq_rel);
  watch.begin.store(begin, std::memory_order_release);
  watch.end.store(end, std::memory_order_release);
  watch.version.fetch_add(1, std::memory_order_release);
}

// The spare memory is seen in one more place: for shared memory and an old size of 0, mremap()
// leaves the old mapping where it is.
bool put_spare(const Watched& one, std::uintptr_t address) noexcept {
  const std::uintptr_t at = one.begin + (address - one.begin) / kSpareBytes * kSpareBytes;
  const std::size_t bytes = std::min<std::size_t>(kSpareBytes, one.end - at);
  one.watch->replaced.store(true, std::memory_order_relaxed);
  return ::mremap(one.watch->spare, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                  reinterpret_cast<void*>(at)) != MAP_FAILED;
}

void on_bus_error(int, siginfo_t* info, void*) {
  const int error = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const Watched one = watched_at(address);
  // Back where it happened it happens again, and is the other handler's.
  if (one.watch == nullptr || !put_spare(one, address)) ::sigaction(SIGBUS, &before_us, nullptr);
  errno = error;
}

void install_handler() {
  struct sigaction ours {};
  ours.sa_sigaction = &on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGBUS, &ours, &before_us);
}

// A watch that nobody has. REQUIRES: watches_lock.
PageGuard::Watch* take_watch() {
  for (auto* watch = watches.load(std::memory_order_relaxed); watch; watch = watch->next) {
    if (!watch->is_taken) return watch;
  }
  auto* const made = new PageGuard::Watch;
  made->next = watches.load(std::memory_order_relaxed);
  watches.store(made, std::memory_order_release);
  return made;
}

}  // namespace

Result<PageGuard> PageGuard::over(std::span<std::byte> mapping) {
  static std::once_flag installed;
  std::call_once(installed, install_handler);
  void* const spare = ::mmap(nullptr, kSpareBytes, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (spare == MAP_FAILED) {
    return fail(Errc::out_of_memory, "there is no memory left to guard a segment");
  }
  const std::scoped_lock lock(watches_lock);
  Watch* const watch = take_watch();
  watch->is_taken = true;
  watch->spare = spare;
  watch->replaced.store(false, std::memory_order_relaxed);
  const auto begin = reinterpret_cast<std::uintptr_t>(mapping.data());
  watch_over(*watch, begin, begin + mapping.size());
  return PageGuard(watch);
}

void PageGuard::shrink(std::uint64_t bytes) noexcept {
  if (watch_ == nullptr) return;
  const std::uintptr_t begin = watch_->begin.load(std::memory_order_relaxed);
  watch_over(*watch_, begin, begin + bytes);
}

PageGuard::~PageGuard() {
  if (watch_ == nullptr) return;
  const std::scoped_lock lock(watches_lock);
  watch_over(*watch_, 0, 0);
  ::munmap(watch_->spare, kSpareBytes);
  watch_->spare = nullptr;
  watch_->is_taken = false;
}

}  // namespace tern::shm
