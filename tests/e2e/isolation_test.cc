// Two users of one machine: what the second sees of the first user's jobs, and how much the second
// can do and take.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "ctl/control_client.h"
#include "tests/ctl/run_program.h"
#include "tests/e2e/hostile_client.h"
#include "tests/e2e/rank_process.h"

namespace tern::e2e {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uid_t kAlice = 1'000'000'001;
constexpr uid_t kBob = 65'534;  // as whom run_program() can run ternctl

const std::vector<std::string> kForUsers{"version", "status",  "clients",
                                         "groups",  "tensors", "tuner"};
const std::vector<std::string> kForObservers{"peers", "counters", "host",  "settings",
                                             "log",   "trace",    "policy"};

// This process is another user's to the kernel as long as it lives.
class As {
 public:
  explicit As(uid_t user) : groups_(static_cast<std::size_t>(::getgroups(0, nullptr))) {
    EXPECT_GE(::getgroups(static_cast<int>(groups_.size()), groups_.data()), 0);
    EXPECT_EQ(::setgroups(0, nullptr), 0);
    EXPECT_EQ(::setegid(user), 0);
    EXPECT_EQ(::seteuid(user), 0);
  }
  As(const As&) = delete;
  As& operator=(const As&) = delete;
  ~As() {
    EXPECT_EQ(::seteuid(0), 0);
    EXPECT_EQ(::setegid(0), 0);
    EXPECT_EQ(::setgroups(groups_.size(), groups_.data()), 0);
  }

 private:
  std::vector<gid_t> groups_;
};

class Isolation : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  }

  // Nodes have time: what is measured here is not how soon they notice each other's death.
  void start(std::vector<std::string> options = {}) {
    options.insert(options.begin(), {"--peer-timeout", "30s", "--resume-timeout", "30s"});
    cluster = std::make_unique<Cluster>(2, options);
    ASSERT_TRUE(cluster->running());
    cluster->open_to_all();
  }
  // Alice's job on both nodes, with a tensor that the tuner knows.
  void begin_alice() {
    alice = Ranks(*cluster, {1, 1}, "secret-job", kAlice);
    ASSERT_EQ(alice.join(), "");
    for (const Reply& reply :
         alice.ask_all("declare group=g name=secret-layer count=100000 role=gradient")) {
      ASSERT_TRUE(reply.ok()) << reply;
    }
    step(alice, "secret-layer");
  }
  static void step(Ranks& ranks, const std::string& tensor) {
    ranks.ask_all("submit op=x group=g data=real draw=1 tensor=" + tensor);
    ASSERT_EQ(disagreement(ranks.ask_all("wait op=x tolerance=1e30")), "");
  }

  DaemonProcess& node(std::size_t index = 0) { return (*cluster)[index]; }
  Result<json> ask(uid_t user, const std::string& verb, const json& args = json::object()) {
    const As as(user);
    return ctl::ask_daemon(node().control_socket(), verb, args, std::chrono::seconds(20));
  }
  json shown(uid_t user, const std::string& verb) {
    auto answer = ask(user, verb);
    EXPECT_TRUE(answer) << verb << ": " << answer.error().text;
    return answer ? *answer : json();
  }
  // As Bob would run it.
  ctl::ProgramResult ternctl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--socket", node().control_socket()});
    return ctl::run_program(TERN_TERNCTL, arguments, {.environment = {}, .as_nobody = true});
  }

  std::unique_ptr<Cluster> cluster;
  Ranks alice;
};

std::string name_of_first(const json& rows, const char* key) {
  return rows.is_array() && !rows.empty() ? rows[0].value(key, "") : "";
}

// ---- Seeing

