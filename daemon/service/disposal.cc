#include "daemon/service/disposal.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace tern::daemon {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

constexpr std::chrono::seconds kLastWait{1};

}  // namespace

// Shared with the threads, which are detached: one that is stuck outlives the disposal.
class Disposal::Shared : public std::enable_shared_from_this<Shared> {
 public:
  void take(std::uint32_t user, Some some, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    User& of = users_[user];
    of.waiting.push_back({std::move(some), bytes});
    of.bytes += bytes;
    ++count_;
    if (!of.busy && of.waiting.size() == 1) {
      ready_.push_back(user);
      has_work_.notify_one();
    }
    // Also where a thread could not be had for those who came before.
    if (ready_.size() <= idle_ || threads_ >= kThreads) return;
    try {
      std::thread([self = shared_from_this()] { self->work(); }).detach();
      ++threads_;
    } catch (const std::system_error&) {  // no more threads now: it waits for one
    }
  }

  bool is_stuck(std::uint32_t user) const {
    const std::lock_guard lock(mutex_);
    const auto found = users_.find(user);
    if (found == users_.end()) return false;
    if (found->second.waiting.size() >= kMaxWaiting) return true;
    return found->second.busy && std::chrono::steady_clock::now() - found->second.begun >=
                                     std::chrono::nanoseconds(kStuckNs);
  }

  std::uint64_t bytes_of(std::uint32_t user) const {
    const std::lock_guard lock(mutex_);
    const auto found = users_.find(user);
    return found == users_.end() ? 0 : found->second.bytes;
  }

  std::uint64_t bytes() const {
    const std::lock_guard lock(mutex_);
    std::uint64_t all = 0;
    for (const auto& [user, of] : users_) all += of.bytes;
    return all;
  }

  std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return count_;
  }

  void end() {
    std::unique_lock lock(mutex_);
    is_done_.wait_for(lock, kLastWait, [this] { return count_ == 0; });
    ending_ = true;
    has_work_.notify_all();
    is_done_.wait_for(lock, kLastWait, [this] { return idle_ == 0; });
  }

 private:
  struct Thing {
    Some some;
    std::uint64_t bytes = 0;
  };
  struct User {
    std::deque<Thing> waiting;
    std::uint64_t bytes = 0;  // of all his things
    bool busy = false;
    SteadyTime begun;
  };

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      has_work_.wait(lock, [this] { return ending_ || !ready_.empty(); });
      --idle_;
      if (ending_) return is_done_.notify_all();
      const std::uint32_t user = ready_.front();
      ready_.pop_front();
      dispose_of_next(lock, user);
      if (count_ == 0) is_done_.notify_all();
    }
  }

  void dispose_of_next(std::unique_lock<std::mutex>& lock, std::uint32_t user) {
    User& of = users_.at(user);  // stays while it is busy
    Thing thing = std::move(of.waiting.front());
    of.waiting.pop_front();
    of.busy = true;
    of.begun = std::chrono::steady_clock::now();
    lock.unlock();
    const bool more = thing.some();
    if (!more) thing.some = nullptr;
    lock.lock();
    of.busy = false;
    if (more) {
      of.waiting.push_back(std::move(thing));
    } else {
      --count_;
      of.bytes -= thing.bytes;
    }
    if (of.waiting.empty()) {
      users_.erase(user);
    } else {
      ready_.push_back(user);  // this thread looks for work next
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable has_work_;
  std::condition_variable is_done_;
  std::map<std::uint32_t, User> users_;  // those with something that waits or is under way
  std::deque<std::uint32_t> ready_;      // those of them that no thread serves
  std::size_t count_ = 0;
  unsigned threads_ = 0;
  unsigned idle_ = 0;
  bool ending_ = false;
};

Disposal::Disposal(By by) : shared_(by == By::threads ? std::make_shared<Shared>() : nullptr) {}

Disposal::~Disposal() {
  if (shared_) shared_->end();
}

void Disposal::take(std::uint32_t user, Some some, std::uint64_t bytes) {
  if (shared_) return shared_->take(user, std::move(some), bytes);
  while (some()) {
  }
}

bool Disposal::is_stuck(std::uint32_t user) const { return shared_ && shared_->is_stuck(user); }

std::uint64_t Disposal::bytes() const { return shared_ ? shared_->bytes() : 0; }

std::uint64_t Disposal::bytes_of(std::uint32_t user) const {
  return shared_ ? shared_->bytes_of(user) : 0;
}

std::size_t Disposal::count() const { return shared_ ? shared_->count() : 0; }

}  // namespace tern::daemon
