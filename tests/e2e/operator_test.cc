// What the operator sees and does: ternctl, verification, several jobs at once, stop and start.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "tests/e2e/rank_process.h"

namespace tern::e2e {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(Operator, SeesDaemonClientsPeersGroupsTensorsAndCounters) {
  Cluster cluster(2, {"--lanes", "2"});
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {2, 1}, "resnet");
  ASSERT_EQ(ranks.join(), "");
  for (const Reply& reply :
       ranks.ask_all("declare group=g name=layer1 count=200000 role=gradient recipe=3lc:s=1")) {
    ASSERT_TRUE(reply.ok()) << reply;
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int use = 0; use < 3; ++use) {
    ranks.ask_all("submit op=x group=g tensor=layer1 data=real draw=" + std::to_string(use));
    ASSERT_EQ(disagreement(ranks.ask_all("wait op=x tolerance=100")), "");
  }

  const json status = cluster[0].ask("status");
  EXPECT_EQ(status["pid"], cluster[0].pid());
  EXPECT_EQ(status["lanes"], 2);
  EXPECT_EQ(status["clients"], 2);
  EXPECT_EQ(status["groups"], 1);
  EXPECT_EQ(status["listen"], cluster[0].address());
  EXPECT_TRUE(eventually([&] { return cluster[0].ask("status")["peers"] == 1; }));

  const json clients = cluster[0].ask("clients");
  ASSERT_EQ(clients.size(), 2u);
  EXPECT_EQ(clients[0]["pid"], ranks[0].process().pid());
  EXPECT_EQ(clients[0]["job"], "resnet");
  EXPECT_EQ(clients[0]["groups"], 1);
  EXPECT_EQ(clients[0]["uid"], ::getuid());

  // The lanes publish their links ten times a second.
  EXPECT_TRUE(eventually([&] {
    int lanes_up = 0;
    for (const json& peer : cluster[0].ask("peers")) {
      if (peer["state"] == "up" && peer["address"] == cluster[1].address() &&
          peer["frames_sent"] > 0 && peer["lane"] != "control") {
        ++lanes_up;
      }
    }
    return lanes_up == 2;
  })) << cluster[0].ask("peers").dump(1);

  EXPECT_TRUE(eventually([&] { return cluster[0].ask("groups")[0]["ops_completed"] == 3; }));
  const json groups = cluster[0].ask("groups");
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0]["state"], "running");
  EXPECT_EQ(groups[0]["size"], 3);
  EXPECT_EQ(groups[0]["nodes"], 2);
  EXPECT_EQ(groups[0]["epoch"], 1);
  EXPECT_EQ(groups[0]["job"], "resnet");
  EXPECT_EQ(groups[0]["local_ranks"], (json{0, 1}));
  EXPECT_EQ(groups[0]["lanes"], 2);
  EXPECT_EQ(groups[0]["error"], "");

  const json tensors = cluster[0].ask("tensors");
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0]["name"], "layer1");
  EXPECT_EQ(tensors[0]["count"], 200000);
  EXPECT_EQ(tensors[0]["role"], "gradient");
  EXPECT_EQ(tensors[0]["recipe"], "ef(3lc:s=1,scale=4096)");
  EXPECT_EQ(tensors[0]["ops"], 3);
  EXPECT_EQ(tensors[0]["state_bytes"], 800000);
  EXPECT_GT(tensors[0]["ratio"], 10.0);
  double spent_ms = 0;
  for (const char* part : {"encode_ms", "queue_ms", "wire_ms", "decode_ms", "wait_ms"}) {
    EXPECT_GT(tensors[0][part], 0.0) << part;
    spent_ms += tensors[0][part].get<double>();
  }
  // Of each of the two lanes, and of ops that came one after the other.
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - begin;
  EXPECT_LE(spent_ms, 2 * passed.count());

  EXPECT_EQ(cluster[0].counter("clients_accepted"), 2);
  EXPECT_EQ(cluster[0].counter("ops_failed"), 0);
  EXPECT_GE(cluster[0].counter("ops_completed"), 3);
  EXPECT_EQ(ranks[0].ask("stats group=g name=layer1").number("ops"), 3);

  // As people see it.
  EXPECT_THAT(cluster[0].ternctl({"status"}), HasSubstr(cluster[0].address()));
  EXPECT_THAT(cluster[0].ternctl({"clients"}), HasSubstr("resnet"));
  EXPECT_THAT(cluster[0].ternctl({"peers"}), HasSubstr(cluster[1].address()));
  EXPECT_THAT(cluster[0].ternctl({"groups"}), HasSubstr("0,1"));
  EXPECT_THAT(cluster[0].ternctl({"tensors"}), HasSubstr("ef(3lc:s=1,scale=4096)"));
  EXPECT_THAT(cluster[0].ternctl({"counters"}), HasSubstr("ops_completed"));
  int exit_code = -1;
  EXPECT_EQ(json::parse(cluster[0].ternctl({"--json", "clients"}, &exit_code)).size(), 2u);
  EXPECT_EQ(exit_code, 0);
}

