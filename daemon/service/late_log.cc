#include "daemon/service/late_log.h"

#include <pthread.h>
#include <spdlog/details/log_msg_buffer.h>
#include <spdlog/formatter.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "daemon/service/log.h"

namespace tern::daemon {
namespace late_log {
namespace {

struct Line {
  Line(const spdlog::details::log_msg& one, const LogFields& fields)
      : message(one),
        job(fields.job),
        group(fields.group),
        peer(fields.peer),
        tensor(fields.tensor) {}

  std::size_t bytes() const noexcept {
    return sizeof(Line) + message.payload.size() + job.size() + group.size() + peer.size() +
           tensor.size();
  }

  spdlog::details::log_msg_buffer message;
  std::string job, group, peer, tensor;
};

}  // namespace
}  // namespace late_log

class LateLog::Shared {
 public:
  explicit Shared(spdlog::sink_ptr to) : to_(std::move(to)) {}

  spdlog::sinks::sink& to() noexcept { return *to_; }

  void put(late_log::Line line) {
    const std::size_t bytes = line.bytes();
    const std::lock_guard lock(mutex_);
    if (waiting_bytes_ + bytes > kMostWaiting) {
      ++left_out_;
    } else {
      say_left_out();
      add(std::move(line));
    }
    more_.notify_one();
  }

  void end() {
    const std::lock_guard lock(mutex_);
    is_ended_ = true;
    more_.notify_one();
  }

  bool wait_for_all(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return none_left_.wait_for(lock, patience, [this] { return is_idle(); });
  }

  // The thread's.
  void write() {
    std::unique_lock lock(mutex_);
    while (true) {
      more_.wait(lock, [this] { return is_ended_ || !is_idle(); });
      if (is_idle()) return;
      if (lines_.empty()) say_left_out();
      const late_log::Line line = std::move(lines_.front());
      lines_.pop_front();
      lock.unlock();
      write(line);
      lock.lock();
      waiting_bytes_ -= line.bytes();
      if (is_idle()) none_left_.notify_all();
    }
  }

 private:
  // Also of the line that is being written.
  bool is_idle() const noexcept { return waiting_bytes_ == 0 && left_out_ == 0; }

  void add(late_log::Line line) {
    const std::size_t bytes = line.bytes();
    lines_.push_back(std::move(line));
    waiting_bytes_ += bytes;
  }

  void say_left_out() {
    if (left_out_ == 0) return;
    const std::uint64_t missing = std::exchange(left_out_, 0);
    const std::string text = std::to_string(missing) + (missing == 1 ? " line" : " lines") +
                             " missing here: what takes the log is too slow";
    add({{"ternd", spdlog::level::warn, text}, {}});
  }

  void write(const late_log::Line& line) {
    const LogScope scope({line.job, line.group, line.peer, line.tensor});
    try {
      to_->log(line.message);
    } catch (const std::exception&) {
      // The line is lost, and there is nowhere to say so.
    }
  }

  const spdlog::sink_ptr to_;
  std::mutex mutex_;  // held for some copies at most
  std::condition_variable more_, none_left_;
  std::deque<late_log::Line> lines_;
  std::size_t waiting_bytes_ = 0;
  std::uint64_t left_out_ = 0;  // since the log has said so last
  bool is_ended_ = false;
};

LateLog::LateLog(spdlog::sink_ptr to) : shared_(std::make_shared<Shared>(std::move(to))) {
  // Nobody can join a thread that is in a write() for ever.
  std::thread([shared = shared_] {
    pthread_setname_np(pthread_self(), "tern-log");
    shared->write();
  }).detach();
}

LateLog::~LateLog() { shared_->end(); }

void LateLog::log(const spdlog::details::log_msg& message) {
  shared_->put({message, current_log_fields()});
}

bool LateLog::settle(std::chrono::milliseconds patience) { return shared_->wait_for_all(patience); }

void LateLog::set_pattern(const std::string& pattern) { shared_->to().set_pattern(pattern); }

void LateLog::set_formatter(std::unique_ptr<spdlog::formatter> formatter) {
  shared_->to().set_formatter(std::move(formatter));
}

}  // namespace tern::daemon
