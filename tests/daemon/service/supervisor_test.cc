#include "daemon/service/supervisor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>

#include "shm/packet_socket.h"

namespace tern::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tern-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

Fd bound_socket(const std::string& path, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  Fd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return fd;
}

// The supervisor's end of the notification socket.
class FakeSupervisor {
 public:
  FakeSupervisor() : fd_(bound_socket(folder_.file("notify"), SOCK_DGRAM)) {
    ::setenv("NOTIFY_SOCKET", folder_.file("notify").c_str(), 1);
  }
  ~FakeSupervisor() { ::unsetenv("NOTIFY_SOCKET"); }
  // What was sent; empty if nothing was.
  std::string heard() {
    std::array<char, 1024> text{};
    const auto got = ::recv(fd_.get(), text.data(), text.size(), MSG_DONTWAIT);
    return got > 0 ? std::string(text.data(), static_cast<std::size_t>(got)) : "";
  }

 private:
  Folder folder_;
  Fd fd_;
};

TEST(Supervisor, HearsOfEveryStepOfLife) {
  FakeSupervisor outside;
  Supervisor service;
  service.ready("0 clients");
  EXPECT_EQ(outside.heard(), "READY=1\nSTATUS=0 clients");
  service.alive();
  EXPECT_EQ(outside.heard(), "WATCHDOG=1");
  service.reloading();
  const std::string reloading = outside.heard();
  EXPECT_THAT(reloading, StartsWith("RELOADING=1\nMONOTONIC_USEC="));
  EXPECT_THAT(reloading, HasSubstr("\nSTATUS=reading"));
  service.stopping();
  EXPECT_THAT(outside.heard(), StartsWith("STOPPING=1\nSTATUS="));
}

TEST(Supervisor, HearsAStatusOnlyWhenItDiffers) {
  FakeSupervisor outside;
  Supervisor service;
  service.status("1 clients");
  EXPECT_EQ(outside.heard(), "STATUS=1 clients");
  service.status("1 clients");
  EXPECT_EQ(outside.heard(), "");
  service.status("2 clients");
  EXPECT_EQ(outside.heard(), "STATUS=2 clients");
}

TEST(Supervisor, IsNotMissedWhereThereIsNone) {
  ::unsetenv("NOTIFY_SOCKET");
  Supervisor service;
  service.ready("0 clients");
  service.alive();
  ::setenv("NOTIFY_SOCKET", "/nowhere/at/all", 1);
  service.stopping();
  ::unsetenv("NOTIFY_SOCKET");
  ::unsetenv("WATCHDOG_USEC");
  EXPECT_EQ(Supervisor::watchdog_ns(), 0u);
}

TEST(Supervisor, SaysItsPatienceToTheProcessThatIsMeant) {
  ::setenv("WATCHDOG_USEC", "2500000", 1);
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  EXPECT_EQ(Supervisor::watchdog_ns(), 2'500'000'000u);
  ::setenv("WATCHDOG_PID", "1", 1);
  EXPECT_EQ(Supervisor::watchdog_ns(), 0u);
  ::unsetenv("WATCHDOG_USEC");
  ::unsetenv("WATCHDOG_PID");
}

// Descriptors are handed over from number 3 on, where a test has others: a child of its own takes
// them. Returns what it says.
std::string in_child_with(const std::vector<int>& sockets,
                          const std::function<std::string()>& run) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<int> moved;  // out of the way first: one may be another's place
    moved.reserve(sockets.size());
    for (const int fd : sockets) moved.push_back(::fcntl(fd, F_DUPFD, 100));
    const int out = ::fcntl(ends[1], F_DUPFD, 100);
    for (std::size_t i = 0; i < moved.size(); ++i) ::dup2(moved[i], 3 + static_cast<int>(i));
    ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
    ::setenv("LISTEN_FDS", std::to_string(sockets.size()).c_str(), 1);
    const std::string said = run();
    const bool written =
        ::write(out, said.data(), said.size()) == static_cast<ssize_t>(said.size());
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string said;
  std::array<char, 512> piece{};
  for (ssize_t got = 0; (got = ::read(ends[0], piece.data(), piece.size())) > 0;) {
    said.append(piece.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return said;
}

std::string said_of(const std::string& path) {
  const auto taken = take_client_socket(path);
  if (!taken) return taken.error().text;
  return *taken ? "taken" : "none";
}

TEST(ClientSocket, IsNoneWithoutAManager) {
  ::unsetenv("LISTEN_FDS");
  EXPECT_EQ(said_of("/run/tern/ternd.sock"), "none");
}

TEST(ClientSocket, IsTakenOnceAndServesClients) {
  Folder folder;
  const std::string path = folder.file("sock");
  const Fd fd = bound_socket(path, SOCK_SEQPACKET);
  ASSERT_EQ(::listen(fd.get(), 8), 0);
  EXPECT_EQ(in_child_with({fd.get()},
                          [&]() -> std::string {
                            auto taken = take_client_socket(path);
                            if (!taken) return taken.error().text;
                            if (const auto again = take_client_socket(path); !again || *again)
                              return "taken twice";
                            const auto listener = shm::PacketListener::adopt(std::move(*taken));
                            const auto nobody = listener.accept();
                            if (nobody || nobody.error().code != Errc::would_block) return "blocks";
                            const auto client = shm::PacketSocket::connect(path, 1000);
                            if (!client) return client.error().text;
                            return listener.accept() ? "serves" : "does not serve";
                          }),
            "serves");
  // It was not ours to unlink.
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(ClientSocket, OfAnotherKindPathOrNumberIsRefusedWithTheRemedy) {
  Folder folder;
  const std::string path = folder.file("sock"), other = folder.file("other");
  const Fd packets = bound_socket(path, SOCK_SEQPACKET), stream = bound_socket(other, SOCK_STREAM);
  ASSERT_EQ(::listen(packets.get(), 8), 0);
  ASSERT_EQ(::listen(stream.get(), 8), 0);
  EXPECT_THAT(in_child_with({stream.get()}, [&] { return said_of(other); }),
              HasSubstr("ListenSequentialPacket=" + other));
  EXPECT_THAT(in_child_with({packets.get()}, [&] { return said_of(other); }),
              HasSubstr("give ListenSequentialPacket= of ternd.socket and this setting the same"));
  EXPECT_THAT(in_child_with({packets.get(), stream.get()}, [&] { return said_of(path); }),
              HasSubstr("handed over 2 sockets"));
}

}  // namespace
}  // namespace tern::daemon
