// `ternctl top` on a terminal: it takes the screen, and gives it back however it ends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/fd.h"
#include "daemon/control/control_server.h"

namespace tern::ctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class DaemonWithOneTensor final : public daemon::ControlVerbs {
 public:
  Result<json> handle(std::string_view verb, const json&, const daemon::Credentials&) override {
    if (verb == "status") return json{{"lanes", 2}, {"version", "9.9.9"}};
    if (verb == "counters") return json{{"blocks", {{"lanes", {1, 2}}}}};
    if (verb == "tensors") return json{{{"group", "ab12cd34"}, {"name", "embedding"}}};
    return json::array();
  }
};

class TopOnATerminal : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/tern_top_XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
    daemon::ControlOptions options;
    options.path = directory_ + "/control.sock";
    auto server = daemon::ControlServer::create(io_, options, daemon_, disposal_);
    ASSERT_TRUE(server) << server.error().text;
    server_ = *std::move(server);
    thread_ = std::thread([this] { io_.run(); });
    start(options.path);
  }

  void TearDown() override {
    if (child_ > 0) ::kill(child_, SIGKILL);
    if (child_ > 0) ::waitpid(child_, nullptr, 0);
    io_.stop();
    thread_.join();
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  void start(const std::string& socket) {
    int master = -1;
    int slave = -1;
    const winsize size{10, 60, 0, 0};
    ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, &size), 0);
    terminal_ = Fd(master);
    other_end_ = Fd(slave);
    ASSERT_EQ(::tcgetattr(slave, &before_), 0);
    child_ = ::fork();
    ASSERT_GE(child_, 0);
    if (child_ != 0) return;
    ::login_tty(slave);
    ::execl(TERN_TERNCTL, "ternctl", "--socket", socket.c_str(), "top", "--interval", "0.05",
            static_cast<char*>(nullptr));
    ::_exit(127);
  }

  // Reads what is written to the screen until `text` has been there; false after half a minute.
  bool sees(const std::string& text) {
    while (screen_.find(text) == std::string::npos) {
      pollfd entry{terminal_.get(), POLLIN, 0};
      std::array<char, 4096> piece{};
      if (::poll(&entry, 1, 30'000) <= 0) return false;
      const ssize_t count = ::read(terminal_.get(), piece.data(), piece.size());
      if (count <= 0) return false;
      screen_.append(piece.data(), static_cast<std::size_t>(count));
    }
    return true;
  }
  void press(char key) { ASSERT_EQ(::write(terminal_.get(), &key, 1), 1); }

  // Ended by itself, and the terminal is what it was.
  void expect_orderly_end() {
    EXPECT_TRUE(sees("\x1b[?25h\x1b[?1049l"));
    int status = 0;
    ASSERT_EQ(::waitpid(child_, &status, 0), child_);
    child_ = -1;
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    termios after{};
    ASSERT_EQ(::tcgetattr(other_end_.get(), &after), 0);
    EXPECT_EQ(after.c_lflag, before_.c_lflag);
  }

  std::string directory_;
  DaemonWithOneTensor daemon_;
  daemon::Disposal disposal_;
  boost::asio::io_context io_;
  std::unique_ptr<daemon::ControlServer> server_;
  std::thread thread_;
  Fd terminal_, other_end_;
  termios before_{};
  pid_t child_ = -1;
  std::string screen_;
};

TEST_F(TopOnATerminal, ShowsViewsByKeysAndEndsWithQ) {
  ASSERT_TRUE(sees("ternd 9.9.9"));
  EXPECT_THAT(screen_, HasSubstr("\x1b[?1049h"));
  ASSERT_TRUE(sees("jobs, by sent_s"));
  termios during{};
  ASSERT_EQ(::tcgetattr(other_end_.get(), &during), 0);
  EXPECT_EQ(during.c_lflag & (ICANON | ECHO), 0u);
  press('t');
  ASSERT_TRUE(sees("embedding"));
  press('l');
  ASSERT_TRUE(sees("lanes, by lane"));
  press('>');
  ASSERT_TRUE(sees("lanes, by busy"));
  press('q');
  expect_orderly_end();
}

TEST_F(TopOnATerminal, FollowsTheSizeOfTheWindow) {
  ASSERT_TRUE(sees("q quit   j jobs   t tensors   p peers   l lanes"));
  EXPECT_EQ(screen_.find("by another column"), std::string::npos);  // beyond 60 columns
  const winsize size{20, 120, 0, 0};
  ASSERT_EQ(::ioctl(terminal_.get(), TIOCSWINSZ, &size), 0);
  EXPECT_TRUE(sees("by another column"));
  press('q');
  expect_orderly_end();
}

TEST_F(TopOnATerminal, GivesTheTerminalBackWhenItIsTerminated) {
  ASSERT_TRUE(sees("ternd 9.9.9"));
  ::kill(child_, SIGTERM);
  expect_orderly_end();
}

TEST_F(TopOnATerminal, SaysThatTheDaemonIsGoneAndGoesOn) {
  ASSERT_TRUE(sees("ternd 9.9.9"));
  io_.stop();
  thread_.join();
  server_.reset();
  EXPECT_TRUE(sees("no ternd answers"));
  thread_ = std::thread([] {});
  press('q');
  expect_orderly_end();
}

}  // namespace
}  // namespace tern::ctl