TEST(Operator, SeesWhichRankIsLate) {
  Cluster cluster(2);
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {2, 2});
  ASSERT_EQ(ranks.join(), "");
  ranks.ask_all("declare group=g name=embedding count=100");
  ASSERT_TRUE(ranks[0].ask("submit op=x group=g tensor=embedding").ok());
  ASSERT_TRUE(ranks[2].ask("submit op=x group=g tensor=embedding").ok());
  ASSERT_TRUE(ranks[3].ask("submit op=x group=g tensor=embedding").ok());
  EXPECT_TRUE(eventually([&] {
    return cluster[0]
               .ternctl({"groups"})
               .find("all_reduce of embedding: waiting for ranks 1 for") != std::string::npos;
  })) << cluster[0].ternctl({"groups"});
  // The other node is told; rank 0 has come and is not blamed.
  EXPECT_TRUE(eventually([&] {
    return cluster[1]
               .ternctl({"groups"})
               .find("all_reduce of embedding: waiting for ranks 1 for") != std::string::npos;
  })) << cluster[1].ternctl({"groups"});
  EXPECT_EQ(ranks[0].ask("wait op=x ms=10").code, TERN_ERR_TIMEOUT);
  ASSERT_TRUE(ranks[1].ask("submit op=x group=g tensor=embedding").ok());
  EXPECT_EQ(disagreement(ranks.ask_all("wait op=x")), "");
  EXPECT_TRUE(eventually([&] { return cluster[0].ask("groups")[0]["waiting"].empty(); }));
}

TEST(Operator, SeesWhoIsMissingFromAJoin) {
  Cluster cluster(2);
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {1, 1});
  const std::string id = ranks[0].ask("mint").field("id");
  ranks[1].tell("join group=g rank=1 size=3 id=" + id + " timeout=700");
  EXPECT_TRUE(eventually([&] {
    return cluster[1].ternctl({"groups"}).find("waiting for ranks 0,2") != std::string::npos;
  })) << cluster[1].ternctl({"groups"});
  const Reply joined = ranks[1].reply();
  EXPECT_EQ(joined.code, TERN_ERR_TIMEOUT) << joined;
  EXPECT_THAT(joined.text, HasSubstr("0,2"));
  EXPECT_TRUE(cluster[1].ask("groups").empty());
}

TEST(Operator, ComparesEveryResultWithVerification) {
  Cluster cluster(2, {"--verify", "true"});
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {2, 1});
  ASSERT_EQ(ranks.join(), "");
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=50")), "");
}

