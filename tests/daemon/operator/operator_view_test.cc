#include "daemon/operator/operator_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "counters/snapshot.h"
#include "daemon/service/recent_log.h"
#include "tests/daemon/tuning/folder.h"
#include "tests/sim/client.h"
#include "tests/sim/world.h"

namespace tern::daemon::operator_view_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSecretFile = "/nowhere/a-key-of-nobody";

class OperatorViewTest : public ::testing::Test {
 protected:
  OperatorViewTest() {
    config_.control_socket = folder_.file("control.sock");
    config_.tls_key_file = kSecretFile;
    for (const auto& lane : daemon_.lanes) around_.lanes.push_back(lane.get());
    auto view = OperatorView::create(config_, Access(), around_);
    EXPECT_TRUE(view) << view.error().text;
    view_ = std::move(*view);
  }
  ~OperatorViewTest() override { world_.kill(0); }  // it counts in the view's file

  static sim::DaemonShape shape() {
    sim::DaemonShape shape;
    shape.lanes = 2;
    shape.tuner = true;
    return shape;
  }
  json ask(std::string_view verb, const json& args = json::object()) {
    auto answer = view_->handle(verb, args);
    EXPECT_TRUE(answer) << answer.error().text;
    return answer ? *answer : json();
  }
  counters::Snapshot snapshot() const {
    auto read = counters::read_counters(counters::path_beside(config_.control_socket));
    EXPECT_TRUE(read) << read.error().text;
    return read ? *read : counters::Snapshot();
  }

  tuning_test::Folder folder_;
  Config config_;
  sim::World world_{1};
  sim::VirtualDaemon& daemon_ = world_.daemon(world_.add_daemon(shape()));
  OperatorView::Surroundings around_{world_.clock, {}, *daemon_.conductor, *daemon_.tuning};
  std::unique_ptr<OperatorView> view_;
};

TEST_F(OperatorViewTest, TheFileBesideTheSocketHasWhatLanesAndConductorCount) {
  sim::Client& client = world_.connect(0);
  ASSERT_TRUE(world_.run_until([&] { return client.ready(); }));
  view_->tick();
  const counters::Snapshot file = snapshot();
  EXPECT_EQ(file.pid, static_cast<std::uint64_t>(::getpid()));
  EXPECT_EQ(file.node_id, node_text(around_.conductor.reports().self()));
  const auto named = [&file](const std::string& name) {
    const auto found = std::find_if(file.counters.begin(), file.counters.end(),
                                    [&](const counters::Counter& one) { return one.name == name; });
    EXPECT_NE(found, file.counters.end()) << name;
    return found != file.counters.end() ? *found : counters::Counter();
  };
  EXPECT_EQ(named("ops_completed").instances.size(), 2u) << "a lane each";
  EXPECT_EQ(named("clients_accepted").value(), 1u);
}

TEST_F(OperatorViewTest, AnotherDaemonsFileIsNotTaken) {
  const auto second = OperatorView::create(config_, Access(), around_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::already_exists);
}

TEST_F(OperatorViewTest, SettingsSayWhatWasChangedAndNoSecret) {
  const json rows = ask("settings");
  EXPECT_THAT(rows.dump(), Not(HasSubstr(kSecretFile)));
  const auto row = [&rows](const std::string& name) {
    for (const json& one : rows) {
      if (one["name"] == name) return one;
    }
    ADD_FAILURE() << name;
    return json();
  };
  EXPECT_EQ(row("tls_key_file")["value"], "(removed)");
  EXPECT_EQ(row("tls_key_file")["changed"], true);
  EXPECT_EQ(row("control_socket")["value"], config_.control_socket);
  EXPECT_EQ(row("cluster_key_file")["changed"], false);
}

TEST_F(OperatorViewTest, LinesOfTheLogNameNoSecret) {
  const auto sink = recent_log_sink();
  spdlog::logger logger("test", sink);
  logger.warn("cannot read {}, and again {}", kSecretFile, kSecretFile);
  const std::string lines = ask("log").dump();
  EXPECT_THAT(lines, HasSubstr("cannot read (removed), and again (removed)"));
  EXPECT_THAT(lines, Not(HasSubstr(kSecretFile)));
}

TEST_F(OperatorViewTest, ATraceSaysWhoseItIs) {
  const json begun = ask("trace", {{"action", "start"}});
  EXPECT_EQ(begun["node_id"], node_text(around_.conductor.reports().self()));
  EXPECT_EQ(begun["pid"], ::getpid());
  EXPECT_TRUE(begun.contains("software"));
  view_->tick();
  EXPECT_FALSE(ask("trace", {{"action", "read"}, {"lane", 0}, {"from", 0}}).contains("pid"))
      << "a page has events alone";
  ask("trace", {{"action", "stop"}});
  EXPECT_FALSE(view_->handle("trace", {{"action", "dance"}}));
}

TEST_F(OperatorViewTest, ThePageOfCountersNamesEachOfTheFile) {
  const std::string page = counters_markdown();
  for (const counters::Counter& one : snapshot().counters) {
    EXPECT_THAT(page, HasSubstr("`" + one.name + "`"));
  }
}

}  // namespace
}  // namespace tern::daemon::operator_view_test
