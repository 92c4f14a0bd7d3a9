// Bad requests at a real daemon's control socket: each gets a sentence, and nobody waits for
// another.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/e2e/rank_process.h"

namespace tern::e2e {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Asker {
 public:
  explicit Asker(const DaemonProcess& daemon) : socket_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = daemon.control_socket();
    std::copy(path.begin(), path.end(), address.sun_path);
    const void* const bytes = &address;
    if (::connect(socket_.get(), static_cast<const sockaddr*>(bytes), sizeof(address)) != 0) {
      socket_.reset();
    }
  }

  // As much as the daemon takes.
  void send(std::string_view text) {
    ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // The next line; "" at the end of the connection.
  json answer() {
    std::string line;
    char c = 0;
    const auto has_line = [&] {
      ssize_t count = 0;
      while ((count = ::recv(socket_.get(), &c, 1, MSG_DONTWAIT)) == 1 && c != '\n') line += c;
      return count == 0 || (count < 0 && errno != EAGAIN) || c == '\n';
    };
    EXPECT_TRUE(eventually(has_line, kPatience, socket_.get()));
    return json::parse(line, nullptr, false);
  }
  bool is_closed() {
    return eventually([&] {
      char rest[4096];
      ssize_t count = 1;
      while (count > 0) count = ::recv(socket_.get(), rest, sizeof(rest), MSG_DONTWAIT);
      return count == 0 || errno != EAGAIN;
    });
  }

 private:
  Fd socket_;
};

class BadControl : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(cluster.running());
    good = Ranks(cluster, {1, 1}, "good");
    ASSERT_EQ(good.join(), "");
    before = cluster[0].holdings();
    good.tell_all("stream group=g ops=300 tensors=3 large=60000");
  }
  void TearDown() override {
    if (HasFatalFailure()) return;
    EXPECT_EQ(disagreement(good.replies()), "");
    EXPECT_TRUE(eventually([&] { return cluster[0].holdings() <= before; }));
  }

  Cluster cluster{2};
  Ranks good;
  Holdings before;
};

TEST_F(BadControl, AnUnknownVerbIsToldWhichThereAre) {
  Asker asker(cluster[0]);
  asker.send("{\"v\":1,\"id\":3,\"verb\":\"destroy\"}\n{\"v\":1,\"id\":4,\"verb\":\"version\"}\n");
  const json refused = asker.answer();
  EXPECT_EQ(refused["id"], 3);
  EXPECT_EQ(refused["error"]["code"], "unsupported");
  EXPECT_THAT(refused["error"]["text"], HasSubstr("status"));
  EXPECT_EQ(asker.answer()["ok"], true);  // of the next request
}

TEST_F(BadControl, TooLargeARequestIsToldItsLimit) {
  Asker asker(cluster[0]);
  asker.send(std::string(100'000, 'x'));
  const json refused = asker.answer();
  EXPECT_EQ(refused["error"]["code"], "protocol_error");
  EXPECT_THAT(refused["error"]["text"], HasSubstr("65536 bytes"));
  EXPECT_TRUE(asker.is_closed());
}

TEST_F(BadControl, ThoseWhoStopHalfWayOrNeverReadHoldUpNobody) {
  std::vector<Asker> askers;
  for (int i = 0; i < 3; ++i) {
    askers.emplace_back(cluster[0]).send("{\"v\":1,\"id\":1,\"ve");
    std::string questions;
    for (int line = 0; line < 200; ++line) {
      questions += "{\"v\":1,\"id\":1,\"verb\":\"counters\"}\n";
    }
    askers.emplace_back(cluster[0]).send(questions);
  }
  EXPECT_EQ(cluster[0].ask("clients").size(), 1u);
  EXPECT_EQ(cluster[0].ask("groups").size(), 1u);
  // Many of them leave no place; who comes then is told so, and served when they have gone.
  for (int i = 0; i < 40; ++i) askers.emplace_back(cluster[0]);
  Asker late(cluster[0]);
  const json refused = late.answer();
  EXPECT_EQ(refused["error"]["code"], "quota_exceeded");
  EXPECT_THAT(refused["error"]["text"], HasSubstr("too many control clients"));
  askers.clear();
  EXPECT_TRUE(eventually([&] { return cluster[0].ask("status").is_object(); }));
}

}  // namespace
}  // namespace tern::e2e
