// Daemons in a PID namespace of their own, as in a container, and ranks outside of it: the kernel
// cannot tell the daemons who their clients are, and there is no pidfd that shows a death.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>

#include "base/fd.h"
#include "tests/e2e/rank_process.h"

namespace tern::e2e {
namespace {

using ::testing::HasSubstr;

// What this process starts while it lives is in a new PID namespace.
class NewPidNamespace {
 public:
  NewPidNamespace()
      : own_(::open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC)),
        made_(own_ && ::unshare(CLONE_NEWPID) == 0) {}
  NewPidNamespace(const NewPidNamespace&) = delete;
  NewPidNamespace& operator=(const NewPidNamespace&) = delete;
  ~NewPidNamespace() {
    if (made_) {
      EXPECT_EQ(::setns(own_.get(), CLONE_NEWPID), 0) << std::strerror(errno);
    }
  }
  bool made() const noexcept { return made_; }

 private:
  Fd own_;
  bool made_;
};

class Containers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can make a PID namespace";
    {
      const NewPidNamespace inside;
      if (!inside.made()) GTEST_SKIP() << "no PID namespaces here: " << std::strerror(errno);
      init = Process("/usr/bin/sleep", {"infinity"}, "/dev/null");
      cluster = std::make_unique<Cluster>(2);
    }
    ASSERT_TRUE(cluster->running());
    ranks = Ranks(*cluster, {2, 1});
    ASSERT_EQ(ranks.join(), "");
  }
  DaemonProcess& node(std::size_t index) { return (*cluster)[index]; }

  // The first process of a namespace ends when all others have been reaped, so it is the last to
  // go.
  Process init;
  std::unique_ptr<Cluster> cluster;
  Ranks ranks;
};

TEST_F(Containers, ARankOutsideIsLostWithItsSocket) {
  const auto clients = node(0).ask("clients");
  ASSERT_EQ(clients.size(), 2u);
  for (const auto& client : clients) EXPECT_EQ(client.value("pid", -1), 0) << client;
  const Holdings before = node(0).holdings();
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=60 tensors=2")), "");

  const std::int64_t done = node(0).counter("ops_completed");
  ranks.tell_all("stream group=g ops=0 tensors=2");
  ASSERT_TRUE(eventually([&] { return node(0).counter("ops_completed") > done + 20; }));
  ranks[1].process().kill();
  for (const std::size_t rank : {0u, 2u}) {
    const Reply reply = ranks[rank].reply();
    EXPECT_EQ(reply.code, TERN_ERR_RANK_LOST) << reply;
    EXPECT_THAT(reply.text, HasSubstr("lost rank 1"));
  }
  EXPECT_TRUE(eventually([&] { return node(0).ask("clients").size() == 1; }));
  EXPECT_EQ(node(0).counter("clients_lost"), 1);
  EXPECT_TRUE(eventually([&] { return node(0).holdings().segments < before.segments; }));

  // And it works again.
  for (const std::size_t rank : {0u, 2u}) ASSERT_TRUE(ranks[rank].ask("leave group=g").ok());
  ranks.replace(1, *cluster, 0);
  ASSERT_EQ(ranks.rejoin(), "");
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=60 tensors=2")), "");
}

// A forked child that keeps the socket keeps the rank alive here: nothing else shows the death.
TEST_F(Containers, TheSocketAloneDecides) {
  const Reply forked = ranks[2].ask("fork");
  const std::string child = forked.field("child");
  ASSERT_FALSE(child.empty()) << forked;
  ::kill(ranks[2].process().pid(), SIGKILL);
  ASSERT_TRUE(ranks[2].process().wait_exit());
  EXPECT_TRUE(ranks[0].ask("submit op=x group=g count=1000").ok());
  EXPECT_EQ(ranks[0].ask("wait op=x ms=300").code, TERN_ERR_TIMEOUT);
  EXPECT_EQ(node(1).counter("clients_lost"), 0);
  ::kill(std::stoi(child), SIGKILL);
  EXPECT_TRUE(eventually([&] { return node(1).counter("clients_lost") == 1; }));
  const Reply ended = ranks[0].ask("wait op=x");
  EXPECT_EQ(ended.code, TERN_ERR_RANK_LOST) << ended;
  EXPECT_THAT(ended.text, HasSubstr("lost rank 2"));
}

}  // namespace
}  // namespace tern::e2e
