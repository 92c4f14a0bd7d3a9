#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "daemon/control/control_server.h"
#include "daemon/control/socket_file.h"
#include "tests/ctl/run_program.h"

// The real ternctl against a control server, or against something that only listens, in this
// process.
namespace tern::ctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class FakeDaemon final : public daemon::ControlVerbs {
 public:
  Result<json> handle(std::string_view verb, const json& args,
                      const daemon::Credentials&) override {
    const std::lock_guard lock(mutex_);
    ++calls;
    EXPECT_TRUE(args.is_object());
    last_args = args;
    if (!answer) return fail(Errc::unsupported, "unknown verb");
    return answer(verb);
  }
  // Before another process asks, and after it has been answered: what the answers use may be read
  // between the two, and may end.
  void settle() const { const std::lock_guard lock(mutex_); }

  std::function<Result<json>(std::string_view)> answer;
  std::atomic<int> calls{0};
  json last_args;  // read between two calls

 private:
  mutable std::mutex mutex_;
};

class TernctlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/tern_ternctl_XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
    // Other users reach the socket, so that its own mode decides.
    ASSERT_EQ(::chmod(directory, 0755), 0);
    path_ = directory_ + "/control.sock";
  }

  void TearDown() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
    server_.reset();
    stranger_ = {};
    ::rmdir(directory_.c_str());
  }

  void serve(std::function<Result<json>(std::string_view)> answer, std::uint32_t mode = 0600) {
    daemon_.answer = std::move(answer);
    daemon::ControlOptions options;
    options.path = path_;
    options.mode = mode;
    auto server = daemon::ControlServer::create(io_, options, daemon_, disposal_);
    ASSERT_TRUE(server) << server.error().text;
    server_ = *std::move(server);
    thread_ = std::thread([this] { io_.run(); });
  }

  // Something that is no daemon: takes one connection, sends the text and, unless it is to hang,
  // closes.
  void pretend(const std::string& text, bool hang = false) {
    auto file = daemon::SocketFile::listen(path_, SOCK_STREAM, 0600);
    ASSERT_TRUE(file) << file.error().text;
    stranger_ = *std::move(file);
    if (hang) return;  // connected by the kernel's backlog, and never answered
    const int flags = ::fcntl(stranger_.fd(), F_GETFL);
    ASSERT_EQ(::fcntl(stranger_.fd(), F_SETFL, flags & ~O_NONBLOCK), 0);
    thread_ = std::thread([this, text] {
      const Fd connection(::accept(stranger_.fd(), nullptr, nullptr));
      std::array<char, 4'096> request;
      EXPECT_GT(::recv(connection.get(), request.data(), request.size(), 0), 0);
      for (std::string_view rest = text; !rest.empty();) {
        const ssize_t count = ::send(connection.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
        if (count <= 0) return;
        rest.remove_prefix(static_cast<std::size_t>(count));
      }
    });
  }

  ProgramResult ternctl(const std::vector<std::string>& arguments, ProgramOptions options = {}) {
    options.environment.push_back("TERN_CONTROL_SOCKET=" + path_);
    daemon_.settle();
    ProgramResult result = run_program(TERN_TERNCTL, arguments, options);
    daemon_.settle();
    return result;
  }

  std::string directory_;
  std::string path_;
  FakeDaemon daemon_;
  daemon::Disposal disposal_;
  boost::asio::io_context io_;
  std::unique_ptr<daemon::ControlServer> server_;
  daemon::SocketFile stranger_;
  std::thread thread_;
};

TEST_F(TernctlTest, MakesCertificatesAndKeysWithoutADaemon) {
  const std::string folder = directory_ + "/ca";
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "pki");
    return run_program(TERN_TERNCTL, words);
  };
  EXPECT_EQ(run({"init-ca", folder, "--name", "lab"}).exit_code, 0);
  EXPECT_EQ(run({"issue", folder, "node1", "10.0.0.1", "--days", "7"}).exit_code, 0);
  const auto shown = run({"show", folder + "/node1.pem"});
  EXPECT_THAT(shown.out, HasSubstr("names       node1, 10.0.0.1\n  issued by   lab\n"));
  EXPECT_EQ(run({"new-key", folder + "/key"}).exit_code, 0);
  const auto again = run({"new-key", folder + "/key"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("exists already"));
  EXPECT_EQ(run({"issue", folder}).exit_code, 2);
  EXPECT_EQ(run({}).exit_code, 2);
  std::filesystem::remove_all(folder);
}

