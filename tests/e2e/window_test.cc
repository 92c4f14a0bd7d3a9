// What tools see of a daemon that works, that has been killed, and that somebody pesters.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/ctl/run_program.h"
#include "tests/ctl/trace_schema.h"
#include "tests/e2e/rank_process.h"
#include "tests/e2e/unpacked.h"

namespace tern::e2e {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

json json_of(const fs::path& path) {
  std::ifstream file(path);
  return json::parse(file, nullptr, false);
}

fs::path counters_of(const DaemonProcess& daemon) { return daemon.folder() + "/control.counters"; }

// ---- Counters

TEST(Window, CountersAreReadAfterTheDaemonWasKilled) {
  Cluster cluster(1, {"--lanes", "2"});
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {2}, "resnet");
  ASSERT_EQ(ranks.join(), "");
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=100 large=200000")), "");
  const std::int64_t entries = cluster[0].counter("entries");
  ASSERT_GE(entries, 200);
  const pid_t pid = cluster[0].pid();
  const auto alive = ctl::run_program(
      TERN_TERNCTL, {"--json", "counters", "--file", counters_of(cluster[0]).string()});
  EXPECT_EQ(alive.exit_code, 0) << alive.err;
  EXPECT_THAT(alive.err, HasSubstr("is running"));
  EXPECT_EQ(json::parse(alive.out)["entries"]["value"], entries);

  cluster[0].process().signal(SIGKILL);
  ASSERT_TRUE(cluster[0].process().wait_exit().has_value());
  const auto dead = ctl::run_program(
      TERN_TERNCTL, {"--socket", cluster[0].control_socket(), "--json", "counters"});
  EXPECT_EQ(dead.exit_code, 0) << dead.err;
  EXPECT_THAT(dead.err, HasSubstr("does not answer"));
  EXPECT_THAT(dead.err, HasSubstr("pid " + std::to_string(pid)));
  EXPECT_THAT(dead.err, HasSubstr("is dead"));
  const json last = json::parse(dead.out);
  EXPECT_EQ(last["entries"]["value"], entries);
  EXPECT_EQ(last["clients_accepted"]["value"], 2);
  EXPECT_EQ(last["lane_busy_ns"]["unit"], "ns");
  EXPECT_EQ(last["lane_busy_ns"]["lanes"].size(), 2u);

  // The next daemon counts from zero, and in order it leaves nothing behind.
  ASSERT_TRUE(cluster[0].restart());
  EXPECT_EQ(cluster[0].counter("entries"), 0);
  cluster[0].process().signal(SIGTERM);
  ASSERT_TRUE(cluster[0].process().wait_exit().has_value());
  EXPECT_FALSE(fs::exists(counters_of(cluster[0])));
  int exit_code = 0;
  EXPECT_THAT(cluster[0].ternctl({"counters"}, &exit_code), HasSubstr("no ternd answers"));
  EXPECT_EQ(exit_code, 3);
}

TEST(Window, CountersAreForThoseWhoMayAsk) {
  // The file's group is that of the daemon.
  const std::string own = "@" + std::to_string(::getegid());
  for (const auto& [observers, file_mode] : std::map<std::string, unsigned>{
           {"", 0600}, {own, 0640}, {"@4000000000", 0600}, {"4000000001, " + own, 0640}}) {
    Cluster cluster(1, {"--observers", observers});
    ASSERT_TRUE(cluster.running());
    struct stat info {};
    ASSERT_EQ(::stat(counters_of(cluster[0]).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, file_mode);
  }
}

TEST(Window, EveryCounterMetricAndEventIsOnThePage) {
  std::ifstream file(TERN_COUNTERS_PAGE);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const auto printed = ctl::run_program(TERN_TERND, {"--print-counters-markdown"});
  EXPECT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_TRUE(printed.out == page)
      << "docs/counters.md is old; write it anew with `ternd --print-counters-markdown`";
  // And the daemon shows no other.
  Cluster cluster(1);
  ASSERT_TRUE(cluster.running());
  const json counters = cluster[0].ask("counters");
  EXPECT_GT(counters.size(), 30u);
  for (const auto& [name, counter] : counters.items()) {
    EXPECT_THAT(page, HasSubstr("| `" + name + "` | " + counter["kind"].get<std::string>()));
  }
}

TEST(Window, NoFileIsBelieved) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/control.counters";
  std::ofstream(path) << std::string(10'000, 'T');
  const auto result = ctl::run_program(TERN_TERNCTL, {"counters", "--file", path});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr(path + ": not a counters file"));
}

// ---- Traces

