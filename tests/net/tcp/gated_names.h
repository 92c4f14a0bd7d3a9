#pragma once

// A name server for tests: names that begin with "slow" are answered when the test says so,
// "missing" is none, and all others are this machine.

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "net/tcp/name_lookups.h"

namespace tern::net {

// Shared with the look-up's threads, which may outlive the test.
class GatedNames {
 public:
  NameLookups::Answer look_up(const std::string& name) {
    std::unique_lock lock(mutex_);
    ++begun_[name];
    changed_.notify_all();
    if (is_slow(name)) {
      most_slow_ = std::max(most_slow_, ++slow_);
      changed_.wait(lock, [&] { return is_open_ || let_.contains(name); });
      --slow_;
    }
    if (name == "missing") return {{}, "no such name"};
    return {{boost::asio::ip::address_v4::loopback()}, {}};
  }

  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void let(const std::string& name) {
    const std::lock_guard lock(mutex_);
    let_.insert(name);
    changed_.notify_all();
  }
  // Until the look-up of this name has begun.
  void wait_for(const std::string& name) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_.contains(name); });
  }
  int times(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = begun_.find(name);
    return found == begun_.end() ? 0 : found->second;
  }
  int most_slow_at_once() {
    const std::lock_guard lock(mutex_);
    return most_slow_;
  }

 private:
  static bool is_slow(const std::string& name) { return name.rfind("slow", 0) == 0; }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, int> begun_;
  std::set<std::string> let_;
  int slow_ = 0, most_slow_ = 0;
  bool is_open_ = false;
};

}  // namespace tern::net