TEST_F(TernctlTest, PrintsATableForPeople) {
  serve([](std::string_view verb) -> Result<json> {
    EXPECT_EQ(verb, "clients");
    return json::parse(R"([{"id":1,"pid":77,"uid":1000,"gid":100,"job":"train","connected_s":65,
                            "arena_bytes":1073741824,"region_bytes":4096,"groups":1,"ops_in_flight":2,
                            "ops_completed":1500}])");
  });
  const auto result = ternctl({"clients"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "ID  PID   UID  GID  JOB    CONNECTED  ARENA  REGIONS  GROUPS  IN FLIGHT  OPS DONE\n"
            " 1   77  1000  100  train  1 min 5 s  1 GiB    4 KiB       1          2     1,500\n");
  EXPECT_EQ(result.err, "");
}

TEST_F(TernctlTest, PrintsTheResultAsJsonForPrograms) {
  const json peers = json::parse(R"([{"node_id":"n2","lane":0,"round_trip_us":85.5}])");
  serve([peers](std::string_view) -> Result<json> { return peers; });
  const auto result = ternctl({"--json", "peers"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out), peers);
  // Options may follow the verb too.
  EXPECT_EQ(ternctl({"peers", "--json"}).out, result.out);
}

TEST_F(TernctlTest, EveryVerbAsksForItself) {
  serve([](std::string_view verb) -> Result<json> { return json{{"verb", verb}}; });
  for (const char* const verb :
       {"status", "clients", "peers", "groups", "tensors", "counters", "version"}) {
    const auto result = ternctl({verb, "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(json::parse(result.out), (json{{"verb", verb}}));
    EXPECT_EQ(ternctl({verb}).exit_code, 0);
  }
}

TEST_F(TernctlTest, CountersAndVersionAreReadable) {
  serve([](std::string_view verb) -> Result<json> {
    if (verb == "version")
      return json::parse(R"({"version":"9.8.7","wire":1,"shm":1,"control":1})");
    return json::parse(
        R"({"frames_sent":{"value":1234567,"unit":"frames","help":"Frames sent."}})");
  });
  EXPECT_THAT(ternctl({"counters"}).out,
              HasSubstr("frames_sent  1,234,567  frames  Frames sent.\n"));
  EXPECT_THAT(ternctl({"version"}).out,
              HasSubstr("ternd   9.8.7 (wire 1, shared memory 1, control 1)\n"));
}

TEST_F(TernctlTest, ALargeAnswerArrivesWhole) {
  serve([](std::string_view) -> Result<json> { return json(std::string(8'000'000, 'x')); });
  const auto result = ternctl({"tensors", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out).get_ref<const std::string&>().size(), 8'000'000u);
}

TEST_F(TernctlTest, WatchAsksUntilTheDaemonIsGone) {
  serve([this](std::string_view) -> Result<json> {
    if (daemon_.calls > 3) return fail(Errc::shutting_down, "the daemon is stopping");
    return json{{"call", daemon_.calls.load()}};
  });
  const auto result = ternctl({"status", "--json", "--watch", "0.01"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "{\"call\":1}\n{\"call\":2}\n{\"call\":3}\n");
  EXPECT_THAT(result.err, HasSubstr("shutting_down"));
}

TEST_F(TernctlTest, OnlyQuestionsAreWatched) {
  serve([](std::string_view) -> Result<json> { return json{{"draining", false}}; });
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"top"},
                                             {"drain"},
                                             {"drain", "--no-wait"},
                                             {"dump"},
                                             {"trace", "start"},
                                             {"policy", "* lossless"}}) {
    std::vector<std::string> arguments{"--watch", "0.01"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const auto result = ternctl(arguments);
    EXPECT_EQ(result.exit_code, 2) << words.front();
    EXPECT_THAT(result.err, HasSubstr("more than a question")) << words.front();
  }
  EXPECT_EQ(daemon_.calls, 0);
}

TEST_F(TernctlTest, AnEmptyArgumentIsAnArgument) {
  serve([](std::string_view) -> Result<json> { return json{{"text", ""}}; });
  EXPECT_EQ(ternctl({"policy"}).exit_code, 0);
  EXPECT_EQ(daemon_.last_args, json::object());
  EXPECT_EQ(ternctl({"policy", ""}).exit_code, 0);
  EXPECT_EQ(daemon_.last_args.size(), 1u) << "it takes the rules away";
}

TEST_F(TernctlTest, WhatCannotBeWrittenIsAnError) {
  const std::string line = std::string("'") + TERN_TERNCTL + "' doctor >/dev/full";
  const auto result = run_program("/bin/sh", {"-c", line});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("the output cannot be written: No space left on device"));
}