TEST_F(Isolation, AUserIsShownHisOwnAndNothingOfOthers) {
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_NO_FATAL_FAILURE(begin_alice());
  // Bob has nothing yet: there is nothing.
  for (const std::string& verb : kForUsers) {
    EXPECT_THAT(shown(kBob, verb).dump(), Not(HasSubstr("secret"))) << verb;
  }
  for (const char* verb : {"clients", "groups", "tensors", "tuner"}) {
    EXPECT_EQ(shown(kBob, verb), json::array()) << verb;
  }
  Ranks bob(*cluster, {1}, "bobs-job", kBob);
  ASSERT_EQ(bob.join(), "");
  ASSERT_TRUE(bob[0].ask("declare group=g name=bobs-layer count=5000").ok());
  step(bob, "bobs-layer");

  EXPECT_EQ(name_of_first(shown(kBob, "clients"), "job"), "bobs-job");
  EXPECT_EQ(name_of_first(shown(kBob, "groups"), "job"), "bobs-job");
  EXPECT_EQ(name_of_first(shown(kBob, "tensors"), "name"), "bobs-layer");
  EXPECT_EQ(name_of_first(shown(kAlice, "clients"), "job"), "secret-job");
  EXPECT_EQ(name_of_first(shown(kAlice, "groups"), "job"), "secret-job");
  EXPECT_EQ(name_of_first(shown(kAlice, "tensors"), "name"), "secret-layer");
  EXPECT_EQ(name_of_first(shown(kAlice, "tuner"), "name"), "secret-layer");
  for (const auto& [user, others] : {std::pair{kBob, "secret"}, std::pair{kAlice, "bobs"}}) {
    for (const std::string& verb : kForUsers) {
      EXPECT_THAT(shown(user, verb).dump(), Not(HasSubstr(others))) << verb;
    }
    for (const char* verb : {"clients", "groups", "tensors"}) {
      EXPECT_EQ(shown(user, verb).size(), 1u) << verb;
      EXPECT_EQ(shown(0, verb).size(), 2u) << verb;
    }
    const json status = shown(user, "status");
    EXPECT_EQ(status["clients"], 1);
    EXPECT_EQ(status["groups"], 1);
    EXPECT_EQ(status["peers"], user == kAlice ? 1 : 0);
    EXPECT_EQ(status["standing"], "user");
    EXPECT_FALSE(status.contains("rss_bytes"));
  }
  const json status = shown(0, "status");
  EXPECT_EQ(status["clients"], 2);
  EXPECT_EQ(status["groups"], 2);
  EXPECT_EQ(status["standing"], "administrator");

  // To Bob Alice's tensor is one that does not exist.
  const json secret{{"tensor", "secret-layer"}};
  const auto of_alice = ask(kBob, "explain", secret);
  const auto of_nobody = ask(kBob, "explain", {{"tensor", "other--layer"}});
  ASSERT_TRUE(!of_alice && !of_nobody);
  EXPECT_EQ(of_alice.error().code, of_nobody.error().code);
  EXPECT_EQ(of_alice.error().text.size(), of_nobody.error().text.size());
  EXPECT_TRUE(ask(kAlice, "explain", secret));
  EXPECT_TRUE(ask(0, "explain", secret));

  // A group that failed is its owner's, also when it is the last thing left of him.
  alice[1].process().signal(SIGKILL);
  ASSERT_TRUE(eventually([&] {
    const json groups = shown(kAlice, "groups");
    return groups.size() == 1 && groups[0]["state"] == "failed";
  }));
  EXPECT_EQ(shown(kBob, "groups").size(), 1u);
  for (const auto& entry : fs::directory_iterator(node().folder())) {
    if (!entry.path().filename().string().starts_with("flight-")) continue;
    struct stat info {};
    ASSERT_EQ(::stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0007u, 0u) << entry.path();
  }
}