// Under sanitizers no codec is faster than memory, which is what daemons of one machine have for a
// link: the tuner stays raw, and is right.
#if defined(TERN_SANITIZES)
constexpr bool kCodecsPay = false;
#else
constexpr bool kCodecsPay = true;
#endif

class Trace : public ::testing::Test {
 protected:
  Trace() : cluster(2, {"--lanes", "2", "--chunk-bytes", "64KiB"}) {}

  void begin() {
    ASSERT_TRUE(cluster.running());
    ranks = Ranks(cluster, {1, 1}, "resnet");
    ASSERT_EQ(ranks.join(), "");
    // One that the tuner chooses for, and one that is encoded whatever it chooses.
    for (const char* tensor : {"layer1", "layer2 recipe=3lc:s=1"}) {
      const std::string more = std::string(" role=gradient count=200001 name=") + tensor;
      for (const Reply& reply : ranks.ask_all("declare group=g" + more)) {
        ASSERT_TRUE(reply.ok()) << reply;
      }
    }
  }
  void step(const std::string& tensor = "layer1") {
    ranks.ask_all("submit op=x group=g data=real draw=1 tensor=" + tensor);
    ASSERT_EQ(disagreement(ranks.ask_all("wait op=x tolerance=1e30")), "");
  }
  json state(std::size_t node) {
    return json::parse(cluster[node].ternctl({"--json", "trace", "status"}), nullptr, false);
  }
  std::string file(const std::string& name) const { return cluster.folder() + "/" + name; }

  Cluster cluster;
  Ranks ranks;
};

// (tensor, sequence, lane) of the ops of one process, and when they were.
std::map<std::string, std::pair<double, double>> ops_of(const json& document, int pid) {
  std::map<std::string, std::pair<double, double>> ops;
  std::map<std::string, std::string> names;  // by id
  for (const json& event : document["traceEvents"]) {
    if (event["pid"] != pid || event.value("cat", "") != "op") continue;
    const std::string id = event["id2"]["local"];
    if (event["ph"] == "b") {
      names[id] = event["args"]["tensor"].get<std::string>() + "/" +
                  event["args"]["sequence"].dump() + "/" + event["tid"].dump();
      ops[names[id]].first = event["ts"];
    } else {
      ops[names[id]].second = event["ts"];
    }
  }
  return ops;
}

TEST_F(Trace, OfTwoDaemonsOpensAsOneAndShowsARecipeChange) {
  ASSERT_TRUE(cluster.running());
  for (const std::size_t node : {0u, 1u}) {
    EXPECT_THAT(cluster[node].ternctl({"trace", "start"}), HasSubstr("Recording"));
  }
  begin();
  // A change of the rules makes the tuner choose anew, whatever it has measured.
  cluster[0].ternctl({"policy", "* lossless"});
  cluster[1].ternctl({"policy", "* lossless"});
  for (int i = 0; i < 10; ++i) step();
  step("layer2");
  cluster[0].ternctl({"policy", "* aggressive"});
  cluster[1].ternctl({"policy", "* aggressive"});
  const std::size_t changes = kCodecsPay ? 2 : 1;  // the first is that the tensor is tuned
  ASSERT_TRUE(eventually([&] {
    step();
    return state(0)["changes"].size() >= changes;
  })) << cluster[0].ternctl({"tuner"});
  for (const std::size_t node : {0u, 1u}) {
    int exit_code = -1;
    const std::string said = cluster[node].ternctl(
        {"trace", "stop", "--output", file("trace" + std::to_string(node))}, &exit_code);
    ASSERT_EQ(exit_code, 0) << said;
  }
  const json first = json_of(file("trace0"));
  EXPECT_EQ(ctl::trace_fault(first), "");
  std::set<std::string> seen;
  bool changed = false;
  for (const json& event : first["traceEvents"]) {
    const std::string name = event["name"];
    seen.insert(name.substr(0, name.find(' ')));
    if (event.value("cat", "") != "recipe" || event["args"]["from"] == "") continue;
    changed = true;
    EXPECT_EQ(event["args"]["tensor"], "layer1");
    EXPECT_NE(event["args"]["reason"], "");
    EXPECT_NE(event["args"]["to"], "");
  }
  EXPECT_TRUE(changed || !kCodecsPay);
  for (const char* kind : {"all_reduce", "wait", "wire", "encode", "decode", "recipe"}) {
    EXPECT_TRUE(seen.contains(kind)) << kind;
  }

  int exit_code = -1;
  const std::string said = cluster[0].ternctl(
      {"trace", "merge", file("trace0"), file("trace1"), "--output", file("merged")}, &exit_code);
  ASSERT_EQ(exit_code, 0) << said;
  EXPECT_THAT(said, HasSubstr("its clock is known to"));
  const json merged = json_of(file("merged"));
  EXPECT_EQ(ctl::trace_fault(merged), "");
  // An op ends on no node before it has begun on the other, as far as the clocks are known.
  double error_us = 0;
  for (const json& document : {first, json_of(file("trace1"))}) {
    for (const json& clock : document["otherData"]["clocks"]) {
      error_us = std::max(error_us, clock["error_ns"].get<double>() / 1e3);
    }
  }
  const auto here = ops_of(merged, 1), there = ops_of(merged, 2);
  int compared = 0;
  for (const auto& [name, time] : here) {
    const auto other = there.find(name);
    if (other == there.end()) continue;
    ++compared;
    EXPECT_LT(time.first, other->second.second + error_us) << name;
    EXPECT_LT(other->second.first, time.second + error_us) << name;
  }
  EXPECT_GE(compared, 10);
}