TEST(Operator, IsToldByVerificationWhichRankDiffers) {
  Cluster cluster(2, {"--verify", "true"});
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {2, 1});
  ASSERT_EQ(ranks.join(), "");
  // Its writes have to fall between a chunk's arrival and the comparison: they do, unless the
  // kernel runs something else all the while.
  bool found = false;
  for (int use = 0; use < 50 && !found; ++use) {
    ASSERT_TRUE(ranks[1].ask("submit op=x group=g count=2000000").ok());
    ranks[1].tell("wait op=x scribble=1");
    for (const std::size_t rank : {0u, 2u}) {
      ASSERT_TRUE(ranks[rank].ask("submit op=x group=g count=2000000").ok());
    }
    for (const std::size_t rank : {0u, 2u}) ranks[rank].tell("wait op=x");
    const auto replies = ranks.replies();
    found = replies[0].code == TERN_ERR_RESULT_MISMATCH;
    if (!found) continue;
    for (const Reply& reply : replies) {
      EXPECT_EQ(reply.code, TERN_ERR_RESULT_MISMATCH) << reply;
      EXPECT_THAT(reply.text, HasSubstr("differs from the other ranks' on rank 1"));
    }
  }
  EXPECT_TRUE(found);
  for (std::size_t node = 0; node < 2; ++node) {
    EXPECT_TRUE(cluster[node].logs("result_mismatch: the result differs from the other ranks'"));
    EXPECT_GE(cluster[node].counter("ops_failed"), 1);
  }
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=20")), "");
}

TEST(Operator, RunsSeveralJobsAndGroupsAtOnce) {
  Cluster cluster(3, {"--lanes", "2"});
  ASSERT_TRUE(cluster.running());
  Ranks first(cluster, {1, 1, 1}, "first"), second(cluster, {2, 0, 1}, "second");
  Ranks alone(cluster, {0, 2, 0}, "alone");
  ASSERT_EQ(first.join("a", "", 0), "");
  ASSERT_EQ(first.join("b", "", 2), "");
  ASSERT_EQ(second.join("a", "", 1), "");
  ASSERT_EQ(alone.join("a"), "");
  EXPECT_EQ(cluster[0].ask("groups").size(), 3u);
  for (Ranks* ranks : {&first, &second, &alone}) {
    ranks->tell_all("stream group=a ops=200 tensors=3 window=10 large=60000");
  }
  for (Ranks* ranks : {&first, &second, &alone}) EXPECT_EQ(disagreement(ranks->replies()), "");
  EXPECT_EQ(disagreement(first.ask_all("stream group=b ops=50")), "");
  for (const Reply& reply : first.ask_all("leave group=a")) EXPECT_TRUE(reply.ok()) << reply;
  EXPECT_EQ(disagreement(first.ask_all("stream group=b ops=50")), "");
  EXPECT_EQ(disagreement(second.ask_all("stream group=a ops=50")), "");
}

TEST(Operator, NeedsNoNetworkForAGroupOnOneNode) {
  Cluster cluster(1, {"--lanes", "2"});
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {3});
  ASSERT_EQ(ranks.join(), "");
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=100 large=200000")), "");
  EXPECT_TRUE(cluster[0].ask("peers").empty()) << cluster[0].ask("peers").dump(1);
}

TEST(Operator, RunsSixteenNodes) {
  Cluster cluster(16, {"--send-slabs", "16", "--receive-slabs", "16", "--result-slabs", "16"});
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, std::vector<int>(16, 1));
  ASSERT_EQ(ranks.join(), "");
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=20 count=300 large=40000 window=4")),
            "");
  for (const Reply& reply : ranks.ask_all("submit op=x group=g kind=broadcast root=7 count=5000")) {
    ASSERT_TRUE(reply.ok()) << reply;
  }
  EXPECT_EQ(disagreement(ranks.ask_all("wait op=x")), "");
}

// ---- Stop and start -----------------------------------------------------------------------------

bool is_orderly_end(const Reply& reply) {
  return reply.code == TERN_ERR_SHUTTING_DOWN || reply.code == TERN_ERR_DAEMON_LOST ||
         reply.code == TERN_ERR_PEER_LOST || reply.code == TERN_ERR_GROUP_LEFT;
}

