#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "daemon/control/socket_file.h"
#include "tests/daemon/control/fixture.h"

namespace tern::daemon {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST_F(ControlServerTest, AnswersRequestAfterRequest) {
  start();
  const Fd fd = connect();
  EXPECT_EQ(ask(fd, R"({"v":1,"id":7,"verb":"echo","args":{"a":[1,2]}})"),
            json::parse(R"({"v":1,"id":7,"ok":true,"result":{"a":[1,2]}})"));
  EXPECT_EQ(ask(fd, R"({"v":1,"id":8,"verb":"echo"})"),
            json::parse(R"({"v":1,"id":8,"ok":true,"result":{}})"));
  EXPECT_EQ(ask(fd, R"({"v":1,"id":9,"verb":"refused"})"), json::parse(R"({"v":1,"id":9,"ok":false,
                            "error":{"code":"permission_denied","text":"only root may"}})"));
  EXPECT_EQ(ask(fd, R"({"v":1,"id":10,"verb":"nonsense"})")["error"]["code"], "unsupported");
  EXPECT_EQ(handler_.calls, 4);
}

TEST_F(ControlServerTest, AnswersAllLinesOfOnePacketInOrder) {
  start();
  const Fd fd = connect();
  std::string lines;
  for (int i = 0; i < 50; ++i) {
    lines += R"({"v":1,"id":)" + std::to_string(i) + R"(,"verb":"echo"})" + "\n";
  }
  send(fd, lines);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(json::parse(receive_line(fd))["id"], i);
}

TEST_F(ControlServerTest, PutsALineTogetherFromSingleBytes) {
  start();
  const Fd fd = connect();
  for (const char c : std::string_view(R"({"v":1,"id":1,"verb":"echo"})"
                                       "\n")) {
    send(fd, std::string_view(&c, 1));
  }
  EXPECT_EQ(json::parse(receive_line(fd))["ok"], true);
}

// By itself it is readable, and a look at what has come does not find it.
TEST_F(ControlServerTest, AByteOutOfBandIsOneOfTheLine) {
  start();
  const Fd fd = connect();
  const std::string_view line = R"({"v":1,"id":1,"verb":"echo"})";
  ASSERT_EQ(::send(fd.get(), line.data(), 1, MSG_OOB | MSG_NOSIGNAL), 1);
  EXPECT_EQ(ask(fd, line.substr(1))["ok"], true);
}

TEST_F(ControlServerTest, KnowsWhoAsks) {
  start();
  const Fd fd = connect();
  ask(fd, R"({"v":1,"id":1,"verb":"echo"})");
  EXPECT_EQ(handler_.last.pid, ::getpid());
  EXPECT_EQ(handler_.last.uid, ::getuid());
  EXPECT_EQ(handler_.last.gid, ::getgid());
  std::vector<gid_t> groups(static_cast<std::size_t>(::getgroups(0, nullptr)));
  ASSERT_EQ(::getgroups(static_cast<int>(groups.size()), groups.data()),
            static_cast<int>(groups.size()));
  EXPECT_THAT(handler_.last.groups, ::testing::UnorderedElementsAreArray(groups));
}

TEST_F(ControlServerTest, GarbageGetsAnErrorAndTheEnd) {
  start();
  const std::string deep_args = std::string(20'000, '[') + std::string(20'000, ']');
  std::string crowd;
  for (int i = 0; i < 9'000; ++i) crowd += ",0";
  const std::vector<std::string> lines{
      "",
      "hello",
      "[]",
      "\xff\xfe",
      std::string("\0\0", 2),
      std::string(60'000, '['),
      R"({"id":1,"verb":"echo"})",
      R"({"v":"1","id":1,"verb":"echo"})",
      R"({"v":1,"verb":"echo"})",
      R"({"v":1,"id":{"a":1},"verb":"echo"})",
      R"({"v":1,"id":1})",
      R"({"v":1,"id":1,"verb":7})",
      R"({"v":1,"id":1,"verb":"echo","args":[]})",
      R"({"v":1,"id":1,"verb":"echo","args":{"a":)" + deep_args + "}}",
      R"({"v":1,"id":1,"verb":"echo","args":{"a":[0)" + crowd + "]}}",
  };
  for (const std::string& line : lines) {
    const Fd fd = connect();
    const json answer = ask(fd, line);
    ASSERT_TRUE(answer.is_object()) << line.substr(0, 80);
    EXPECT_EQ(answer["ok"], false);
    EXPECT_EQ(answer["error"]["code"], "protocol_error") << line.substr(0, 80);
    EXPECT_EQ(receive_line(fd), "") << "left open after " << line.substr(0, 80);
  }
  EXPECT_EQ(handler_.calls, 0);
  EXPECT_EQ(server_->client_count(), 0u);
}

TEST_F(ControlServerTest, BracketsInsideATextAreNoDepth) {
  start();
  const Fd fd = connect();
  const std::string text = std::string(1'000, '[') + R"(\"{{{)";
  EXPECT_EQ(ask(fd, R"({"v":1,"id":1,"verb":"echo","args":{"a":")" + text + "\"}}")["ok"], true);
}

TEST_F(ControlServerTest, AnotherVersionIsToldWhichOneIsSpoken) {
  start();
  const Fd fd = connect();
  const json answer = ask(fd, R"({"v":2,"id":1,"verb":"echo"})");
  EXPECT_EQ(answer["v"], 1);
  EXPECT_EQ(answer["error"]["code"], "version_mismatch");
}

TEST_F(ControlServerTest, AnOversizedLineGetsAnErrorAndTheEnd) {
  start();
  const Fd fd = connect();
  send(fd, std::string(2 * kMaxControlRequestBytes, 'x'));
  EXPECT_EQ(json::parse(receive_line(fd))["error"]["code"], "protocol_error");
  EXPECT_EQ(receive_line(fd), "");
}

TEST_F(ControlServerTest, TheLongestLineIsServed) {
  start();
  const Fd fd = connect();
  std::string line = R"({"v":1,"id":1,"verb":"echo","args":{}})";
  line.append(kMaxControlRequestBytes - 1 - line.size(), ' ');
  EXPECT_EQ(ask(fd, line)["ok"], true);
}

TEST_F(ControlServerTest, AHandlerThatThrowsIsAnInternalError) {
  start();
  const Fd fd = connect();
  EXPECT_EQ(ask(fd, R"({"v":1,"id":1,"verb":"throw"})")["error"]["code"], "internal");
  EXPECT_EQ(ask(fd, R"({"v":1,"id":2,"verb":"large","args":{}})")["error"]["code"], "internal");
  EXPECT_EQ(ask(fd, R"({"v":1,"id":3,"verb":"echo"})")["ok"], true);
}

TEST_F(ControlServerTest, BytesThatAreNoTextAreReplaced) {
  start();
  const Fd fd = connect();
  EXPECT_EQ(ask(fd, R"({"v":1,"id":1,"verb":"bytes"})")["result"], "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST_F(ControlServerTest, AnAnswerOverTheLimitIsAnError) {
  options_.max_answer_bytes = 1'000;
  start();
  const Fd fd = connect();
  EXPECT_EQ(ask(fd, R"({"v":1,"id":1,"verb":"large","args":{"bytes":2000}})")["error"]["code"],
            "quota_exceeded");
  EXPECT_EQ(ask(fd, R"({"v":1,"id":2,"verb":"large","args":{"bytes":500}})")["ok"], true);
}

TEST_F(ControlServerTest, ASlowReaderHoldsUpNobodyAndGetsItAll) {
  start();
  const Fd slow = connect();
  const Fd quick = connect();
  for (int i = 0; i < 3; ++i) {
    send(slow, R"({"v":1,"id":1,"verb":"large","args":{"bytes":3000000}})"
               "\n");
  }
  EXPECT_EQ(ask(quick, R"({"v":1,"id":2,"verb":"echo"})")["ok"], true);
  // The second request waits until the first answer is taken.
  EXPECT_EQ(handler_.calls, 2);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(json::parse(receive_line(slow))["result"].get_ref<const std::string&>().size(),
              3'000'000u);
  }
}

TEST_F(ControlServerTest, WhoNeitherAsksNorTakesAnswersIsClosed) {
  options_.idle_timeout = std::chrono::milliseconds(20);
  start();
  const Fd silent = connect();
  const Fd deaf = connect();
  send(deaf, R"({"v":1,"id":1,"verb":"large","args":{"bytes":3000000}})"
             "\n");
  while (handler_.calls == 0 || server_->client_count() != 0) io_.run_one();
  EXPECT_EQ(receive_line(silent), "");
}

TEST_F(ControlServerTest, OneUsersClientTooManyIsToldSo) {
  options_.max_clients_per_user = 2;
  start();
  const Fd a = connect();
  const Fd b = connect();
  EXPECT_EQ(ask(a, R"({"v":1,"id":1,"verb":"echo"})")["ok"], true);
  EXPECT_EQ(ask(b, R"({"v":1,"id":1,"verb":"echo"})")["ok"], true);
  const Fd c = connect();
  const json refused = json::parse(receive_line(c));
  EXPECT_EQ(refused["error"]["code"], "quota_exceeded");
  EXPECT_THAT(refused["error"]["text"].get<std::string>(),
              HasSubstr("user " + std::to_string(::geteuid()) + " has 2"));
  EXPECT_EQ(receive_line(c), "");
  EXPECT_EQ(ask(a, R"({"v":1,"id":2,"verb":"echo"})")["ok"], true);
}

TEST_F(ControlServerTest, WhoIsTurnedAwayIsNoClientAndHearsWhyAtOnce) {
  options_.max_clients_per_user = 1;
  start();
  const Fd served = connect();
  ASSERT_TRUE(is_served(served));
  std::vector<Fd> others;
  others.reserve(60);
  for (int i = 0; i < 60; ++i) others.push_back(connect());
  io_.poll();
  EXPECT_EQ(server_->client_count(), 1u);
  for (const Fd& other : others) {
    EXPECT_EQ(json::parse(receive_line(other))["error"]["code"], "quota_exceeded");
    EXPECT_EQ(receive_line(other), "") << "it stays";
  }
  EXPECT_TRUE(is_served(served));
}

// Those who come without end keep nobody waiting who is served.
TEST_F(ControlServerTest, OneHandlerAcceptsABoundedNumber) {
  options_.max_clients_per_user = 1;
  start();
  std::vector<Fd> all;
  all.reserve(60);
  for (int i = 0; i < 60; ++i) all.push_back(connect());
  const auto answered = [&] {
    return std::count_if(all.begin(), all.end(), [](const Fd& fd) {
      char first = 0;
      return ::recv(fd.get(), &first, 1, MSG_PEEK) > 0;
    });
  };
  while (answered() == 0) io_.run_one();
  EXPECT_LE(answered(), 31);  // and one who is served
  while (answered() < 59) io_.run_one();
}

TEST_F(ControlServerTest, AFloodOfOneUserLeavesRoomForOthersAndForRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can connect as other users";
  constexpr uid_t kUsers = 1'000'000;
  options_.mode = 0666;
  options_.max_clients = 6;
  options_.max_clients_per_user = 3;
  ASSERT_EQ(::chmod(directory_.c_str(), 0755), 0);
  start();
  std::vector<Fd> flood;
  flood.reserve(20);
  for (int i = 0; i < 20; ++i) flood.push_back(connect_as(kUsers));
  for (std::size_t i = 0; i < flood.size(); ++i) EXPECT_EQ(is_served(flood[i]), i < 3) << i;
  // Another who takes what there is to be had leaves the last place to a third.
  std::vector<Fd> others;
  others.reserve(3);
  for (int i = 0; i < 3; ++i) others.push_back(connect_as(kUsers + 1));
  for (std::size_t i = 0; i < others.size(); ++i) EXPECT_EQ(is_served(others[i]), i < 2) << i;
  EXPECT_EQ(handler_.last.uid, kUsers + 1);
  const Fd third = connect_as(kUsers + 2);
  EXPECT_TRUE(is_served(third));
  const Fd late = connect_as(kUsers + 3);
  EXPECT_EQ(json::parse(receive_line(late))["error"]["code"], "quota_exceeded");
  // Root is never kept out by them, and not without bound either.
  std::vector<Fd> roots;
  roots.reserve(4);
  for (int i = 0; i < 4; ++i) roots.push_back(connect());
  for (std::size_t i = 0; i < roots.size(); ++i) EXPECT_EQ(is_served(roots[i]), i < 3) << i;
  flood.clear();
  while (server_->client_count() > 6) io_.run_one();
  EXPECT_TRUE(is_served(connect_as(kUsers + 3)));
}

TEST_F(ControlServerTest, SubUsersOfRootKeepRootFromNoPlace) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can connect as other users";
  constexpr uid_t kOfRoot = 1'000'002;
  options_.mode = 0666;
  options_.max_clients_per_user = 1;
  options_.account_of = [](std::uint32_t user) { return user == kOfRoot ? 0 : user; };
  ASSERT_EQ(::chmod(directory_.c_str(), 0755), 0);
  start();
  const Fd of_root = connect_as(kOfRoot);
  EXPECT_TRUE(is_served(of_root));
  EXPECT_FALSE(is_served(connect_as(kOfRoot)));
  EXPECT_TRUE(is_served(connect()));
}

// Who has many questions on many connections keeps nobody else's waiting for more than one of them.
TEST_F(ControlServerTest, AnswersOneQuestionOfEachUserInTurnAndOfRootFirst) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can connect as other users";
  constexpr uid_t kFlood = 1'000'000, kOther = 1'000'001, kOfRoot = 1'000'002;
  options_.mode = 0666;
  options_.account_of = [](std::uint32_t user) { return user == kOfRoot ? 0 : user; };
  ASSERT_EQ(::chmod(directory_.c_str(), 0755), 0);
  start();
  const std::string question = R"({"v":1,"id":1,"verb":"echo"})"
                               "\n";
  std::string many;
  for (int i = 0; i < 20; ++i) many += question;
  std::vector<Fd> flood;
  flood.reserve(4);
  for (int i = 0; i < 4; ++i) flood.push_back(connect_as(kFlood));
  const Fd other = connect_as(kOther), of_root = connect_as(kOfRoot), root = connect();
  while (server_->client_count() < 7) io_.run_one();
  io_.poll();
  handler_.askers.clear();
  const auto put = [](const Fd& fd, const std::string& text) {
    return ::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) == std::ssize(text);
  };
  for (const Fd& fd : flood) ASSERT_TRUE(put(fd, many));
  ASSERT_TRUE(put(other, question + question));
  ASSERT_TRUE(put(of_root, many));
  ASSERT_TRUE(put(root, many));
  while (handler_.askers.size() < 122) io_.run_one();
  const auto place = [&](uid_t user, std::ptrdiff_t nth) {
    std::ptrdiff_t at = -1;
    for (; nth >= 0; --nth) {
      at = std::find(handler_.askers.begin() + at + 1, handler_.askers.end(), user) -
           handler_.askers.begin();
    }
    return at;
  };
  EXPECT_LE(place(0, 0), 1);
  EXPECT_EQ(place(0, 10) - place(0, 5), 10) << "every other question is root's";
  EXPECT_LE(place(kOther, 1) - place(kOther, 0), 7);
  EXPECT_EQ(place(kOfRoot, 7) - place(kOfRoot, 3), 16) << "a sub-user is not root";
}

// The thread that runs them has turns, of which each is a part.
TEST_F(ControlServerTest, EveryHandlerSaysWhatItIsAt) {
  options_.idle_timeout = std::chrono::milliseconds(20);
  start();
  const Fd client = connect();
  ASSERT_EQ(ask(client, R"({"v":1,"id":1,"verb":"echo"})")["ok"], true);
  ASSERT_GE(handler_.steps.size(), 4u);
  EXPECT_EQ(
      (std::vector<std::string>(handler_.steps.begin(), handler_.steps.begin() + 4)),
      (std::vector<std::string>{"control: accept", "control: serve", "echo", "control: send"}));
  io_.poll();
  handler_.steps.clear();
  ask(client, R"({"v":1,"id":1,"verb":"echo"})");
  ASSERT_GE(handler_.steps.size(), 4u);
  EXPECT_EQ(
      (std::vector<std::string>(handler_.steps.begin(), handler_.steps.begin() + 4)),
      (std::vector<std::string>{"control: ready", "control: serve", "echo", "control: send"}));
  while (server_->client_count() != 0) io_.run_one();
  EXPECT_EQ(handler_.steps.back(), "control: timer");
}

TEST_F(ControlServerTest, AClientThatVanishesIsForgotten) {
  start();
  {
    const Fd a = connect();
    send(a, R"({"v":1,"id":1,"verb":"large","args":{"bytes":3000000}})"
            "\n");
    const Fd b = connect();
    send(b, R"({"v":1,)");
    while (handler_.calls == 0 || server_->client_count() != 2) io_.run_one();
  }
  while (server_->client_count() != 0) io_.run_one();
}

TEST_F(ControlServerTest, IsDestroyedWithWorkPending) {
  start();
  const Fd a = connect();
  send(a, R"({"v":1,"id":1,"verb":"large","args":{"bytes":3000000}})"
          "\n");
  const Fd waits_for_accept = connect();
  server_.reset();
  io_.poll();
  EXPECT_FALSE(connect());
  EXPECT_NE(::access(options_.path.c_str(), F_OK), 0);
}

TEST_F(ControlServerTest, TheFileHasTheModeAndGoesWithTheServer) {
  options_.mode = 0640;
  start();
  struct stat info {};
  ASSERT_EQ(::stat(options_.path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0640u);
  server_.reset();
  EXPECT_NE(::stat(options_.path.c_str(), &info), 0);
}

TEST_F(ControlServerTest, ASecondServerDoesNotTakeTheSocketOfTheFirst) {
  start();
  const auto second = ControlServer::create(io_, options_, handler_, disposal_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::already_exists);
  EXPECT_THAT(second.error().text, HasSubstr("is ternd running?"));
  const Fd fd = connect();
  EXPECT_EQ(ask(fd, R"({"v":1,"id":1,"verb":"echo"})")["ok"], true);
}

TEST_F(ControlServerTest, AStaleSocketIsReplaced) {
  {
    const Fd dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, options_.path.data(), options_.path.size());
    const void* const bytes = &address;
    ASSERT_EQ(::bind(dead.get(), static_cast<const sockaddr*>(bytes), sizeof(address)), 0);
  }
  start();
  EXPECT_TRUE(connect());
}

TEST_F(ControlServerTest, AFileThatIsNoSocketIsLeftAlone) {
  std::ofstream(options_.path) << "precious";
  const auto server = ControlServer::create(io_, options_, handler_, disposal_);
  ASSERT_FALSE(server);
  EXPECT_THAT(server.error().text, HasSubstr("is not a socket"));
  EXPECT_EQ(::access(options_.path.c_str(), F_OK), 0);
  ::unlink(options_.path.c_str());
}

TEST_F(ControlServerTest, AFileOfAnotherIsNotUnlinked) {
  start();
  ::unlink(options_.path.c_str());
  std::ofstream(options_.path) << "another";
  server_.reset();
  EXPECT_EQ(::access(options_.path.c_str(), F_OK), 0);
  ::unlink(options_.path.c_str());
}

TEST_F(ControlServerTest, SaysWhichPathItCannotUse) {
  options_.path = directory_ + "/absent/control.sock";
  EXPECT_THAT(ControlServer::create(io_, options_, handler_, disposal_).error().text,
              HasSubstr("directory must be created"));
  options_.path = std::string(108, 'x');
  EXPECT_EQ(ControlServer::create(io_, options_, handler_, disposal_).error().code,
            Errc::invalid_argument);
}

TEST_F(ControlServerTest, SocketFileServesPacketSocketsToo) {
  auto file = SocketFile::listen(options_.path, SOCK_SEQPACKET, 0600);
  ASSERT_TRUE(file) << file.error().text;
  EXPECT_FALSE(SocketFile::listen(options_.path, SOCK_SEQPACKET, 0600));
}

// ---- Lists that are made while they are sent

TEST_F(ControlServerTest, AListOfRowsIsOneAnswer) {
  start();
  const Fd fd = connect();
  for (const int count : {0, 1, 3, 1000}) {
    handler_.row_count = count;
    const nlohmann::json answer = ask(fd, R"({"v":1,"id":7,"verb":"rows"})");
    ASSERT_TRUE(answer.is_object());
    EXPECT_EQ(answer["ok"], true);
    EXPECT_EQ(answer["v"], 1);
    EXPECT_EQ(answer["id"], 7);
    ASSERT_EQ(answer["result"].size(), static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      EXPECT_EQ(answer["result"][static_cast<std::size_t>(i)]["number"], i);
    }
  }
}

// Nor has it a bound but the time for an answer.
TEST_F(ControlServerTest, RowsAreMadeWhenThoseBeforeHaveBeenTaken) {
  options_.max_answer_bytes = 10'000;
  handler_.row_count = 600;  // more than sockets hold
  handler_.row_bytes = 10'000;
  start();
  const Fd fd = connect();
  const Fd other = connect();
  send(fd, "{\"v\":1,\"id\":1,\"verb\":\"rows\"}\n");
  for (int turn = 0; turn < 100; ++turn) io_.poll();
  const int made = handler_.pieces;
  EXPECT_LT(made, 200) << "the client takes nothing";
  EXPECT_TRUE(is_served(other));
  const std::string line = receive_line(fd);
  EXPECT_EQ(nlohmann::json::parse(line)["result"].size(), 600u);
  EXPECT_GT(handler_.pieces, made);
  EXPECT_TRUE(is_served(fd));
}

TEST_F(ControlServerTest, AListThatFailsEndsItsConnection) {
  handler_.row_count = 10;
  handler_.failing_row = 5;
  start();
  const Fd fd = connect();
  const Fd other = connect();
  send(fd, "{\"v\":1,\"id\":1,\"verb\":\"rows\"}\n");
  EXPECT_EQ(receive_line(fd), "");
  EXPECT_TRUE(is_served(other));
}

}  // namespace
}  // namespace tern::daemon
