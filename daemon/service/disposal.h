#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "daemon/service/nudges.h"

namespace tern::daemon {

// Seals the memory of clients, reads the logs that they name, frees what lanes kept of their
// groups, and closes and unmaps what they leave, on threads that may wait: to close a client's
// descriptor, or to seal what it punches holes into, may take as long as the client likes, to read
// a log as long as the disk does, and to free a filled arena takes a fifth of a second for each
// GiB.
//
// Each user has one thread at most, so that what is stuck is his own. Of the users whose things are
// stuck at the same time there may be kThreads; then the things of others wait for one of them.
//
// Thread: always the same one, which before the end of this takes no lock of ours: the owner of one
// is waited for as long as it gets no processor. What is given lives until it has been disposed of,
// also beyond this: at the end of the daemon what is stuck is left to the end of the process.
class Disposal {
 public:
  static constexpr unsigned kThreads = 64;
  // With so many things that wait, or with one that takes so long, a user is stuck.
  static constexpr std::size_t kMaxWaiting = 1024;
  static constexpr std::uint64_t kStuckNs = 60'000'000'000;

  // Something to dispose of. Called until it says false: nothing of it is left. Between calls its
  // user's other things have their turn, and whoever waits for what a call held, as the lock of the
  // process's mappings.
  using Some = std::function<bool()>;

  // By threads of its own, or without any: take() itself does it, for simulations.
  enum class By { threads, caller };
  explicit Disposal(By by = By::threads);
  By by() const noexcept { return shared_ ? By::threads : By::caller; }
  // Waits a second for what is left.
  ~Disposal();
  Disposal(const Disposal&) = delete;
  Disposal& operator=(const Disposal&) = delete;

  // `bytes` of memory are the user's until then.
  void take(std::uint32_t user, Some some, std::uint64_t bytes = 0);
  // What is destroyed at once.
  template <typename Thing>
  void take_whole(std::uint32_t user, Thing thing) {
    take(user, [held = std::make_shared<Thing>(std::move(thing))]() mutable {
      held.reset();
      return false;
    });
  }

  // The same of a socket over which the user may have sent descriptors.
  template <typename Socket>
  void take_socket(std::uint32_t user, Socket socket) {
    take(user, [held = std::make_shared<Socket>(std::move(socket))]() mutable {
      const Nudges nudges;
      held.reset();
      return false;
    });
  }

  // The user may leave nothing more: what he has left is not disposed of.
  bool is_stuck(std::uint32_t user) const;
  // How much memory of the user waits to be freed.
  std::uint64_t bytes_of(std::uint32_t user) const;
  // Of all users.
  std::uint64_t bytes() const;
  // How many things wait or are under way.
  std::size_t count() const;

 private:
  class Shared;

  std::shared_ptr<Shared> shared_;
};

}  // namespace tern::daemon
