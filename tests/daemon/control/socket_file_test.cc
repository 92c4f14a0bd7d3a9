#include "daemon/control/socket_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

namespace tern::daemon::socket_file_test {
namespace {

using ::testing::HasSubstr;

class SocketFileTest : public ::testing::Test {
 protected:
  SocketFileTest() {
    char folder[] = "/tmp/tern-socket-XXXXXX";
    EXPECT_NE(::mkdtemp(folder), nullptr);
    folder_ = folder;
    path = folder_ + "/sock";
  }
  ~SocketFileTest() override { std::filesystem::remove_all(folder_); }

  SocketFile listen(std::uint32_t mode = 0600) {
    auto file = SocketFile::listen(path, SOCK_STREAM, mode);
    EXPECT_TRUE(file) << file.error().text;
    return file ? std::move(*file) : SocketFile();
  }
  bool can_connect() const {
    const Fd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    const auto* const generic = static_cast<const sockaddr*>(static_cast<const void*>(&address));
    return ::connect(client.get(), generic, sizeof(address)) == 0;
  }
  bool exists() const { return ::access(path.c_str(), F_OK) == 0; }
  Error refused(const std::string& at) const {
    const auto file = SocketFile::listen(at, SOCK_STREAM, 0600);
    EXPECT_FALSE(file);
    return file ? Error{} : file.error();
  }

  std::string path;

 private:
  std::string folder_;
};

TEST_F(SocketFileTest, ListensWithTheModeThatIsAskedForAndDoesNotBlock) {
  const SocketFile file = listen(0640);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
  EXPECT_TRUE(can_connect());
  EXPECT_NE(::fcntl(file.fd(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(::fcntl(file.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(SocketFileTest, TheFileGoesWithItAndNotWithItsSocket) {
  {
    SocketFile file = listen();
    const Fd socket = file.take_fd();
    EXPECT_TRUE(socket);
    EXPECT_EQ(file.fd(), -1);
    SocketFile moved = std::move(file);
    file = SocketFile();
    EXPECT_TRUE(exists()) << "it is the other's";
  }
  EXPECT_FALSE(exists());
}

TEST_F(SocketFileTest, WhatSomebodyListensOnIsLeftAlone) {
  const SocketFile file = listen();
  const Error error = refused(path);
  EXPECT_EQ(error.code, Errc::already_exists);
  EXPECT_THAT(error.text, HasSubstr("is ternd running?"));
  EXPECT_TRUE(can_connect());
}

TEST_F(SocketFileTest, WhatNobodyListensOnIsReplaced) {
  const Fd stale(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto* const generic = static_cast<const sockaddr*>(static_cast<const void*>(&address));
  ASSERT_EQ(::bind(stale.get(), generic, sizeof(address)), 0);
  ASSERT_FALSE(can_connect());
  const SocketFile file = listen();
  EXPECT_TRUE(can_connect());
}

TEST_F(SocketFileTest, AFileOfAnotherKindIsLeftAlone) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(file);
  const Error error = refused(path);
  EXPECT_EQ(error.code, Errc::already_exists);
  EXPECT_THAT(error.text, HasSubstr("is not a socket; remove it or choose another path"));
  EXPECT_TRUE(exists());
}

TEST_F(SocketFileTest, OneThatHasTakenItsPlaceStays) {
  auto first = std::make_unique<SocketFile>(listen());
  ASSERT_EQ(::unlink(path.c_str()), 0);
  const SocketFile second = listen();
  first.reset();
  EXPECT_TRUE(can_connect());
}

TEST_F(SocketFileTest, SaysWhyAPathCannotBe) {
  EXPECT_THAT(refused(path + "/below").text, HasSubstr(path));
  EXPECT_THAT(refused(path + ".absent/sock").text, HasSubstr("must be created first"));
  for (const std::string& bad : {std::string(), std::string(108, 'x'), std::string("a\0b", 3)}) {
    EXPECT_EQ(refused(bad).code, Errc::invalid_argument) << bad;
  }
}

}  // namespace
}  // namespace tern::daemon::socket_file_test