TEST_F(Isolation, WhatIsOfAllIsForObserversAndChangingItForAdministrators) {
  const TemporaryFolder folder;
  const std::string config = folder.path() + "/ternd.toml";
  const auto write_config = [&](const std::string& text) { std::ofstream(config) << text; };
  const std::string bob = std::to_string(kBob);
  write_config("[local]\nobservers = \"\"\n");
  ASSERT_NO_FATAL_FAILURE(start({"--config", config}));
  ASSERT_NO_FATAL_FAILURE(begin_alice());
  const auto code_of = [&](const std::string& verb, const json& args = json::object()) {
    const auto answer = ask(kBob, verb, args);
    if (answer) return Errc::ok;
    EXPECT_THAT(answer.error().text, HasSubstr("setting")) << verb;
    return answer.error().code;
  };
  const json status{{"action", "status"}}, rules{{"set", "* lossless"}};
  const std::string counters = node().folder() + "/control.counters";
  const auto readable = [&] {
    const As as(kBob);
    return Fd(::open(counters.c_str(), O_RDONLY | O_CLOEXEC)).get() >= 0;
  };
  for (const std::string& verb : kForObservers) {
    EXPECT_EQ(code_of(verb, verb == "trace" ? status : json::object()), Errc::permission_denied)
        << verb;
  }
  EXPECT_EQ(code_of("policy", rules), Errc::permission_denied);
  EXPECT_EQ(code_of("trace", {{"action", "start"}}), Errc::permission_denied);
  EXPECT_FALSE(readable());

  const auto reload = [&](const std::string& text, const char* standing) {
    write_config(text);
    node().process().signal(SIGHUP);
    EXPECT_TRUE(eventually([&] { return shown(kBob, "status")["standing"] == standing; })) << text;
  };
  reload("[local]\nobservers = \"no-such-user, " + bob + "\"\n", "observer");
  for (const std::string& verb : kForObservers) {
    EXPECT_EQ(code_of(verb, verb == "trace" ? status : json::object()), Errc::ok) << verb;
  }
  EXPECT_EQ(shown(kBob, "groups")[0]["job"], "secret-job");
  EXPECT_EQ(code_of("policy", rules), Errc::permission_denied);
  EXPECT_FALSE(readable());  // he asks; the file is for groups
  EXPECT_TRUE(node().logs("observers: this machine has no user no-such"));

  // By his group, for which a socket has the groups as of its connect.
  reload("[local]\nadministrators = \"@" + bob + "\"\n", "administrator");
  EXPECT_EQ(code_of("policy", rules), Errc::ok);
  // The daemon is root's here, and so is its file's group.
  reload("[local]\nobservers = \"@0\"\n", "user");
  struct stat info {};
  ASSERT_EQ(::stat(counters.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777u, 0640u);
  reload("[local]\nadministrators = \"" + bob + "\"\n", "administrator");
  // A list with a mistake changes nothing.
  write_config("[local]\nadministrators = \"" + bob + ",,\"\n");
  node().process().signal(SIGHUP);
  EXPECT_TRUE(eventually([&] {
    return tail_of(node().log_path()).find("administrators: \"\" is no user") != std::string::npos;
  }));
  EXPECT_EQ(shown(kBob, "status")["standing"], "administrator");
}

TEST_F(Isolation, ToolsShowAUserWhatTheyCan) {
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_NO_FATAL_FAILURE(begin_alice());
  Ranks bob(*cluster, {1}, "bobs-job", kBob);
  ASSERT_EQ(bob.join(), "");
  struct Case {
    std::vector<std::string> arguments;
    int exit_code;
    const char* says;
  };
  const std::string archive = cluster->folder() + "/bob/dump.tar.gz";
  fs::create_directory(cluster->folder() + "/bob");
  ASSERT_EQ(::chown((cluster->folder() + "/bob").c_str(), kBob, kBob), 0);
  const std::vector<Case> cases{
      {{"status"}, 0, "what is this user's"},
      {{"clients"}, 0, "bobs-job"},
      {{"groups"}, 0, "bobs-job"},
      {{"tensors"}, 0, ""},
      {{"tuner"}, 0, ""},
      {{"top", "--once", "--interval", "0.05"}, 0, "bobs-job"},
      {{"top", "tensors", "--once", "--interval", "0.05"}, 0, "tensors"},
      {{"top", "peers", "--once"}, 4, "peers are shown to observers alone"},
      {{"top", "lanes", "--once"}, 4, "lanes are shown to observers alone"},
      {{"health"}, 0, "OK: "},
      {{"doctor"}, 0, "rights: not examined"},
      {{"dump", "--output", archive}, 0, "README inside says what is missing"},
      {{"counters"}, 4, "setting observers"},
      {{"counters", "--file", node().folder() + "/control.counters"}, 4, "observers"},
      {{"peers"}, 4, "setting observers"},
      {{"policy"}, 4, "setting observers"},
      {{"policy", "* lossless"}, 4, "setting administrators"},
      {{"trace", "start"}, 4, "setting observers"},
      {{"trace", "stop", "--output", "/dev/null"}, 4, "setting observers"}};
  for (const Case& one : cases) {
    const auto result = ternctl(one.arguments);
    const std::string said = result.out + result.err;
    EXPECT_EQ(result.exit_code, one.exit_code) << one.arguments.front() << ": " << said;
    EXPECT_THAT(said, HasSubstr(one.says)) << one.arguments.front();
    EXPECT_THAT(said, Not(HasSubstr("secret"))) << one.arguments.front();
  }
  const auto unpacked = ctl::run_program("/usr/bin/tar", {"xzOf", archive});
  EXPECT_THAT(unpacked.out, HasSubstr("counters: the daemon refuses"));
  EXPECT_THAT(unpacked.out, HasSubstr("bobs-job"));
  EXPECT_THAT(unpacked.out, Not(HasSubstr("secret")));
}

// ---- Touching

std::string descriptor_of(pid_t pid, int number) {
  return "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(number);
}

// Whether Bob can open anything of the process through /proc.
bool can_be_opened(pid_t pid) {
  const As as(kBob);
  bool opened = false;
  for (int number = 0; number < 256; ++number) {
    for (const int mode : {O_RDONLY, O_RDWR}) {
      opened = opened || Fd(::open(descriptor_of(pid, number).c_str(), mode | O_CLOEXEC));
    }
  }
  return opened || Fd(::open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDONLY));
}