TEST(Operator, StopsADaemonInTheMiddleOfTheWork) {
  Cluster cluster(2, {"--lanes", "2"});
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {2, 1});
  ASSERT_EQ(ranks.join(), "");
  ranks.tell_all("stream group=g ops=0");
  ASSERT_TRUE(eventually([&] { return cluster[0].counter("ops_completed") > 100; }));
  cluster[0].process().signal(SIGTERM);
  const auto exit = cluster[0].process().wait_exit();
  ASSERT_TRUE(exit.has_value()) << "the daemon has not stopped";
  EXPECT_EQ(exit->status, 0);
  EXPECT_EQ(exit->signal, 0);
  EXPECT_FALSE(std::filesystem::exists(cluster[0].socket()));
  EXPECT_FALSE(std::filesystem::exists(cluster[0].control_socket()));
  for (const Reply& reply : ranks.replies()) EXPECT_TRUE(is_orderly_end(reply)) << reply;
  EXPECT_EQ(cluster[0].ternctl({"status"}).find("ternd 0"), std::string::npos);

  // The same programs, after the daemon has come back.
  ASSERT_TRUE(cluster[0].restart());
  for (const std::size_t rank : {0u, 1u}) {
    ranks[rank].ask("disconnect");
    ASSERT_TRUE(ranks[rank].connect().ok());
  }
  ranks[2].ask("leave group=g");
  ASSERT_EQ(ranks.join(), "");
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=50")), "");
}

TEST(Operator, StopsAnIdleDaemonAtOnce) {
  Cluster cluster(1);
  ASSERT_TRUE(cluster.running());
  cluster[0].process().signal(SIGINT);
  const auto exit = cluster[0].process().wait_exit();
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->status, 0);
}

void write_file(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::trunc) << text;
}

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Operator, ChangesSettingsOfARunningDaemon) {
  TemporaryFolder folder;
  const std::string config = folder.path() + "/ternd.toml";
  write_file(config, "[codec]\ndefault_gradient_recipe = \"bf16\"\n");
  Cluster cluster(1, {"--config", config});
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {1});
  ASSERT_EQ(ranks.join(), "");
  const auto recipe_of = [&](const std::string& name) {
    EXPECT_TRUE(ranks[0].ask("declare group=g name=" + name + " count=10000 role=gradient").ok());
    for (const json& tensor : cluster[0].ask("tensors")) {
      if (tensor["name"].get<std::string>() == name) return tensor["recipe"].get<std::string>();
    }
    return std::string("not there");
  };
  const auto logged = [&](const std::string& text) {
    return eventually(
        [&] { return file_text(cluster[0].log_path()).find(text) != std::string::npos; });
  };
  EXPECT_EQ(recipe_of("before"), "none(bf16)");

  // What needs a restart stays, and is named.
  write_file(config, "[codec]\ndefault_gradient_recipe = \"fp16\"\n[lanes]\nlanes = 3\n");
  cluster[0].process().signal(SIGHUP);
  ASSERT_TRUE(logged("the configuration was read again")) << file_text(cluster[0].log_path());
  EXPECT_TRUE(logged("lanes: stays 1 until a restart")) << file_text(cluster[0].log_path());
  EXPECT_EQ(recipe_of("after"), "none(fp16)");
  EXPECT_EQ(cluster[0].ask("status")["lanes"], 1);

  // A mistake leaves everything as it was.
  write_file(config, "[codec]\ndefault_gradient_recipe = \"3lc:s=1\"\nlossy_min = 1\n");
  cluster[0].process().signal(SIGHUP);
  ASSERT_TRUE(logged("unknown key \"lossy_min\"")) << file_text(cluster[0].log_path());
  EXPECT_EQ(recipe_of("mistake"), "none(fp16)");
}

// Also if only a part of the daemon finds it, or if only what stays until a restart is against it.
TEST(Operator, AMistakeAmongSettingsChangesNone) {
  TemporaryFolder folder;
  const std::string config = folder.path() + "/ternd.toml";
  write_file(config, "");
  Cluster cluster(1, {"--config", config});
  ASSERT_TRUE(cluster.running());
  for (const auto& [text, complaint] :
       {std::pair{"[ops]\nop_timeout = \"7s\"\n[tuner]\npolicy = \"w nonsense\"\n",
                  "stays as it was: policy: "},
        {"[ops]\nop_timeout = \"7s\"\nmax_ops_in_flight = 16\n[limits]\nmax_ops_in_flight_per_user "
         "= 64\n",
         "stays as it was: max_ops_in_flight_per_user: 64 leaves a user no group"}}) {
    write_file(config, text);
    cluster[0].process().signal(SIGHUP);
    EXPECT_TRUE(cluster[0].logs(complaint)) << file_text(cluster[0].log_path());
    for (const json& setting : cluster[0].ask("settings")) {
      EXPECT_TRUE(setting["name"] != "op_timeout" || setting["value"] != "7s");
    }
  }
  Ranks ranks(cluster, {1});
  EXPECT_EQ(ranks.join(), "");
}

