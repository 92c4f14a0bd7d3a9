// Clients that pass descriptors whose closing takes as long as they like. With the kernel's help,
// and without it.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/passed_descriptors.h"
#include "tests/e2e/beside_a_job.h"
#include "tests/e2e/hostile_client.h"
#include "tests/lingering_socket.h"

namespace tern::e2e {
namespace {

enum class Kernel { as_it_is, older };

bool kernel_refuses() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  const Fd here(ends[0]), there(ends[1]);
  return refuse_passed_descriptors(here.get());
}

// While it is paused, none of a process's threads closes what it was sent: the last close will be
// its own.
class Paused {
 public:
  explicit Paused(Process& process) : process_(process) {
    process.signal(SIGSTOP);
    siginfo_t stopped{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(process.pid()), &stopped, WSTOPPED), 0);
  }
  Paused(const Paused&) = delete;
  Paused& operator=(const Paused&) = delete;
  ~Paused() { process_.signal(SIGCONT); }

 private:
  Process& process_;
};

// Before the daemons are started.
class OnAKernel : public ::testing::WithParamInterface<Kernel> {
 protected:
  OnAKernel() {
    if (GetParam() == Kernel::older) ::setenv("LD_PRELOAD", TERN_OLDER_KERNEL, 1);
  }
  ~OnAKernel() override { ::unsetenv("LD_PRELOAD"); }
};

class PassedDescriptors : public OnAKernel, public BesideAJob {
 protected:
  void SetUp() override {
    BesideAJob::SetUp();
    ::unsetenv("LD_PRELOAD");
  }

  void pass_to(int socket) {
    const std::string text = "{}\n";
    tests::LingeringSocket& lingering = lingering_.emplace_back();
    const Paused daemon(cluster[0].process());
    const int error =
        tests::send_descriptor(socket, lingering.fd(), std::as_bytes(std::span<const char>(text)));
    EXPECT_EQ(error, refused_ ? EPERM : 0);
    if (error == 0) lingering.close();  // the daemon has the last
  }
  void expect_service() {
    EXPECT_TRUE(cluster[0].ask("version").is_object());
    EXPECT_TRUE(HostileClient(cluster[0].socket()).hello());
  }

  const bool refused_ = GetParam() == Kernel::as_it_is && kernel_refuses();
  std::vector<tests::LingeringSocket> lingering_;
};

TEST_P(PassedDescriptors, StopNobody) {
  work_meanwhile();
  {
    HostileClient silent(cluster[0].socket());
    pass_to(silent.socket().fd());
    expect_service();

    HostileClient known(cluster[0].socket());
    ASSERT_TRUE(known.hello());
    pass_to(known.notify_fd());
    expect_service();
    pass_to(known.socket().fd());
    expect_service();
  }
  {
    const Fd control(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::snprintf(at.sun_path, sizeof at.sun_path, "%s", cluster[0].control_socket().c_str());
    ASSERT_EQ(
        ::connect(control.get(), static_cast<const sockaddr*>(static_cast<void*>(&at)), sizeof at),
        0);
    pass_to(control.get());
    expect_service();
  }
  expect_service();
  for (tests::LingeringSocket& socket : lingering_) socket.release();
}

// What a client has been sent and does not read is counted for the daemon's user by the kernel, and
// for the client's by the daemon.
TEST_P(PassedDescriptors, ThatNobodyTakesAreTheirUsers) {
  work_meanwhile();
  std::vector<shm::PacketSocket> unread;
  // The daemon refuses it when it has seen the ends of so many, none of which it waits for.
  const bool refused = eventually([&] {
    auto socket = shm::PacketSocket::connect(cluster[0].socket(), 20'000);
    if (!socket) return true;
    auto hello = shm::make_packet<shm::HelloPacket>(shm::PacketKind::hello, 1);
    hello.abi_min = hello.abi_max = wire::kShmAbi;
    hello.arena_bytes = 1 << 20;
    std::snprintf(hello.job, sizeof(hello.job), "unread");
    if (!socket->send(shm::packet_bytes(hello))) return true;
    pollfd answer{socket->fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&answer, 1, 20'000), 1);
    if ((answer.revents & POLLHUP) != 0) return true;
    ::shutdown(socket->fd(), SHUT_WR);
    unread.push_back(std::move(*socket));
    return false;
  });
  EXPECT_TRUE(refused);
  EXPECT_GE(unread.size(), 16u);
  EXPECT_TRUE(cluster[0].ask("version").is_object());
  unread.clear();
  EXPECT_TRUE(eventually([&] {
    HostileClient fresh(cluster[0].socket());
    return fresh.hello();
  }));
}

// A library that waits for an operation reads no packets, and looks whether the daemon is there.
TEST_P(PassedDescriptors, WhoIsEndedWithAnAnswerUnreadHearsOfItAndCanReadIt) {
  work_meanwhile();
  HostileClient client(cluster[0].socket());
  ASSERT_TRUE(client.hello());
  const std::string noise = "no packet";
  ASSERT_TRUE(client.socket().send(std::as_bytes(std::span<const char>(noise))));
  pollfd end{client.socket().fd(), 0, 0};
  ASSERT_EQ(::poll(&end, 1, 20'000), 1);
  EXPECT_NE(end.revents & POLLHUP, 0);
  EXPECT_TRUE(client.receive().has_value());
}

INSTANTIATE_TEST_SUITE_P(Kernels, PassedDescriptors,
                         ::testing::Values(Kernel::as_it_is, Kernel::older),
                         [](const auto& kernel) {
                           return kernel.param == Kernel::older ? "older" : "asItIs";
                         });

}  // namespace
}  // namespace tern::e2e
