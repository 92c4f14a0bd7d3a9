#pragma once

// What every scenario stands on: child processes that never outlive the test, a folder that goes
// with it, and waiting for a condition instead of for a time.

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace tern::e2e {

// So long a test waits before it calls something a hang; far beyond every timeout of the daemons.
inline constexpr std::chrono::seconds kPatience{60};

// True as soon as condition() is; false when patience has run out. What makes it true may show on
// `fd` first.
template <typename Condition>
bool eventually(Condition condition, std::chrono::milliseconds patience = kPatience, int fd = -1) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    pollfd entry{fd, POLLIN, 0};  // a negative one is left out
    ::poll(&entry, 1, 5);
  }
  return true;
}

// A new folder in the system's folder for such; removed with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

// How a process ended.
struct Exit {
  int status = -1;  // of exit(), or -1
  int signal = 0;   // that killed it, or 0
};

// A running program with its stdin and stdout as pipes and its stderr in a file. The kernel kills
// it with the test's process, and the destructor kills and reaps it.
class Process {
 public:
  Process() noexcept = default;
  // An unusable process (pid() is 0) if it cannot be started. `user` other than root's: the process
  // is that user's from its first instruction, for which the test must be root. He need not be able
  // to search the way to the program.
  Process(const std::string& program, const std::vector<std::string>& arguments,
          const std::string& stderr_path, uid_t user = 0);
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();

  pid_t pid() const noexcept { return pid_; }
  void signal(int number) const noexcept;
  // Its end, once; nothing if it still runs when patience has run out.
  std::optional<Exit> wait_exit(std::chrono::milliseconds patience = kPatience);
  // SIGKILL, and reaps it.
  void kill() noexcept;

  bool write_line(std::string_view line);
  // The next line of its stdout without the line's end; nothing at its end or when patience is out.
  std::optional<std::string> read_line(std::chrono::milliseconds patience = kPatience);
  void close_stdin() noexcept { in_.reset(); }

 private:
  pid_t pid_ = 0;  // 0: never started, or reaped
  Fd in_, out_;
  std::string buffer_;
};

// What a process holds of the kernel.
struct Holdings {
  std::size_t descriptors = 0;
  std::size_t segments = 0;  // mapped memfds: the memory shared with clients
  auto operator<=>(const Holdings&) const = default;
};
Holdings holdings_of(pid_t pid);
// What each of its descriptors is, a line each, for the report of a failed test.
std::string descriptors_text(pid_t pid);

// The last bytes of a file, for the report of a failed test.
std::string tail_of(const std::string& path, std::size_t bytes = 6000);

}  // namespace tern::e2e
