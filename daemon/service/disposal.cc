#include "daemon/service/disposal.h"

#include <semaphore.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "daemon/service/inbox.h"

namespace tern::daemon {
namespace {

constexpr std::chrono::seconds kLastWait{1};
// After parts of things that took so long together there is a pause. Without it the kernel gives
// what the parts hold to those who sleep for it only after some milliseconds (rwsem's
// RWSEM_WAIT_TIMEOUT): until then the next part is first. Parts that take no time, as of an arena
// that nobody has filled, wait for nobody.
constexpr std::int64_t kPartsNs = 400'000;
constexpr std::chrono::microseconds kPause{200};
// So many users are remembered before those are forgotten who have left nothing.
constexpr std::size_t kFewUsers = 64;

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// A post wakes one thread and waits for none. (std::counting_semaphore wakes all: of libstdc++ 12.)
class Semaphore {
 public:
  Semaphore() { ::sem_init(&semaphore_, 0, 0); }
  ~Semaphore() { ::sem_destroy(&semaphore_); }
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;
  void post() { ::sem_post(&semaphore_); }
  void wait() {
    while (::sem_wait(&semaphore_) != 0) {  // EINTR
    }
  }

 private:
  sem_t semaphore_;
};

}  // namespace

// Shared with the threads, which are detached: one that is stuck outlives the disposal. The owner
// takes no lock before the end.
class Disposal::Shared : public std::enable_shared_from_this<Shared> {
 public:
  void take(std::uint32_t number, Some some, std::uint64_t bytes) {
    const std::shared_ptr<User>& user = user_of(number);
    user->bytes.fetch_add(bytes, std::memory_order_relaxed);
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    count_.fetch_add(1, std::memory_order_relaxed);
    user->inbox.put({std::move(some), bytes});
    // Where there are others a thread serves the user, or will, and finds this one.
    if (user->things.fetch_add(1, std::memory_order_acq_rel) == 0) {
      fresh_.put(user);
      work_.post();
      const bool is_served = unasked_.fetch_sub(1, std::memory_order_relaxed) > 0;
      if (!is_served && threads_ + wanted_ < kThreads) ++wanted_;
    }
    start_wanted();
  }

  bool is_stuck(std::uint32_t number) const {
    const auto found = users_.find(number);
    if (found == users_.end()) return false;
    const User& user = *found->second;
    const std::int64_t begun_ns = user.begun_ns.load(std::memory_order_relaxed);
    const std::size_t under_way = begun_ns != 0 ? 1 : 0;
    if (user.things.load(std::memory_order_relaxed) >= kMaxWaiting + under_way) return true;
    return begun_ns != 0 && now_ns() - begun_ns >= static_cast<std::int64_t>(kStuckNs);
  }

  std::uint64_t bytes_of(std::uint32_t number) const {
    const auto found = users_.find(number);
    return found == users_.end() ? 0 : found->second->bytes.load(std::memory_order_relaxed);
  }

  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  std::size_t count() const { return count_.load(std::memory_order_acquire); }

  void end() {
    std::unique_lock lock(mutex_);
    is_done_.wait_for(lock, kLastWait, [this] { return count() == 0; });
    ending_ = true;
    for (unsigned i = 0; i < kThreads; ++i) work_.post();
    is_done_.wait_for(lock, kLastWait, [this] { return idle_ == 0; });
  }

 private:
  struct Thing {
    Some some;
    std::uint64_t bytes = 0;
  };
  struct User {
    Inbox<Thing> inbox;
    // Of the one thread that serves the user.
    std::deque<Thing> waiting;
    std::int64_t parts_ns = 0;            // of parts since the last pause
    std::atomic<std::size_t> things{0};   // those in the inbox, those that wait and that under way
    std::atomic<std::uint64_t> bytes{0};  // of all of them
    std::atomic<std::int64_t> begun_ns{0};  // that under way; 0: none is
  };

  // Those who have left nothing are no longer in use by a thread.
  const std::shared_ptr<User>& user_of(std::uint32_t number) {
    if (users_.size() >= remembered_) {
      std::erase_if(users_, [](const auto& one) {
        return one.second->things.load(std::memory_order_acquire) == 0;
      });
      remembered_ = std::max(kFewUsers, 2 * users_.size());
    }
    std::shared_ptr<User>& user = users_[number];
    if (!user) user = std::make_shared<User>();
    return user;
  }

  // Those that cannot be had now are tried for again with the next thing, whosever it is.
  void start_wanted() {
    try {
      for (; wanted_ > 0; --wanted_, ++threads_) {
        std::thread([self = shared_from_this()] { self->work(); }).detach();
      }
    } catch (const std::system_error&) {
    }
  }

  // There are always as many threads awake as users ready, or all that may be or can be had.
  void work() {
    std::unique_lock lock(mutex_);
    while (!ending_) {
      for (auto& user : fresh_.take_all()) ready_.push_back(std::move(user));
      if (ready_.empty()) {
        wait_for_work(lock);
        continue;
      }
      const std::shared_ptr<User> user = std::move(ready_.front());
      ready_.pop_front();
      lock.unlock();
      const bool has_more = dispose_of_next(*user);
      lock.lock();
      if (has_more) ready_.push_back(user);  // this thread looks for work next
      if (count() == 0) is_done_.notify_all();
    }
    is_done_.notify_all();
  }

  void wait_for_work(std::unique_lock<std::mutex>& lock) {
    ++idle_;
    lock.unlock();
    unasked_.fetch_add(1, std::memory_order_relaxed);
    work_.wait();
    lock.lock();
    --idle_;
  }

  // Whether the user has more.
  bool dispose_of_next(User& user) {
    for (Thing& one : user.inbox.take_all()) user.waiting.push_back(std::move(one));
    Thing thing = std::move(user.waiting.front());
    user.waiting.pop_front();
    const std::int64_t begun_ns = now_ns();
    user.begun_ns.store(begun_ns, std::memory_order_relaxed);
    const bool more = thing.some();
    if (!more) thing.some = nullptr;
    user.begun_ns.store(0, std::memory_order_relaxed);
    if (more) {
      user.parts_ns += now_ns() - begun_ns;
      if (user.parts_ns >= kPartsNs) {
        std::this_thread::sleep_for(kPause);
        user.parts_ns = 0;
      }
      for (Thing& one : user.inbox.take_all()) user.waiting.push_back(std::move(one));
      user.waiting.push_back(std::move(thing));
      return true;
    }
    bytes_.fetch_sub(thing.bytes, std::memory_order_relaxed);
    user.bytes.fetch_sub(thing.bytes, std::memory_order_relaxed);
    count_.fetch_sub(1, std::memory_order_acq_rel);
    // Without more the user is any other thread's from here on.
    return user.things.fetch_sub(1, std::memory_order_acq_rel) > 1;
  }

  // The owner's.
  std::map<std::uint32_t, std::shared_ptr<User>> users_;
  std::size_t remembered_ = kFewUsers;
  unsigned threads_ = 0;
  unsigned wanted_ = 0;  // threads that could not be had yet

  // From the owner to the threads.
  Inbox<std::shared_ptr<User>> fresh_;  // users who had nothing, and have something now
  Semaphore work_;
  std::atomic<int> unasked_{0};  // threads that are idle, less the users for whom none woke yet
  std::atomic<std::size_t> count_{0};
  std::atomic<std::uint64_t> bytes_{0};

  // The threads'.
  std::mutex mutex_;
  std::condition_variable is_done_;
  std::deque<std::shared_ptr<User>> ready_;  // with something that waits, and no thread serves them
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
