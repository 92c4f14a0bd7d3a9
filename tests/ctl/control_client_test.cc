#include "ctl/control_client.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "base/fd.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

// The number of the system call in which a thread of this process sleeps, if it does.
std::optional<long> sleeps_in(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/syscall");
  long number = -1;
  return file >> number && number >= 0 ? std::optional(number) : std::nullopt;
}

// A daemon's socket, in whose backlog is one place; somebody has taken it.
class FullBacklog : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/tern_control_client_XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
    path_ = directory_ + "/control.sock";
    address_.sun_family = AF_UNIX;
    std::copy(path_.begin(), path_.end(), address_.sun_path);
    listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(listener_.get(), generic(), sizeof address_), 0);
    ASSERT_EQ(::listen(listener_.get(), 0), 0);
    ASSERT_EQ(connect(first_), 0);
    Fd second;
    ASSERT_EQ(connect(second), EAGAIN) << "there is room";
  }

  void TearDown() override {
    ::unlink(path_.c_str());
    ::rmdir(directory_.c_str());
  }

  const sockaddr* generic() const {
    const void* const bytes = &address_;
    return static_cast<const sockaddr*>(bytes);
  }

  int connect(Fd& fd) const {
    fd = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    return ::connect(fd.get(), generic(), sizeof address_) == 0 ? 0 : errno;
  }

  Fd accept() const { return Fd(::accept(listener_.get(), nullptr, nullptr)); }

  std::string directory_, path_;
  sockaddr_un address_{};
  Fd listener_, first_;
};

// There the kernel gives him the place that becomes free, however many come after him.
TEST_F(FullBacklog, IsWhereAClientWaitsInTheKernelsQueue) {
  std::atomic<pid_t> thread{0};
  Result<json> answer = fail(Errc::internal, "none yet");
  std::thread client([&] {
    thread = ::gettid();
    answer = ask_daemon(path_, "version", json::object(), std::chrono::seconds(20));
  });
  std::optional<long> sleeps;
  while (!sleeps || *sleeps == SYS_futex) {
    if (thread != 0) sleeps = sleeps_in(thread);
  }
  EXPECT_EQ(*sleeps, SYS_connect);
  accept();
  const Fd served = accept();
  std::array<char, 4096> request;
  EXPECT_GT(::recv(served.get(), request.data(), request.size(), 0), 0);
  const std::string line = R"({"v":1,"id":1,"ok":true,"result":{"version":"1"}})"
                           "\n";
  EXPECT_EQ(::send(served.get(), line.data(), line.size(), MSG_NOSIGNAL), std::ssize(line));
  client.join();
  ASSERT_TRUE(answer) << answer.error().text;
  EXPECT_EQ((*answer)["version"], "1");
}

TEST_F(FullBacklog, IsAskedAlsoForWhatIsNoText) {
  accept();
  Fd served;
  std::string asked;
  std::thread daemon([&] {
    while (!served) served = accept();
    std::array<char, 4096> request;
    const ssize_t bytes = ::recv(served.get(), request.data(), request.size(), 0);
    asked.assign(request.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    served.reset();
  });
  const auto answer = ask_daemon(path_, "explain", {{"tensor", "\xff"}}, std::chrono::seconds(60));
  daemon.join();
  EXPECT_FALSE(answer);
  EXPECT_TRUE(json::parse(asked, nullptr, false).is_object()) << asked;
}

TEST_F(FullBacklog, IsWaitedForNoLongerThanTheClientLikes) {
  for (const int ms : {0, 20}) {
    const auto answer = ask_daemon(path_, "version", json::object(), std::chrono::milliseconds(ms));
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, Errc::timeout);
  }
}

}  // namespace
}  // namespace tern::ctl