TEST(Operator, IsToldThatADaemonRunsAlready) {
  Cluster cluster(1);
  ASSERT_TRUE(cluster.running());
  Process second(TERN_TERND,
                 {"--listen", "127.0.0.1:0", "--socket", cluster[0].socket(), "--control-socket",
                  cluster[0].folder() + "/other.sock"},
                 cluster.folder() + "/second.log");
  const auto exit = second.wait_exit();
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->status, 1);
  EXPECT_THAT(tail_of(cluster.folder() + "/second.log"), HasSubstr(cluster[0].socket()));
  EXPECT_TRUE(cluster[0].ask("status").is_object());
}

// Under a sanitizer it maps more than there is.
#if !defined(TERN_SANITIZES)
TEST(Operator, IsToldThatThereIsNoRoomForTheSlabsOfLanes) {
  const TemporaryFolder folder;
  const std::string log = folder.path() + "/log";
  Process daemon("/bin/sh",
                 {"-c", "ulimit -v 4000000; exec \"$@\"", "sh", TERN_TERND, "--listen",
                  "127.0.0.1:0", "--socket", folder.path() + "/ternd.sock", "--control-socket",
                  folder.path() + "/control.sock", "--receive-slabs", "65536"},
                 log);
  const auto exit = daemon.wait_exit();
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->status, 1);
  EXPECT_THAT(tail_of(log), HasSubstr("lanes: no room for their slabs: cannot map"));
}
#endif

// ---- Configuration ------------------------------------------------------------------------------

struct BadFile {
  const char* name;
  const char* text;
  std::vector<const char*> says;
};

class Configuration : public ::testing::TestWithParam<BadFile> {};

TEST_P(Configuration, IsRefusedWithFileLineAndWhatIsAllowed) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/ternd.toml", log = folder.path() + "/log";
  if (FILE* file = std::fopen(path.c_str(), "w")) {
    std::fputs(GetParam().text, file);
    std::fclose(file);
  }
  Process daemon(TERN_TERND, {"--config", path}, log);
  const auto exit = daemon.wait_exit();
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->status, 2);
  const std::string text = tail_of(log);
  EXPECT_THAT(text, HasSubstr("ternd.toml"));
  for (const char* part : GetParam().says) EXPECT_THAT(text, HasSubstr(part));
}

INSTANTIATE_TEST_SUITE_P(
    Files, Configuration,
    ::testing::Values(
        BadFile{"UnknownKey", "[ops]\n\nchunk_byte = \"1MiB\"\n", {":3:", "chunk_byte"}},
        BadFile{"OutOfRange", "[lanes]\nlanes = 17\n", {":2:", "1 to 16"}},
        BadFile{"WrongType", "[network]\nlisten = 7\n", {":2:", "listen"}},
        BadFile{"NotToml", "[network\n", {":1:"}},
        BadFile{"TwoMistakes",
                "[lanes]\nlanes = 0\n[ops]\nchunk_bytes = \"3KiB\"\n",
                {":2:", ":4:", "a power of two"}}),
    [](const auto& one) { return std::string(one.param.name); });

// A supervisor need not start it again.
TEST(Operator, AMistakeThatAPartOfTheDaemonFindsHasTheStatusOfOne) {
  const TemporaryFolder folder;
  const std::string log = folder.path() + "/log";
  for (const auto& [option, text] : {std::pair{"policy", "w nonsense"},
                                     {"default-gradient-recipe", "3lc:s=9"},
                                     {"candidates", "bf16"},
                                     {"kernel-target", "abacus"}}) {
    Process daemon(TERN_TERND, {std::string("--") + option, text}, log);
    const auto exit = daemon.wait_exit();
    ASSERT_TRUE(exit.has_value());
    EXPECT_EQ(exit->status, 2) << option << ": " << tail_of(log);
  }
}

}  // namespace
}  // namespace tern::e2e