// Who owns the directory of flight records need not be who asks for the archive.
TEST_F(TernctlTest, ADumpFollowsNoLinks) {
  const std::string flights = directory_ + "/flights", secret = directory_ + "/secret";
  std::filesystem::create_directory(flights);
  std::ofstream(secret) << "secret";
  std::ofstream(flights + "/flight-01234567-1.json") << "{}";
  std::filesystem::create_symlink(secret, flights + "/flight-01234567-2.json");
  std::filesystem::create_hard_link(secret, flights + "/flight-01234567-3.json");
  serve([&](std::string_view verb) -> Result<json> {
    if (verb == "host") return json{{"flight_directory", flights}};
    if (verb == "log") return json::array();
    return json::object();
  });
  const std::string archive = directory_ + "/dump.tar.gz";
  const auto result = ternctl({"dump", "--output", archive});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto listed = run_program("/bin/tar", {"--list", "--file", archive});
  EXPECT_THAT(listed.out, HasSubstr("flight-01234567-1.json"));
  EXPECT_THAT(listed.out, Not(HasSubstr("flight-01234567-2.json")));
  EXPECT_THAT(listed.out, Not(HasSubstr("flight-01234567-3.json")));
  for (const std::string& path : {flights, secret, archive}) std::filesystem::remove_all(path);
}

