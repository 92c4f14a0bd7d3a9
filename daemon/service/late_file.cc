#include "daemon/service/late_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/fd.h"
#include "daemon/service/inbox.h"

namespace tern::daemon {

// What the owner and the thread that writes have in common. One job of it waits at most.
class LateFile::Shared {
 public:
  Shared(Names names, std::string replaced, std::shared_ptr<Room> room)
      : names_(std::move(names)), replaced_(std::move(replaced)), room_(std::move(room)) {}

  // ---- The owner's ----

  // Whether a job has to be handed over.
  bool append(std::string text) {
    if (is_refused() || error() != 0) return false;
    const std::uint64_t bytes = text.size();
    if (!room_->take(bytes)) {
      is_refused_.store(true, std::memory_order_release);
      return false;
    }
    waiting_.fetch_add(bytes, std::memory_order_relaxed);
    texts_.put(std::move(text));
    return !is_handed_over_.exchange(true, std::memory_order_acq_rel);
  }
  bool finish() {
    is_finished_.store(true, std::memory_order_release);
    return !is_handed_over_.exchange(true, std::memory_order_acq_rel);
  }

  // Of the thread that writes, which writes nothing after its first.
  int error() const noexcept { return error_.load(std::memory_order_acquire); }
  bool is_refused() const noexcept { return is_refused_.load(std::memory_order_acquire); }
  bool has_begun() const noexcept { return has_begun_.load(std::memory_order_acquire); }
  bool is_done() const noexcept { return is_done_.load(std::memory_order_acquire); }
  bool is_settled() const noexcept {
    const bool is_finished = is_finished_.load(std::memory_order_acquire);
    return is_finished ? is_done() : waiting_.load(std::memory_order_acquire) == 0;
  }

  // ---- The thread's that writes ----

  void work() {
    is_handed_over_.exchange(false, std::memory_order_acq_rel);
    // First: all that was appended before is there then.
    const bool is_finished = is_finished_.load(std::memory_order_acquire);
    for (const std::string& text : texts_.take_all()) {
      if (error() == 0 && !write(text)) {
        fail(errno);
        cut();
      }
      room_->give(text.size());
      waiting_.fetch_sub(text.size(), std::memory_order_release);
    }
    if (is_finished && !is_done()) end();
  }

 private:
  void fail(int number) noexcept {
    int none = 0;
    error_.compare_exchange_strong(none, number, std::memory_order_acq_rel);
  }

  std::string unfinished() const { return replaced_ + ".new"; }

  bool open() {
    if (!replaced_.empty()) {
      file_ = Fd(::open(unfinished().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
      return static_cast<bool>(file_);
    }
    errno = EEXIST;
    for (int attempt = 1; errno == EEXIST; ++attempt) {
      const std::string path = names_(attempt);
      if (path.empty()) return false;
      file_ = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
      if (file_) return true;
    }
    return false;
  }

  bool write(std::string_view whole) {
    if (!file_ && !open()) return false;
    std::string_view text = whole;
    while (!text.empty()) {
      const ssize_t written = ::write(file_.get(), text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return false;
      text.remove_prefix(static_cast<std::size_t>(written));
    }
    whole_bytes_ += whole.size();
    has_begun_.store(true, std::memory_order_release);
    return true;
  }

  // Where there was no room, a part of the last text may lie there.
  void cut() {
    if (file_ && ::ftruncate(file_.get(), static_cast<off_t>(whole_bytes_)) != 0) {
      // It ends in the middle of a text then: the owner says that it could not be written.
    }
  }

  // Some file systems say only here that there was no room.
  bool close() {
    const int number = file_.release();
    return number < 0 || ::close(number) == 0;
  }

  void end() {
    if (error() == 0 && !file_ && !open()) fail(errno);
    if (!close() && error() == 0) fail(errno);
    if (!replaced_.empty()) {
      const bool is_whole = error() == 0 && !is_refused();
      if (is_whole && std::rename(unfinished().c_str(), replaced_.c_str()) != 0) fail(errno);
      if (!is_whole || error() != 0) std::remove(unfinished().c_str());
    }
    is_done_.store(true, std::memory_order_release);
  }

  Names names_;           // of a fresh one
  std::string replaced_;  // of a replacement
  const std::shared_ptr<Room> room_;
  Inbox<std::string> texts_;
  std::atomic<std::uint64_t> waiting_{0};  // bytes in it
  std::atomic<bool> is_handed_over_{false};
  std::atomic<bool> is_finished_{false};
  std::atomic<bool> is_refused_{false};  // of what the owner appended last
  std::atomic<int> error_{0};
  std::atomic<bool> has_begun_{false};
  std::atomic<bool> is_done_{false};
  // The writing thread's.
  Fd file_;
  std::uint64_t whole_bytes_ = 0;  // of texts that lie there whole
};

LateFile::LateFile(Disposal& writing, std::shared_ptr<Shared> shared)
    : writing_(&writing), shared_(std::move(shared)) {}

LateFile LateFile::fresh(Disposal& writing, Names names, std::shared_ptr<Room> room) {
  return {writing, std::make_shared<Shared>(std::move(names), "", std::move(room))};
}

LateFile LateFile::replacement(Disposal& writing, std::string path) {
  return {writing, std::make_shared<Shared>(nullptr, std::move(path), std::make_shared<Room>())};
}

void LateFile::hand_over() {
  writing_->take(kWriter, [shared = shared_] {
    shared->work();
    return false;
  });
}

void LateFile::append(std::string text) {
  if (shared_->append(std::move(text))) hand_over();
}

void LateFile::finish() {
  if (shared_->finish()) hand_over();
}

std::string LateFile::problem() const {
  if (const int error = shared_->error(); error != 0) return std::strerror(error);
  return shared_->is_refused() ? kDiskIsSlow : "";
}

std::function<bool()> LateFile::settled() const {
  return [shared = shared_] { return shared->is_settled(); };
}

bool LateFile::has_begun() const noexcept { return shared_->has_begun(); }
bool LateFile::is_done() const noexcept { return shared_->is_done(); }

}  // namespace tern::daemon
