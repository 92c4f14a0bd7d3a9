// A disk without room: whoever wanted to write says so, what was there before stays as it was, and
// jobs go on.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "ctl/control_client.h"
#include "tests/ctl/run_program.h"
#include "tests/e2e/rank_process.h"
#include "tuner/choice_log.h"

namespace tern::e2e {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr const char* kNoSpace = "No space left on device";

// A file system in memory of some pages.
class SmallDisk {
 public:
  SmallDisk() {
    const std::string size = "mode=0700,size=" + std::to_string(kBytes);
    if (::mount("tern-test", folder_.path().c_str(), "tmpfs", 0, size.c_str()) == 0) return;
    problem_ = std::strerror(errno);
  }
  ~SmallDisk() {
    if (problem_.empty()) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  // Why there is none; empty if there is.
  const std::string& problem() const { return problem_; }

  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string folder(const std::string& name) const {
    fs::create_directory(path(name));
    return path(name);
  }
  void fill() const {
    const Fd fd(::open(path("ballast").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const std::vector<char> page(kPage, 'x');
    while (::write(fd.get(), page.data(), page.size()) > 0) {
    }
  }
  void clear() const { fs::remove(path("ballast")); }

 private:
  static constexpr std::size_t kPage = 4096, kBytes = 512 * kPage;

  TemporaryFolder folder_;
  std::string problem_;
};

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<fs::path> files_in(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  return files;
}

class FullDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!disk.problem().empty())
      GTEST_SKIP() << "a small tmpfs cannot be mounted: " << disk.problem();
  }
  static bool log_has(const DaemonProcess& daemon, const std::string& words) {
    return tail_of(daemon.log_path(), 100'000).find(words) != std::string::npos;
  }

  SmallDisk disk;
};

TEST_F(FullDisk, KeepsTheTraceBeforeAndTheOneThatDoesNotFit) {
  Cluster cluster(1);
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {2});
  ASSERT_EQ(ranks.join(), "");
  int exit_code = -1;
  const std::string folder = disk.folder("traces"), path = folder + "/trace.json";
  const auto trace = [&](const std::vector<std::string>& arguments) {
    return cluster[0].ternctl(arguments, &exit_code);
  };
  const std::vector<std::string> stop{"trace", "stop", "--output", path};
  trace({"trace", "start"});
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=10")), "");
  trace(stop);
  ASSERT_EQ(exit_code, 0);
  const std::string before = text_of(path);
  ASSERT_TRUE(json::accept(before));

  trace({"trace", "start"});
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=20")), "");
  disk.fill();
  const std::string said = trace(stop);
  EXPECT_EQ(exit_code, 1);
  EXPECT_THAT(said, HasSubstr(kNoSpace));
  EXPECT_THAT(said, HasSubstr(path));
  EXPECT_EQ(text_of(path), before);
  EXPECT_EQ(files_in(folder).size(), 1u);  // no half of one beside it
  EXPECT_EQ(disagreement(ranks.ask_all("stream group=g ops=10")), "");
  disk.clear();
  trace(stop);
  EXPECT_EQ(exit_code, 0);
  const std::string after = text_of(path);
  EXPECT_TRUE(json::accept(after));
  EXPECT_GT(after.size(), before.size());
}

TEST_F(FullDisk, KeepsWhatTheTunerHadLearnt) {
  const std::string folder = disk.folder("state");
  Cluster cluster(2, {}, {{"--state-directory", folder}});
  ASSERT_TRUE(cluster.running());
  // Samples are measured while a core has nothing else to do, so that how many ops it takes is not
  // known.
  const auto has_measured = [&] {
    const json tensors =
        json::parse(cluster[0].ternctl({"--json", "explain", "stream0"}), nullptr, false);
    if (!tensors.is_array() || tensors.empty()) return false;
    const json& candidates = tensors[0]["candidates"];
    return std::any_of(candidates.begin(), candidates.end(), [](const json& one) {
      return one.value("measured", false) && one.value("recipe", "") != "raw";
    });
  };
  const auto learn = [&](const std::string& job) {
    constexpr int kMostRounds = 500;
    Ranks ranks(cluster, {1, 1}, job);
    ASSERT_EQ(ranks.join(), "");
    int rounds = 0;
    do {
      ASSERT_EQ(disagreement(ranks.ask_all("stream group=g ops=40 tensors=2 recipe=auto")), "");
    } while (!has_measured() && ++rounds < kMostRounds);
    EXPECT_LT(rounds, kMostRounds) << "no sample was measured";
  };
  const auto end = [&] {
    cluster[0].process().signal(SIGTERM);
    const auto ended = cluster[0].process().wait_exit();
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->status, 0);
  };
  learn("first");
  end();
  const fs::path file = folder + "/tuner.json";
  const std::string before = text_of(file);
  ASSERT_TRUE(json::accept(before)) << before;
  EXPECT_THAT(before, HasSubstr("first"));