TEST_F(Trace, IsNotLostWhenItCannotBeWritten) {
  begin();
  int exit_code = -1;
  const auto stop = [&](const std::string& path) {
    return cluster[0].ternctl({"trace", "stop", "--output", path}, &exit_code);
  };
  EXPECT_THAT(stop(file("none")), HasSubstr("ternctl trace start"));
  EXPECT_EQ(exit_code, 1);
  EXPECT_FALSE(fs::exists(file("none")));
  cluster[0].ternctl({"trace", "start"}, &exit_code);
  EXPECT_EQ(exit_code, 0);
  EXPECT_THAT(cluster[0].ternctl({"trace", "start"}, &exit_code), HasSubstr("being recorded"));
  EXPECT_EQ(exit_code, 1);
  for (int i = 0; i < 5; ++i) step();
  // Nobody can write there: it goes on.
  EXPECT_THAT(stop("/nonexistent/trace"), HasSubstr("Nothing was stopped"));
  EXPECT_EQ(exit_code, 1);
  EXPECT_EQ(state(0)["state"], "on");
  // Full at the end: it can be fetched again, and jobs go on meanwhile.
  EXPECT_THAT(stop("/dev/full"), HasSubstr("No space left on device"));
  EXPECT_EQ(exit_code, 1);
  EXPECT_EQ(state(0)["state"], "off");
  step();
  EXPECT_THAT(stop(file("second")), HasSubstr("events in"));
  EXPECT_EQ(exit_code, 0);
  const json document = json_of(file("second"));
  EXPECT_EQ(ctl::trace_fault(document), "");
  EXPECT_GE(ops_of(document, cluster[0].pid()).size(), 5u);
}

// ---- Dump

TEST(Window, ADumpHoldsWhatAReportNeedsAndNoSecret) {
  Cluster cluster(2);
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {1, 1}, "resnet");
  ASSERT_EQ(ranks.join(), "");
  ranks.ask_all("declare group=g name=layer1 count=1000");
  ranks.ask_all("submit op=x group=g tensor=layer1 data=real draw=1");
  EXPECT_EQ(disagreement(ranks.ask_all("wait op=x")), "");
  int exit_code = -1;
  const std::string archive = cluster.folder() + "/dump.tar.gz";
  const std::string said = cluster[0].ternctl({"dump", "--output", archive}, &exit_code);
  ASSERT_EQ(exit_code, 0) << said;
  const std::string all = unpacked(archive, cluster.folder() + "/dump");
  for (const char* name : {"README", "version.json", "status.json", "settings.json", "clients.json",
                           "peers.json", "groups.json", "tensors.json", "counters.json",
                           "tuner.json", "doctor", "counters-file.json", "log"}) {
    EXPECT_THAT(all, HasSubstr("\n==== " + std::string(name) + "\n"));
  }
  EXPECT_THAT(all, HasSubstr("layer1"));
  EXPECT_THAT(all, HasSubstr("op_timeout"));
  EXPECT_THAT(all, HasSubstr("ternd 0."));  // the log's first line
  // tern1:HOST:PORT:UID:SECRET
  const std::string id = ranks.id(), secret = id.substr(id.rfind(':') + 1);
  ASSERT_EQ(secret.size(), 64u) << id;
  EXPECT_EQ(all.find(secret), std::string::npos);
  EXPECT_EQ(all.find(secret.substr(0, 16)), std::string::npos);

  // Of a daemon that has died: what is left.
  cluster[0].process().signal(SIGKILL);
  ASSERT_TRUE(cluster[0].process().wait_exit().has_value());
  const std::string last = cluster.folder() + "/last.tar.gz";
  EXPECT_THAT(cluster[0].ternctl({"dump", "--output", last}, &exit_code), HasSubstr("is missing"));
  EXPECT_EQ(exit_code, 0);
  const std::string rest = unpacked(last, cluster.folder() + "/last");
  EXPECT_THAT(rest, HasSubstr("status: "));  // among what is missing
  EXPECT_THAT(rest, HasSubstr("is dead"));
  EXPECT_THAT(rest, HasSubstr("clients_accepted"));
  EXPECT_THAT(rest, HasSubstr("huge pages"));
  EXPECT_EQ(rest.find(secret), std::string::npos);
}

