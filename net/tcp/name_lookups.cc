#include "net/tcp/name_lookups.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace tern::net {
namespace {

NameLookups::Answer ask_system(const std::string& name) {
  NameLookups::Answer answer;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const int rc = ::getaddrinfo(name.c_str(), nullptr, &hints, &first);
  if (rc != 0) {
    answer.trouble = rc == EAI_SYSTEM ? std::generic_category().message(errno) : ::gai_strerror(rc);
    return answer;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(first, &::freeaddrinfo);
  for (const addrinfo* one = first; one != nullptr; one = one->ai_next) {
    boost::asio::ip::tcp::endpoint endpoint;
    if (one->ai_addrlen > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), one->ai_addr, one->ai_addrlen);
    endpoint.resize(one->ai_addrlen);
    answer.addresses.push_back(endpoint.address());
  }
  if (answer.addresses.empty()) answer.trouble = "the name has no address";
  return answer;
}

bool start_detached(std::function<void()> work) {
  try {
    std::thread(std::move(work)).detach();
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

}  // namespace

// Shared with the threads and the requests, which outlive the look-ups.
class NameLookups::Shared : public std::enable_shared_from_this<Shared> {
 public:
  Shared(const Clock& clock, LookUp look_up, StartThread start)
      : clock_(clock),
        look_up_(std::move(look_up)),
        start_(start ? std::move(start) : StartThread(&start_detached)) {}

  Request ask(const std::string& name, std::uint64_t user, Answered answered) {
    const std::lock_guard lock(mutex_);
    if (const Answer* known = find(name)) {
      answered(*known);
      return {};
    }
    const std::uint64_t id = next_id_++;
    asked_.emplace(id, Asked{name, std::move(answered)});
    const char* const refusal = enqueue(user, {name, id});
    if (refusal != nullptr) {
      asked_.extract(id).mapped().answered({{}, refusal});
      return {};
    }
    return {nullptr, [self = shared_from_this(), id](void*) { self->forget(id); }};
  }

  void hasten(const std::string& name, std::uint64_t user) {
    const std::lock_guard lock(mutex_);
    if (find(name) != nullptr) return;
    const auto of = users_.find(user);
    if (of != users_.end()) drop_unneeded(of->second);
    const bool waits =
        of != users_.end() && std::any_of(of->second.waiting.begin(), of->second.waiting.end(),
                                          [&](const Wanted& one) { return one.name == name; });
    if (!waits) enqueue(user, {name, kNobody});
  }

  void end() {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    asked_.clear();
    has_work_.notify_all();
  }

 private:
  static constexpr std::uint64_t kNobody = 0;

  struct Asked {
    std::string name;
    Answered answered;
  };
  struct Wanted {
    std::string name;
    std::uint64_t id;  // of the request, or kNobody: for those who have asked by another user
  };
  struct User {
    std::deque<Wanted> waiting;
    bool busy = false;  // it is in ready_, or a thread looks up one of its names
  };
  struct Known {
    Answer answer;
    std::uint64_t until_ns;
  };

  const Answer* find(const std::string& name) const {
    const auto found = known_.find(name);
    const bool holds = found != known_.end() && clock_.now_ns() < found->second.until_ns;
    return holds ? &found->second.answer : nullptr;
  }

  void forget(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    asked_.erase(id);
  }

  // What was answered or given up since.
  void drop_unneeded(User& of) const {
    std::erase_if(of.waiting, [this](const Wanted& one) {
      return one.id == kNobody ? find(one.name) != nullptr : !asked_.contains(one.id);
    });
  }

  // Null, or why the name does not wait. Who waits has a thread, if not one that is free: without any
  // it would wait until somebody else asks.
  const char* enqueue(std::uint64_t user, Wanted wanted) {
    if (threads_ == 0 && !start_thread()) {
      return "the daemon can start no thread to look names up; give addresses";
    }
    User& of = users_[user];
    drop_unneeded(of);
    if (of.waiting.size() >= kMaxWaiting) {
      return "too many names of this user wait to be looked up; give addresses";
    }
    of.waiting.push_back(std::move(wanted));
    if (!std::exchange(of.busy, true)) {
      ready_.push_back(user);
      has_work_.notify_one();
    }
    // Also where a thread could not be had for those who came before. Where none can be had now the
    // name waits for those that there are.
    if (ready_.size() > idle_ && threads_ < kThreads) start_thread();
    return nullptr;
  }

  bool start_thread() {
    if (!start_([self = shared_from_this()] { self->work(); })) return false;
    ++threads_;
    return true;
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      has_work_.wait(lock, [this] { return ending_ || !ready_.empty(); });
      --idle_;
      if (ending_) return;
      const std::uint64_t user = ready_.front();
      ready_.pop_front();
      User& of = users_.at(user);  // stays while it is busy
      drop_unneeded(of);
      if (!of.waiting.empty()) look_up_first(lock, of);
      if (ending_) return;
      if (of.waiting.empty()) {
        users_.erase(user);
      } else {
        ready_.push_back(user);  // behind all others; this thread looks for work next
      }
    }
  }

  void look_up_first(std::unique_lock<std::mutex>& lock, User& of) {
    const std::string name = std::move(of.waiting.front().name);
    of.waiting.pop_front();
    lock.unlock();
    Answer answer = look_up_(name);
    lock.lock();
    if (ending_) return;  // and the clock may be gone
    for (auto each = asked_.begin(); each != asked_.end();) {
      if (each->second.name == name) {
        each->second.answered(answer);
        each = asked_.erase(each);
      } else {
        ++each;
      }
    }
    remember(name, std::move(answer));
  }

  void remember(const std::string& name, Answer answer) {
    const std::uint64_t kept_ns = answer.addresses.empty() ? kMissingNs : kFoundNs;
    known_[name] = {std::move(answer), clock_.now_ns() + kept_ns};
    if (known_.size() <= kMaxKnown) return;
    known_.erase(std::min_element(known_.begin(), known_.end(), [](const auto& a, const auto& b) {
      return a.second.until_ns < b.second.until_ns;
    }));
  }

  const Clock& clock_;
  const LookUp look_up_;
  const StartThread start_;
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::map<std::uint64_t, Asked> asked_;  // by id
  std::map<std::uint64_t, User> users_;   // those that are busy
  std::deque<std::uint64_t> ready_;       // those of them that no thread serves
  std::map<std::string, Known> known_;
  std::uint64_t next_id_ = kNobody + 1;
  unsigned threads_ = 0;
  unsigned idle_ = 0;
  bool ending_ = false;
};

NameLookups::NameLookups(const Clock& clock, LookUp look_up, StartThread start)
    : shared_(std::make_shared<Shared>(clock, std::move(look_up), std::move(start))) {}

NameLookups::~NameLookups() { shared_->end(); }

NameLookups& NameLookups::of_process() {
  static const SteadyClock kClock;
  static auto* const kLookups = new NameLookups(kClock, &ask_system);
  return *kLookups;
}

NameLookups::Request NameLookups::ask(const std::string& name, std::uint64_t user,
                                      Answered answered) {
  return shared_->ask(name, user, std::move(answered));
}

void NameLookups::hasten(const std::string& name, std::uint64_t user) {
  shared_->hasten(name, user);
}

}  // namespace tern::net