  disk.fill();
  ASSERT_TRUE(cluster[0].restart());
  learn("second");
  end();
  EXPECT_TRUE(cluster[0].logs("cannot write what the tuner has learnt"));
  EXPECT_TRUE(cluster[0].logs(kNoSpace));
  EXPECT_EQ(text_of(file), before);
  EXPECT_FALSE(fs::exists(file.string() + ".new"));

  disk.clear();
  ASSERT_TRUE(cluster[0].restart());
  learn("third");
  end();
  const std::string after = text_of(file);
  EXPECT_TRUE(json::accept(after));
  EXPECT_THAT(after, HasSubstr("first"));  // what was kept was read again
  EXPECT_THAT(after, HasSubstr("third"));
}

TEST_F(FullDisk, KeepsFlightRecordsAndTheGroupComesBack) {
  const std::string folder = disk.folder("flights");
  Cluster cluster(1, {"--flight-directory", folder});
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {2});
  ASSERT_EQ(ranks.join(), "");
  const auto crash_and_come_back = [&] {
    ASSERT_EQ(disagreement(ranks.ask_all("stream group=g ops=20")), "");
    ranks[1].process().kill();
    ranks[0].tell("stream group=g ops=0");
    EXPECT_EQ(ranks[0].reply().code, TERN_ERR_RANK_LOST);
    ASSERT_TRUE(ranks[0].ask("leave group=g").ok());
    ranks.replace(1, cluster, 0);
    ASSERT_EQ(ranks.rejoin(), "");
  };
  const auto has_records = [&](std::size_t count) {
    return eventually([&] {
      const auto files = files_in(folder);
      return files.size() == count && std::all_of(files.begin(), files.end(), [](const auto& one) {
               return json::accept(text_of(one));
             });
    });
  };
  crash_and_come_back();
  ASSERT_TRUE(has_records(1));
  const fs::path first = files_in(folder).front();

  disk.fill();
  const std::string before = text_of(first);
  crash_and_come_back();
  EXPECT_TRUE(
      eventually([&] { return log_has(cluster[0], "cannot write the flight record " + folder); }));
  EXPECT_TRUE(cluster[0].logs(kNoSpace));
  EXPECT_TRUE(has_records(1));
  EXPECT_EQ(text_of(first), before);

  disk.clear();
  crash_and_come_back();
  EXPECT_TRUE(has_records(2));
}

TEST_F(FullDisk, KeepsALogOfChoicesAndSaysThatTheNextEnds) {
  const std::string folder = disk.folder("choices");
  Cluster cluster(2, {}, {{"--choice-directory", folder}});
  ASSERT_TRUE(cluster.running());
  Ranks ranks(cluster, {1, 1});
  const auto work = [&](std::size_t ops) {
    ASSERT_EQ(ranks.join(), "");
    ASSERT_EQ(disagreement(ranks.ask_all("stream group=g tensors=1 recipe=auto large=20000 ops=" +
                                         std::to_string(ops))),
              "");
    ranks.ask_all("leave group=g");
    EXPECT_TRUE(eventually([&] { return cluster[0].ask("groups").empty(); }));
  };
  work(30);
  ASSERT_TRUE(eventually([&] { return files_in(folder).size() == 1; }));
  const fs::path first = files_in(folder).front();
  // It is written by a thread that may wait.
  std::string before;
  ASSERT_TRUE(eventually([&] {
    const auto logged = tuner::parse_choice_log(before = text_of(first));
    return logged && logged->ops.size() > 0;
  })) << before;

  disk.fill();
  work(30);
  EXPECT_TRUE(eventually([&] {
    return log_has(cluster[0], std::string(kNoSpace) + "; this epoch cannot be replayed");
  }));
  EXPECT_THAT(text_of(first), testing::StartsWith(before));
}

TEST_F(FullDisk, DoesNotStartWithoutRoomForItsCounters) {
  disk.fill();
  const auto started =
      ctl::run_program(TERN_TERND, {"--listen", "127.0.0.1:0", "--socket", disk.path("ternd.sock"),
                                    "--control-socket", disk.path("control.sock")});
  EXPECT_NE(started.exit_code, 0);
  EXPECT_THAT(started.err, HasSubstr("no room for the counters"));
  EXPECT_THAT(started.err, HasSubstr(kNoSpace));
  for (const char* left : {"ternd.sock", "control.sock", "control.counters"}) {
    EXPECT_FALSE(fs::exists(disk.path(left))) << left;
  }
}

// Needs no disk: its log goes where nothing fits.
TEST(FullLog, StopsNobody) {
  TemporaryFolder folder;
  const std::string control = folder.path() + "/control.sock";
  Process daemon(TERN_TERND,
                 {"--listen", "127.0.0.1:0", "--socket", folder.path() + "/ternd.sock",
                  "--control-socket", control},
                 "/dev/full");
  json status;
  ASSERT_TRUE(eventually([&] {
    auto answer = ctl::ask_daemon(control, "status", json::object(), std::chrono::seconds(20));
    if (answer) status = *answer;
    return answer.has_value();
  }));
  EXPECT_EQ(status["pid"], daemon.pid());
  daemon.signal(SIGTERM);
  const auto ended = daemon.wait_exit();
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->status, 0);
}

}  // namespace
}  // namespace tern::e2e
