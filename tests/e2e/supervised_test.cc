// The daemon under a supervisor that speaks systemd's protocols; here the test is one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/e2e/cluster.h"

namespace tern::e2e {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// The end of the notification socket that systemd would have. Daemons started while it lives use
// it.
class Notifications {
 public:
  Notifications() : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const std::string path = folder_.path() + "/notify";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
    ::setenv("WATCHDOG_USEC", "4000000", 1);
  }
  ~Notifications() {
    ::unsetenv("NOTIFY_SOCKET");
    ::unsetenv("WATCHDOG_USEC");
  }

  // The next one; empty if none comes.
  std::string next() {
    pollfd readable{fd_.get(), POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) != 1) {
      return "";
    }
    return take();
  }
  // The next one that begins with `text`.
  std::string next_with(std::string_view text) {
    std::string heard;
    do {
      heard = next();
    } while (!heard.empty() && !heard.starts_with(text));
    return heard;
  }
  // What has come and was not read.
  std::string take() {
    std::array<char, 2048> text{};
    const auto got = ::recv(fd_.get(), text.data(), text.size(), MSG_DONTWAIT);
    return got > 0 ? std::string(text.data(), static_cast<std::size_t>(got)) : "";
  }

 private:
  TemporaryFolder folder_;
  Fd fd_;
};

pid_t thread_named(pid_t process, const std::string& name) {
  const auto tasks = "/proc/" + std::to_string(process) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::string comm;
    std::ifstream(task.path() / "comm") >> comm;
    if (comm == name) return std::atoi(task.path().filename().c_str());
  }
  return 0;
}

// One thread of a child stands still while this lives, as if it hung.
class HeldThread {
 public:
  explicit HeldThread(pid_t thread) : thread_(thread) {
    held_ = ::ptrace(PTRACE_SEIZE, thread_, nullptr, nullptr) == 0 &&
            ::ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr) == 0 &&
            ::waitpid(thread_, nullptr, __WALL) == thread_;
  }
  ~HeldThread() { ::ptrace(PTRACE_DETACH, thread_, nullptr, nullptr); }
  bool held() const noexcept { return held_; }

 private:
  pid_t thread_;
  bool held_ = false;
};

TEST(Supervised, HearsThatItIsReadyWhenTheSocketsListenAndOfItsEnd) {
  Notifications notifications;
  Cluster cluster(1);
  ASSERT_TRUE(cluster.running());
  const std::string ready = notifications.next();
  EXPECT_THAT(ready, StartsWith("READY=1\nSTATUS=0 clients, 0 groups, 0 peers; listens on "));
  EXPECT_THAT(ready, HasSubstr(cluster[0].address()));
  cluster[0].process().signal(SIGTERM);
  EXPECT_THAT(notifications.next_with("STOPPING=1"), HasSubstr("STATUS="));
}

TEST(Supervised, HearsOfAReloadFromItsBeginningToItsEnd) {
  Notifications notifications;
  TemporaryFolder folder;
  const std::string config = folder.path() + "/ternd.toml";
  std::ofstream(config) << "[lanes]\n";
  Cluster cluster(1, {"--config", config});
  ASSERT_TRUE(cluster.running());
  ASSERT_NE(notifications.next_with("READY=1"), "");
  std::ofstream(config) << "[lanes]\nlanes = 3\n";
  cluster[0].process().signal(SIGHUP);
  EXPECT_THAT(notifications.next_with("RELOADING=1"), HasSubstr("\nMONOTONIC_USEC="));
  EXPECT_THAT(notifications.next_with("READY=1"),
              HasSubstr("until a restart without effect: lanes"));
  EXPECT_EQ(cluster[0].ask("status")["waiting_settings"], nlohmann::json{"lanes"});
}

TEST(Supervised, FeedsTheWatchdogOnlyWhileEveryLaneAnswers) {
  Notifications notifications;
  Cluster cluster(1, {"--lanes", "2"});
  ASSERT_TRUE(cluster.running());
  // Lanes without work sleep, and still answer.
  for (int i = 0; i < 3; ++i) ASSERT_NE(notifications.next_with("WATCHDOG=1"), "");
  EXPECT_EQ(cluster[0].ask("status")["silent_lanes"], nlohmann::json::array());
  {
    const HeldThread lane(thread_named(cluster[0].pid(), "tern-lane1"));
    ASSERT_TRUE(lane.held());
    // The conductor goes on, and says which lane it misses.
    EXPECT_THAT(notifications.next_with("STATUS="), HasSubstr("silent lanes: 1"));
    EXPECT_EQ(cluster[0].ask("status")["silent_lanes"], nlohmann::json{1});
    // Silent for half of the watchdog's time, it has not been fed since.
    EXPECT_EQ(notifications.take(), "");
  }
  EXPECT_NE(notifications.next_with("WATCHDOG=1"), "");
  EXPECT_TRUE(eventually(
      [&] { return cluster[0].ask("status")["silent_lanes"] == nlohmann::json::array(); }));
}

}  // namespace
}  // namespace tern::e2e
