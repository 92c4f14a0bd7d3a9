// A log that nobody takes: a journal that hangs, a pipe whose reader sleeps, a terminal that is
// held. The daemon goes on.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/rank_process.h"

namespace tern::e2e {
namespace {

// The daemon's stderr is a pipe without room.
class SlowLog : public ::testing::Test {
 protected:
  SlowLog() {
    const std::string node = folder_.path() + "/node", log = node + "/log";
    std::filesystem::create_directory(node);
    EXPECT_EQ(::mkfifo(log.c_str(), 0600), 0);
    reader_ = Fd(::open(log.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    const std::string filling(4096, '.');
    while (::write(reader_.get(), filling.data(), filling.size()) > 0) {
    }
    daemon_.emplace(node, std::vector<std::string>{});
  }
  // Whether what has come until now says so. Taken from the pipe, it makes room.
  bool has_read(const std::string& text) {
    char bytes[4096];
    for (ssize_t count; (count = ::read(reader_.get(), bytes, sizeof bytes)) > 0;) {
      read_.append(bytes, static_cast<std::size_t>(count));
    }
    return read_.find(text) != std::string::npos;
  }

  TemporaryFolder folder_;
  Fd reader_;
  std::string read_;
  std::optional<DaemonProcess> daemon_;
};

TEST_F(SlowLog, KeepsNobodyFromWorking) {
  ASSERT_TRUE(daemon_->running());
  RankProcess rank(*daemon_);
  ASSERT_TRUE(rank.connect().ok());
  const Reply minted = rank.ask("mint");
  ASSERT_TRUE(minted.ok()) << minted.text;
  ASSERT_TRUE(rank.ask("join group=g id=" + minted.field("id") + " rank=0 size=1").ok());
  EXPECT_TRUE(rank.ask("stream group=g ops=20").ok());
  EXPECT_TRUE(eventually([&] { return has_read("1 ranks on 1 nodes"); }));
}

TEST_F(SlowLog, DoesNotHoldUpItsEnd) {
  ASSERT_TRUE(daemon_->running());
  daemon_->process().signal(SIGTERM);
  const auto exit = daemon_->process().wait_exit();
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->status, 0);
}

}  // namespace
}  // namespace tern::e2e