// As where systemd listens for the daemon's sockets.
TEST_F(TernctlTest, ADrainHasEndedWhenAnotherDaemonAnswers) {
  serve([this](std::string_view verb) -> Result<json> {
    EXPECT_EQ(verb, "drain");
    if (daemon_.calls > 2) return json{{"node_id", "b"}, {"draining", false}};
    return json{{"node_id", "a"}, {"draining", true}, {"text", "waits"}};
  });
  const auto result = ternctl({"drain"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "the daemon waits\nthe daemon has ended\n");
  EXPECT_EQ(result.err, "");
}

TEST_F(TernctlTest, ADrainThatSomebodyElseCancelsHasFailed) {
  std::atomic<bool> is_old = false;  // such a daemon says no id
  serve([&](std::string_view) -> Result<json> {
    json report = is_old ? json::object() : json{{"node_id", "a"}};
    report["draining"] = daemon_.calls == 1;
    return report;
  });
  for (const bool old : {false, true}) {
    is_old = old;
    daemon_.calls = 0;
    const auto result = ternctl({"drain"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.err, "ternctl: somebody else has cancelled the drain\n");
  }
}

TEST_F(TernctlTest, HealthIsALineAndAnExitStatus) {
  std::atomic<bool> is_silent = false;
  serve([&](std::string_view verb) -> Result<json> {
    const json silent = is_silent ? json{1} : json::array();
    if (verb == "status") return json{{"lanes", 2}, {"silent_lanes", silent}};
    EXPECT_TRUE(verb == "peers" || verb == "groups") << verb;
    return json::array();
  });
  const auto well = ternctl({"health"});
  EXPECT_EQ(well.exit_code, 0) << well.err;
  EXPECT_THAT(well.out, HasSubstr("OK: up -, 2 lanes"));
  is_silent = true;
  const auto unwell = ternctl({"health"});
  EXPECT_EQ(unwell.exit_code, 7);
  EXPECT_EQ(unwell.out, "FAULT: lane 1 does not answer\n");
  EXPECT_EQ(unwell.err, "");
  EXPECT_EQ(json::parse(ternctl({"health", "--json"}).out)["well"], false);
}

TEST_F(TernctlTest, HealthOfAnAbsentDaemonIsALineToo) {
  const auto result = ternctl({"health"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "FAULT: no ternd answers at " + path_ + ": the socket does not exist.\n");
  EXPECT_EQ(result.err, "");
}

TEST_F(TernctlTest, DoctorLooksAtTheMachineWithoutADaemonToo) {
  const auto result = ternctl({"doctor"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("no ternd answers"));
  for (const char* const subject :
       {"port", "network", "memory lock", "huge pages", "processor", "clock"}) {
    EXPECT_THAT(result.out, HasSubstr(std::string(" ") + subject + ": "));
  }
  EXPECT_THAT(result.out, HasSubstr("RDMA: "));
}

TEST_F(TernctlTest, AnAbsentDaemonIsNamedWithTheRemedy) {
  const auto result = ternctl({"status"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err,
              HasSubstr("no ternd answers at " + path_ + ": the socket does not exist"));
  EXPECT_THAT(result.err, HasSubstr("systemctl start ternd"));
  EXPECT_EQ(ternctl({"--json", "--socket", directory_ + "/other.sock", "status"}).exit_code, 3);
}

TEST_F(TernctlTest, ASocketThatNobodyListensOnIsAnAbsentDaemon) {
  auto file = daemon::SocketFile::listen(path_, SOCK_STREAM, 0600);
  ASSERT_TRUE(file);
  file->take_fd().reset();
  const auto result = ternctl({"status"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("nobody listens"));
}

TEST_F(TernctlTest, ARefusalByTheSocketsModeSaysWhoMay) {
  serve([](std::string_view) -> Result<json> { return json::object(); }, 0000);
  // Root is refused nothing.
  const bool is_root = ::geteuid() == 0;
  const auto result = ternctl({"status"}, {.environment = {}, .as_nobody = is_root});
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_THAT(result.err, HasSubstr("may not connect to " + path_));
  EXPECT_THAT(result.err, HasSubstr("control_socket_mode"));
  EXPECT_EQ(daemon_.calls, 0);
}

TEST_F(TernctlTest, ARefusalByTheDaemonIsPassedOn) {
  serve([](std::string_view) -> Result<json> {
    return fail(Errc::permission_denied, "only root may \x1b[2Jsee this");
  });
  const auto result = ternctl({"clients"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(
      result.err,
      "ternctl: the daemon refuses `clients`: only root may \\x1b[2Jsee this (permission_denied)\n"
      "Use sudo, or have the daemon's configuration name you.\n");
}

TEST_F(TernctlTest, ADaemonThatLacksTheVerbIsTooOld) {
  serve(nullptr);
  const auto result = ternctl({"tensors"});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, HasSubstr("ternd is too old for this ternctl: upgrade ternd"));
}

TEST_F(TernctlTest, ADaemonOfALaterProtocolSaysThatTernctlIsTooOld) {
  pretend(R"({"v":2,"id":1,"ok":false,"error":{"code":"version_mismatch","text":"speaks 2"}})"
          "\n");
  const auto result = ternctl({"status"});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, HasSubstr("upgrade ternctl"));
}

TEST_F(TernctlTest, WhatIsNoDaemonIsNotBelieved) {
  const std::vector<std::string> answers{"",
                                         "hello\n",
                                         "{\"ok\":tr",
                                         "[]\n",
                                         "{}\n",
                                         "{\"ok\":1}\n",
                                         "{\"ok\":true}\n",
                                         "{\"ok\":false}\n",
                                         "{\"ok\":false,\"error\":[]}\n",
                                         "{\"ok\":false,\"error\":{\"code\":1}}\n",
                                         std::string(100'000, 'x')};
  for (const std::string& answer : answers) {
    pretend(answer);
    const auto result = ternctl({"status"});
    EXPECT_EQ(result.exit_code, 6) << answer.substr(0, 60) << "\n" << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err, "");
    thread_.join();
    stranger_ = {};
  }
}

TEST_F(TernctlTest, ADaemonThatHangsIsGivenUp) {
  pretend("", true);
  const auto result = ternctl({"status", "--timeout", "0.05"});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, HasSubstr("did not answer within 50 ms"));
}

TEST_F(TernctlTest, WrongUsageIsExplained) {
  EXPECT_EQ(ternctl({}).exit_code, 2);
  EXPECT_THAT(ternctl({}).err, HasSubstr("--help"));
  EXPECT_THAT(ternctl({"bogus"}).err, HasSubstr("bogus"));
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"bogus"},
                                             {"status", "--bogus"},
                                             {"status", "peers"},
                                             {"--timeout", "0", "status"},
                                             {"--timeout", "nan", "status"},
                                             {"--watch", "-1", "status"},
                                             {"--socket", std::string(200, 'x'), "status"},
                                             {"--socket", "", "status"}}) {
    EXPECT_EQ(ternctl(arguments).exit_code, 2) << arguments.front();
  }
}

TEST_F(TernctlTest, HelpAndVersionNeedNoDaemon) {
  const auto help = ternctl({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* const word : {"status", "clients", "peers", "groups", "tensors", "counters",
                                 "--json", "--watch", "TERN_CONTROL_SOCKET", "Exit status"}) {
    EXPECT_THAT(help.out, HasSubstr(word));
  }
  const auto version = ternctl({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, HasSubstr("ternctl "));
}

}  // namespace
}  // namespace tern::ctl
