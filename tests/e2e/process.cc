#include "tests/e2e/process.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

namespace tern::e2e {
namespace {

constexpr int kCannotRun = 126;

struct Pipe {
  Fd read, write;
};

bool open_pipe(Pipe& pipe) {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) return false;
  pipe.read.reset(fds[0]);
  pipe.write.reset(fds[1]);
  return true;
}

struct Child {
  int program;
  const Pipe& in;
  const Pipe& out;
  int err;  // negative: the test's own
  uid_t user;
};

// The child's part, between fork and exec: system calls only.
[[noreturn]] void become(pid_t parent, const Child& child, char* const* argv) {
  if (child.user != 0 &&
      (::setgroups(0, nullptr) != 0 || ::setresgid(child.user, child.user, child.user) != 0 ||
       ::setresuid(child.user, child.user, child.user) != 0)) {
    ::_exit(kCannotRun);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // which a change of user takes away
  // Another one: the test died before the line above. None: it is in another PID namespace.
  const pid_t now = ::getppid();
  if (now != parent && now != 0) ::_exit(kCannotRun);
  ::dup2(child.in.read.get(), STDIN_FILENO);
  ::dup2(child.out.write.get(), STDOUT_FILENO);
  if (child.err >= 0) ::dup2(child.err, STDERR_FILENO);
  if (child.user != 0) ::fexecve(child.program, argv, environ);
  ::execv(argv[0], argv);
  ::_exit(kCannotRun);
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "tern-e2e-XXXXXX").string();
  if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Process::Process(const std::string& program, const std::vector<std::string>& arguments,
                 const std::string& stderr_path, uid_t user) {
  std::vector<std::string> texts{program};
  texts.insert(texts.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(texts.size() + 1);
  for (auto& text : texts) argv.push_back(text.data());
  argv.push_back(nullptr);
  Pipe in, out;
  const Fd executable(::open(program.c_str(), O_RDONLY | O_CLOEXEC));
  if (!executable || !open_pipe(in) || !open_pipe(out)) return;
  const Fd err(::open(stderr_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return;
  if (child == 0) become(parent, {executable.get(), in, out, err.get(), user}, argv.data());
  pid_ = child;
  in_ = std::move(in.write);
  out_ = std::move(out.read);
}

Process::Process(Process&& other) noexcept { *this = std::move(other); }

Process& Process::operator=(Process&& other) noexcept {
  if (this == &other) return *this;
  kill();
  pid_ = std::exchange(other.pid_, 0);
  in_ = std::move(other.in_);
  out_ = std::move(other.out_);
  buffer_ = std::move(other.buffer_);
  return *this;
}

Process::~Process() { kill(); }

void Process::signal(int number) const noexcept {
  if (pid_ != 0) ::kill(pid_, number);
}

std::optional<Exit> Process::wait_exit(std::chrono::milliseconds patience) {
  if (pid_ == 0) return std::nullopt;
  int status = 0;
  if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, patience)) {
    return std::nullopt;
  }
  pid_ = 0;
  Exit exit;
  if (WIFEXITED(status)) exit.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
  return exit;
}

void Process::kill() noexcept {
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
}

bool Process::write_line(std::string_view line) {
  std::string text(line);
  text += '\n';
  // A reader that has died is an answer, not a reason to die.
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  const ssize_t count = ::write(in_.get(), text.data(), text.size());
  ::sigaction(SIGPIPE, &before, nullptr);
  return count == static_cast<ssize_t>(text.size());
}

std::optional<std::string> Process::read_line(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    if (const auto end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0 || !out_) return std::nullopt;
    pollfd entry{out_.get(), POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(left.count())) <= 0) continue;
    std::array<char, 4096> bytes;
    const ssize_t count = ::read(out_.get(), bytes.data(), bytes.size());
    if (count <= 0) return std::nullopt;
    buffer_.append(bytes.data(), static_cast<std::size_t>(count));
  }
}

Holdings holdings_of(pid_t pid) {
  Holdings holdings;
  const std::string proc = "/proc/" + std::to_string(pid);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(proc + "/fd", error)) {
    static_cast<void>(entry);
    ++holdings.descriptors;
  }
  std::ifstream maps(proc + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:") != std::string::npos) ++holdings.segments;
  }
  return holdings;
}

std::string descriptors_text(pid_t pid) {
  std::string text;
  std::error_code error;
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const auto name = entry.path().filename().string();
    text += name + " " + std::filesystem::read_symlink(entry.path(), error).string() + "\n";
  }
  return text;
}

std::string tail_of(const std::string& path, std::size_t bytes) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return text.size() > bytes ? text.substr(text.size() - bytes) : text;
}

}  // namespace tern::e2e
