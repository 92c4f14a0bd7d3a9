#include "tests/ctl/run_program.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/fd.h"

namespace tern::ctl {
namespace {

constexpr int kCannotRun = 126;
constexpr unsigned kNobody = 65'534;

struct Pipe {
  Fd read;
  Fd write;
};

bool open_pipe(Pipe& pipe) {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) return false;
  pipe.read.reset(fds[0]);
  pipe.write.reset(fds[1]);
  return true;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The program is a descriptor that was opened before, because nobody may not search the way to it.
struct Child {
  int program;
  const Pipe& out;
  const Pipe& err;
  bool as_nobody;
};

// The child's part, between fork and exec: system calls only.
[[noreturn]] void become(const Child& child, char* const* argv, char* const* environment) {
  const bool redirected = ::dup2(child.out.write.get(), STDOUT_FILENO) >= 0 &&
                          ::dup2(child.err.write.get(), STDERR_FILENO) >= 0;
  const bool has_user = !child.as_nobody || (::setgroups(0, nullptr) == 0 &&
                                             ::setresgid(kNobody, kNobody, kNobody) == 0 &&
                                             ::setresuid(kNobody, kNobody, kNobody) == 0);
  if (redirected && has_user) ::fexecve(child.program, argv, environment);
  ::_exit(kCannotRun);
}

void drain(Pipe& out, Pipe& err, ProgramResult& result) {
  std::array<pollfd, 2> entries{{{out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}}};
  const std::array<std::string*, 2> texts{&result.out, &result.err};
  std::array<char, 4'096> buffer;
  while (entries[0].fd >= 0 || entries[1].fd >= 0) {
    if (::poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) return;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].fd < 0 || entries[i].revents == 0) continue;
      const ssize_t count = ::read(entries[i].fd, buffer.data(), buffer.size());
      if (count > 0) {
        texts[i]->append(buffer.data(), static_cast<std::size_t>(count));
      } else {
        entries[i].fd = -1;
      }
    }
  }
}

}  // namespace

ProgramResult run_program(const std::string& path, const std::vector<std::string>& arguments,
                          const ProgramOptions& options) {
  ProgramResult result;
  Pipe out;
  Pipe err;
  const Fd program(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!program || !open_pipe(out) || !open_pipe(err)) return result;
  std::vector<std::string> argv_texts{path};
  argv_texts.insert(argv_texts.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment_texts = options.environment;
  const auto argv = pointers_to(argv_texts);
  const auto environment = pointers_to(environment_texts);

  const pid_t child = ::fork();
  if (child < 0) return result;
  if (child == 0) {
    become({program.get(), out, err, options.as_nobody}, argv.data(), environment.data());
  }
  out.write.reset();
  err.write.reset();
  drain(out, err, result);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return result;
  }
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

}  // namespace tern::ctl