// The same of memory that is shared with clients, by root.
int count_memory(pid_t pid) {
  int count = 0;
  for (int number = 0; number < 256; ++number) {
    std::error_code error;
    const std::string path = descriptor_of(pid, number);
    if (fs::read_symlink(path, error).string().find("memfd:") == std::string::npos) continue;
    count += Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC)) ? 1 : 0;
  }
  return count;
}

TEST_F(Isolation, AnotherUsersGroupsAndMemoryCannotBeTouched) {
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_NO_FATAL_FAILURE(begin_alice());
  // With all but the secret of its id, on the coordinator's node and on the other.
  std::string forged = alice.id();
  forged.back() = forged.back() == '0' ? '1' : '0';
  for (const std::size_t at : {0u, 1u}) {
    RankProcess bob(node(at), kBob);
    ASSERT_TRUE(bob.connect("bobs-job").ok());
    const Reply joined = bob.ask("join group=g rank=0 size=2 id=" + forged);
    EXPECT_EQ(joined.code, TERN_ERR_BAD_SECRET) << joined;
  }
  {
    // By the numbers that the daemon gives groups and tensors, past the library.
    std::unique_ptr<HostileClient> bob;
    {
      const As as(kBob);
      bob = std::make_unique<HostileClient>(node().socket());
    }
    ASSERT_TRUE(bob->hello());
    const std::uint64_t own = bob->join_alone();
    ASSERT_GT(own, 0u);
    for (std::uint64_t group = 0; group < own; ++group) {
      auto leave = shm::make_packet<shm::GroupLeavePacket>(shm::PacketKind::group_leave, 10);
      leave.group = group;
      auto declare =
          shm::make_packet<shm::TensorDeclarePacket>(shm::PacketKind::tensor_declare, 11);
      declare.group = group;
      declare.count = 1;
      std::strcpy(declare.name, "secret-layer");
      for (const auto& answer :
           {bob->ask<shm::DonePacket>(leave), bob->ask<shm::DonePacket>(declare)}) {
        ASSERT_TRUE(answer.has_value());
        EXPECT_EQ(answer->status, static_cast<std::int32_t>(Errc::unknown_group)) << answer->detail;
      }
      ASSERT_TRUE(bob->submit(HostileClient::good_entry(group, 2 * group)));
      const auto done = bob->completion();
      ASSERT_TRUE(done.has_value());
      EXPECT_NE(done->status, 0);
    }
  }
  // The arena, on both of its ends.
  EXPECT_GE(count_memory(alice[0].process().pid()), 1);
  EXPECT_EQ(count_memory(node().pid()), 0) << "the daemon has its mapping, and no descriptor";
  EXPECT_FALSE(can_be_opened(node().pid()));
  EXPECT_FALSE(can_be_opened(alice[0].process().pid()));
  step(alice, "secret-layer");
}

// ---- Taking

