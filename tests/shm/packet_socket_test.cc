#include "shm/packet_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tern::shm {
namespace {

namespace fs = std::filesystem;

class Directory {
 public:
  Directory() : path_(fs::temp_directory_path() / "tern-test-XXXXXX") {
    std::string name = path_.string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~Directory() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

std::size_t open_fds() {
  const fs::directory_iterator entries("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

TEST(PacketSocket, CarriesOnePacketWithItsDescriptors) {
  auto pair = PacketSocket::make_pair();
  ASSERT_TRUE(pair);
  auto hello = make_packet<HelloPacket>(PacketKind::hello, 5);
  hello.arena_bytes = 1234;
  Fd event(::eventfd(7, 0));
  const int fds[] = {event.get(), event.get()};
  ASSERT_TRUE(pair->first.send(packet_bytes(hello), fds));
  Result<Packet> got = pair->second.receive();
  ASSERT_TRUE(got) << got.error().text;
  HelloPacket copy{};
  ASSERT_TRUE(read_packet(got->bytes, copy));
  EXPECT_EQ(copy.arena_bytes, 1234u);
  EXPECT_EQ(copy.header.request, 5u);
  EXPECT_EQ(copy.header.magic, kPacketMagic);
  ASSERT_EQ(got->fds.size(), 2u);
  EXPECT_EQ(::fcntl(got->fds[0].get(), F_GETFD), FD_CLOEXEC);
  std::uint64_t value = 0;
  EXPECT_EQ(::read(got->fds[1].get(), &value, sizeof value), 8);
  EXPECT_EQ(value, 7u);
}

TEST(PacketSocket, AnotherSizeIsNotThePacket) {
  auto hello = make_packet<HelloPacket>(PacketKind::hello, 5);
  HelloPacket copy{};
  EXPECT_FALSE(read_packet(packet_bytes(hello).first(sizeof hello - 1), copy));
}

TEST(PacketSocket, NeitherSideBlocks) {
  auto pair = PacketSocket::make_pair();
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->first.receive().error().code, Errc::would_block);
  const std::vector<std::byte> bytes(kMaxPacketBytes);
  Status sent;
  for (int i = 0; i < 100'000 && sent; ++i) sent = pair->first.send(bytes);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, Errc::would_block);
}

TEST(PacketSocket, RefusesToSendWhatIsTooLarge) {
  auto pair = PacketSocket::make_pair();
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->first.send(std::vector<std::byte>(kMaxPacketBytes + 1)).error().code,
            Errc::invalid_argument);
  EXPECT_EQ(pair->first.send({}).error().code, Errc::invalid_argument);
  const std::vector<int> fds(kMaxPacketFds + 1, 0);
  EXPECT_EQ(pair->first.send(std::vector<std::byte>(1), fds).error().code, Errc::invalid_argument);
}

// A foreign sender is not bound by send(): both limits are met with the system call itself.
void send_foreign(int fd, std::size_t bytes, std::size_t fd_count) {
  std::vector<std::byte> payload(bytes);
  std::vector<int> fds(fd_count, fd);
  std::vector<std::byte> control(CMSG_SPACE(sizeof(int) * fd_count));
  iovec piece{payload.data(), payload.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (fd_count != 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
    std::memcpy(CMSG_DATA(part), fds.data(), sizeof(int) * fd_count);
  }
  ASSERT_EQ(::sendmsg(fd, &message, 0), static_cast<ssize_t>(bytes));
}

TEST(PacketSocket, OversizedPacketsAreErrorsAndLeakNothing) {
  auto pair = PacketSocket::make_pair();
  ASSERT_TRUE(pair);
  const std::size_t before = open_fds();
  send_foreign(pair->first.fd(), kMaxPacketBytes + 1, 3);
  EXPECT_EQ(pair->second.receive().error().code, Errc::protocol_error);
  send_foreign(pair->first.fd(), 10, kMaxPacketFds + 5);
  EXPECT_EQ(pair->second.receive().error().code, Errc::protocol_error);
  EXPECT_EQ(open_fds(), before);
  send_foreign(pair->first.fd(), kMaxPacketBytes, kMaxPacketFds);
  Result<Packet> got = pair->second.receive();
  ASSERT_TRUE(got) << got.error().text;
  EXPECT_EQ(got->fds.size(), kMaxPacketFds);
}

TEST(PacketSocket, TheEndOfTheConnectionIsPeerLostWithoutASignal) {
  auto pair = PacketSocket::make_pair();
  ASSERT_TRUE(pair);
  pair->second.close();
  EXPECT_EQ(pair->first.receive().error().code, Errc::peer_lost);
  EXPECT_EQ(pair->first.send(std::vector<std::byte>(1)).error().code, Errc::peer_lost);
}

TEST(PacketSocket, SaysWhoThePeerIs) {
  auto pair = PacketSocket::make_pair();
  ASSERT_TRUE(pair);
  Result<PeerCredentials> peer = pair->first.peer_credentials();
  ASSERT_TRUE(peer) << peer.error().text;
  EXPECT_EQ(peer->pid, ::getpid());
  EXPECT_EQ(peer->uid, ::getuid());
  EXPECT_EQ(peer->gid, ::getgid());
  EXPECT_EQ(peer->groups.size(), static_cast<std::size_t>(::getgroups(0, nullptr)));
  ASSERT_TRUE(peer->pidfd);
  pollfd waiting{peer->pidfd.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 0);
}

TEST(PacketListener, AcceptsWhoConnects) {
  const Directory directory;
  const std::string path = directory.file("sock");
  Result<PacketListener> listener = PacketListener::bind(path, 0600);
  ASSERT_TRUE(listener) << listener.error().text;
  EXPECT_EQ(listener->accept().error().code, Errc::would_block);
  Result<PacketSocket> client = PacketSocket::connect(path, 1000);
  ASSERT_TRUE(client) << client.error().text;
  EXPECT_TRUE(listener->accept());
  struct stat file {};
  ASSERT_EQ(::stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777u, 0600u);
  *listener = PacketListener();
  EXPECT_FALSE(fs::exists(path));
}

TEST(PacketListener, ReplacesAStaleSocketOnly) {
  const Directory directory;
  const std::string path = directory.file("sock");
  {
    Result<PacketListener> listener = PacketListener::bind(path, 0600);
    ASSERT_TRUE(listener);
    EXPECT_EQ(PacketListener::bind(path, 0600).error().code, Errc::already_exists);
    fs::rename(path, directory.file("stale"));
  }
  EXPECT_TRUE(PacketListener::bind(directory.file("stale"), 0600));
  std::ofstream(directory.file("plain")) << "precious";
  EXPECT_EQ(PacketListener::bind(directory.file("plain"), 0600).error().code, Errc::already_exists);
  EXPECT_TRUE(fs::exists(directory.file("plain")));
}

TEST(PacketSocket, ConnectTellsWhyNot) {
  const Directory directory;
  EXPECT_EQ(PacketSocket::connect(directory.file("none"), 100).error().code, Errc::daemon_absent);
  EXPECT_EQ(PacketSocket::connect("", 100).error().code, Errc::invalid_argument);
  EXPECT_EQ(PacketSocket::connect(std::string(200, 'x'), 100).error().code, Errc::invalid_argument);
}

// A profiler's timer goes off more often than the timeout would. Where that began anew each time,
// this would never end.
TEST(PacketSocket, SignalsDoNotProlongTheTimeToConnect) {
  const Directory directory;
  const std::string path = directory.file("socket");
  const Result<PacketListener> listener = PacketListener::bind(path, 0600);
  ASSERT_TRUE(listener.has_value());
  ASSERT_EQ(::listen(listener->fd(), 0), 0);
  const Result<PacketSocket> first = PacketSocket::connect(path, 100);  // which nobody accepts
  ASSERT_TRUE(first.has_value());
  struct sigaction handled {};
  struct sigaction before {};
  handled.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGALRM, &handled, &before), 0);
  const itimerval often{{0, 5'000}, {0, 5'000}};
  const itimerval never{};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  const Result<PacketSocket> second = PacketSocket::connect(path, 50);
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Errc::timeout) << second.error().text;
}

}  // namespace
}  // namespace tern::shm
