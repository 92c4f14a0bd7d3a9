#pragma once

// Addresses of names. The C library's getaddrinfo takes as long as a name server likes and cannot
// be cancelled, so it runs on threads of its own, which all transports of a process share.

#include <boost/asio/ip/address.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"

namespace tern::net {

// Of each user (Endpoint::user) one look-up at most is under way, so that slow names delay their
// user alone. kThreads users may have slow names at the same time; then others wait until one of
// these look-ups has ended, and have their turn before any user's next one. Where the machine has
// no thread for this, not even one, a name is answered at once: that it cannot be looked up.
//
// Thread: any. The threads are detached: one that is stuck is waited for by nobody, and is left to
// the end of the process.
class NameLookups {
 public:
  static constexpr unsigned kThreads = 8;
  static constexpr std::size_t kMaxWaiting = 64;  // names of one user; more are refused
  // Answers are kept so long, for all users.
  static constexpr std::uint64_t kFoundNs = 30'000'000'000;
  static constexpr std::uint64_t kMissingNs = 5'000'000'000;
  static constexpr std::size_t kMaxKnown = 1024;  // in excess: what would be forgotten next goes

  struct Answer {
    std::vector<boost::asio::ip::address> addresses;
    std::string trouble;  // why there are none
  };
  using LookUp = std::function<Answer(const std::string& name)>;
  // Runs `work` on a thread of its own. False: there are no more threads now.
  using StartThread = std::function<bool(std::function<void()> work)>;
  // Called on any thread, under a lock: it only passes the answer on.
  using Answered = std::function<void(const Answer&)>;
  // While it lives the answer is wanted. Once it is destroyed, `answered` is not called any more.
  using Request = std::shared_ptr<void>;

  // The clock outlives this. Without `start` threads are detached.
  NameLookups(const Clock& clock, LookUp look_up, StartThread start = nullptr);
  // Waits for no look-up.
  ~NameLookups();
  NameLookups(const NameLookups&) = delete;
  NameLookups& operator=(const NameLookups&) = delete;

  // By getaddrinfo. Never destroyed, because a thread may be stuck in there when the process ends.
  static NameLookups& of_process();

  [[nodiscard]] Request ask(const std::string& name, std::uint64_t user, Answered answered);
  // Looks the name up in this user's turn too, whoever has asked for it.
  void hasten(const std::string& name, std::uint64_t user);

 private:
  class Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace tern::net