TEST_F(Isolation, QuotasOfOneUserHoldWhileAnothersJobGoesOn) {
  ASSERT_NO_FATAL_FAILURE(
      start({"--max-clients-per-user", "6", "--max-groups-per-user", "4", "--max-tensors-per-user",
             "5", "--max-links-per-user", "1", "--max-ops-in-flight-per-user", "384",
             "--handshake-timeout", "60s"}));
  ASSERT_NO_FATAL_FAILURE(begin_alice());
  alice.tell_all("stream group=g ops=500 tensors=2 large=60000");
  const auto expect_quota = [](const Reply& reply, const std::string& limit) {
    EXPECT_EQ(reply.code, TERN_ERR_QUOTA_EXCEEDED) << reply;
    EXPECT_THAT(reply.text, HasSubstr(limit));
  };

  // Connections that never say hello.
  std::vector<std::unique_ptr<HostileClient>> silent;
  for (int i = 0; i < 40; ++i) {
    const As as(kBob);
    silent.push_back(std::make_unique<HostileClient>(node().socket()));
  }
  for (std::size_t i = 6; i < silent.size(); ++i) {
    const auto packet = silent[i]->receive();
    shm::DonePacket done;
    ASSERT_TRUE(packet && shm::read_packet(packet->bytes, done)) << i;
    EXPECT_EQ(done.status, static_cast<std::int32_t>(Errc::quota_exceeded));
    EXPECT_THAT(done.detail, HasSubstr("max_clients_per_user = 6 connections"));
    EXPECT_TRUE(silent[i]->is_thrown_out());
  }
  {
    // He himself is told so by the library; another user gets in.
    RankProcess bob(node(), kBob), other(node(), kAlice);
    expect_quota(bob.connect(), "max_clients_per_user = 6");
    EXPECT_TRUE(other.connect("second-job").ok());
  }
  silent.clear();

  // Clients.
  std::vector<std::unique_ptr<RankProcess>> bobs;
  const auto connected = [&](std::size_t at) -> RankProcess& {
    bobs.push_back(std::make_unique<RankProcess>(node(at), kBob));
    const Reply reply = bobs.back()->connect("bobs-job", 1 << 20);
    EXPECT_TRUE(reply.ok()) << reply;
    return *bobs.back();
  };
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(eventually([&] {
      bobs.push_back(std::make_unique<RankProcess>(node(), kBob));
      if (bobs.back()->connect("bobs-job", 1 << 20).ok()) return true;
      bobs.pop_back();  // the silent ones are only just gone
      return false;
    }));
  }
  RankProcess late(node(), kBob);
  expect_quota(late.connect(), "max_clients_per_user = 6");

  // Operations in flight: each group reserves 128 of 384. Then groups, with one that gathers.
  const auto join_alone = [](RankProcess& rank, const std::string& name) {
    const std::string id = rank.ask("mint").field("id");
    return rank.ask("join group=" + name + " rank=0 size=1 id=" + id);
  };
  for (const char* name : {"one", "two", "three"}) ASSERT_TRUE(join_alone(*bobs[0], name).ok());
  expect_quota(join_alone(*bobs[1], "four"), "max_ops_in_flight_per_user = 384");
  // Tensors, of all his groups together.
  for (const char* place :
       {"one name=a", "one name=b", "two name=a", "two name=b", "three name=a"}) {
    ASSERT_TRUE(bobs[0]->ask("declare count=100 group=" + std::string(place)).ok()) << place;
  }
  expect_quota(bobs[0]->ask("declare count=100 group=three name=b"), "max_tensors_per_user = 5");
  for (const char* name : {"one", "two", "three"}) {
    ASSERT_TRUE(bobs[0]->ask("leave group=" + std::string(name)).ok());
  }

  // Links: one group over both nodes has the one that he may have; of the next both ranks are told.
  RankProcess &far = connected(1), &further = connected(1);
  const auto join_both = [](RankProcess& here, RankProcess& there) {
    const std::string id = here.ask("mint").field("id");
    here.tell("join group=wide rank=0 size=2 id=" + id);
    there.tell("join group=wide rank=1 size=2 id=" + id);
    const Reply first = here.reply();
    return std::pair{first, there.reply()};
  };
  const auto [first, second] = join_both(*bobs[0], far);
  ASSERT_TRUE(first.ok() && second.ok()) << first << second;
  const auto [third, fourth] = join_both(*bobs[1], further);
  expect_quota(third, "max_links_per_user = 1");
  expect_quota(fourth, "max_links_per_user = 1");

  // The control socket: a flood of his, that never reads.
  std::vector<Fd> flood;
  for (int i = 0; i < 60; ++i) {
    const As as(kBob);
    flood.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = node().control_socket();
    std::memcpy(address.sun_path, path.data(), path.size());
    const void* const generic = &address;
    ASSERT_EQ(::connect(flood.back().get(), static_cast<const sockaddr*>(generic), sizeof(address)),
              0);
  }
  const auto refused = ask(kBob, "status");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text, HasSubstr("too many control clients: user 65534 has 8"));
  EXPECT_EQ(shown(kAlice, "groups").size(), 1u);

  // All of it is counted, the log has it, and Alice has noticed nothing.
  EXPECT_GE(node().counter("quota_refusals"), 34 + 2 + 1 + 1 + 1);
  EXPECT_TRUE(node().logs("uid 65534 was refused: this user has max_clients_per_user = 6"));
  EXPECT_EQ(disagreement(alice.replies()), "");
  step(alice, "secret-layer");
}

}  // namespace
}  // namespace tern::e2e