// ---- Peers, and who pesters

TEST(Window, PeersSayTheirVersionAndTheirClock) {
  Cluster cluster(2);
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {1, 1});
  ASSERT_EQ(ranks.join(), "");
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=50 large=100000")), "");
  const std::string version = cluster[0].ask("version")["version"];
  for (const std::size_t node : {0u, 1u}) {
    EXPECT_TRUE(eventually([&] {
      for (const json& peer : cluster[node].ask("peers")) {
        if (peer["lane"] != "control" || peer.value("software", "") != version) continue;
        if (!peer.contains("calendar_skew_ms")) continue;
        // One machine: one calendar.
        EXPECT_LE(std::abs(peer["calendar_skew_ms"].get<double>()),
                  peer["calendar_error_ms"].get<double>() + 5);
        return true;
      }
      return false;
    })) << cluster[node].ask("peers").dump(1);
  }
  EXPECT_EQ(cluster[0].counter("bad_control_messages"), 0);
}

TEST(Window, TopSeesTheWork) {
  Cluster cluster(2);
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {1, 1}, "resnet");
  ASSERT_EQ(ranks.join(), "");
  ranks.tell_all("stream group=g ops=0 large=100000 tensors=2");
  ASSERT_TRUE(eventually([&] { return cluster[0].counter("ops_completed") > 50; }));
  for (const char* view : {"jobs", "tensors", "peers", "lanes"}) {
    int exit_code = -1;
    const std::string text =
        cluster[0].ternctl({"top", view, "--once", "--json", "--interval", "0.2"}, &exit_code);
    ASSERT_EQ(exit_code, 0) << text;
    const json rows = json::parse(text, nullptr, false)["rows"];
    ASSERT_FALSE(rows.empty()) << text;
    double moves = 0;
    for (const json& row : rows) {
      for (const char* key : {"ops_s", "frames_s", "blocks_s"}) moves += row.value(key, 0.0);
    }
    EXPECT_GT(moves, 0) << view << ": " << text;
  }
  cluster[0].process().signal(SIGTERM);
  ranks.replies();
}

// Connected to the control socket, and never reads.
Fd pester(const DaemonProcess& daemon, std::string_view text) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = daemon.control_socket();
  std::memcpy(address.sun_path, path.data(), path.size());
  const void* const generic = &address;
  if (::connect(fd.get(), static_cast<const sockaddr*>(generic), sizeof(address)) != 0) return Fd();
  ::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
  return fd;
}

TEST(Window, NobodyAtTheControlSocketHoldsUpTheJobs) {
  Cluster cluster(2);
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {1, 1});
  ASSERT_EQ(ranks.join(), "");
  std::string many;
  for (int i = 0; i < 2000; ++i) many += "{\"v\":1,\"id\":1,\"verb\":\"counters\"}\n";
  std::vector<Fd> clients;
  for (const std::string_view text :
       {std::string_view("{\"v\":1,\"id\":1,\"verb\":\"sta"), std::string_view(many),
        std::string_view(""), std::string_view("\n\n\n[[[[")}) {
    for (int i = 0; i < 30; ++i) clients.push_back(pester(cluster[0], text));
  }
  int exit_code = 0;
  const std::string refused = cluster[0].ternctl({"status"}, &exit_code);
  EXPECT_EQ(exit_code, 1) << refused;
  EXPECT_THAT(refused, HasSubstr("too many control clients"));
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=50 large=100000")), "");
  clients.clear();
  EXPECT_TRUE(eventually([&] { return cluster[0].ask("status").is_object(); }));
  const Holdings holdings = cluster[0].holdings();
  EXPECT_LT(holdings.descriptors, 100u);

  // And what is no verb, or no argument, is said so.
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"explain", std::string(70'000, 'x')},
        std::vector<std::string>{"trace", "merge", "/dev/null", "--output", "-"},
        std::vector<std::string>{"counters", "--file", "/dev/zero"}}) {
    const std::string said = cluster[0].ternctl(wrong, &exit_code);
    EXPECT_NE(exit_code, 0) << wrong.front();
    EXPECT_THAT(said, HasSubstr("ternctl: ")) << wrong.front();
  }
}

}  // namespace
}  // namespace tern::e2e
