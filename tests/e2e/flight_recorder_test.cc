// The last operations of a group, which the daemon writes when something fails.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tests/e2e/rank_process.h"

namespace tern::e2e {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr std::size_t kRecorded = 256;

// Two daemons of one lane each, of which the first keeps records.
class FlightRecorder : public ::testing::Test {
 protected:
  FlightRecorder() : cluster(2, {}, {{"--flight-directory", folder.path()}}) {}

  void SetUp() override {
    ASSERT_TRUE(cluster.running());
    ranks = Ranks(cluster, {1, 1});
  }
  // The only record; null if there is none yet.
  json record() const {
    json found;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      if (entry.path().extension() != ".json") continue;
      EXPECT_TRUE(found.is_null()) << "more than one record";
      std::ifstream file(entry.path());
      found = json::parse(file, nullptr, false);
    }
    return found;
  }
  // Once its last operation has ended so.
  json record_that_ends_with(const std::string& status) const {
    EXPECT_TRUE(eventually([&] {
      const json found = record();
      return found.is_object() && !found["ops"].empty() && found["ops"].back()["status"] == status;
    })) << record().dump(1);
    return record();
  }

  TemporaryFolder folder;
  Cluster cluster;
  Ranks ranks;
};

TEST_F(FlightRecorder, HoldsTheLastOpsAndWhatWentWrongWithTheLast) {
  ASSERT_EQ(ranks.join(), "");
  ASSERT_EQ(disagreement(ranks.ask_all("stream group=g ops=300")), "");
  EXPECT_TRUE(record().is_null()) << "nothing has failed";

  ASSERT_TRUE(ranks[0].ask("submit op=x group=g count=70000").ok());
  ASSERT_TRUE(ranks[1].ask("submit op=x group=g count=70001").ok());
  const Reply told = ranks[0].ask("wait op=x");
  EXPECT_EQ(told.code, TERN_ERR_MISMATCH) << told;
  EXPECT_EQ(ranks[1].ask("wait op=x").code, TERN_ERR_MISMATCH);

  const json found = record_that_ends_with("mismatch");
  EXPECT_EQ(found["job"], "test");
  EXPECT_EQ(found["epoch"], 1);
  const json& ops = found["ops"];
  ASSERT_EQ(ops.size(), kRecorded);
  std::set<int> numbers;
  for (std::size_t i = 0; i + 1 < ops.size(); ++i) {
    EXPECT_EQ(ops[i]["status"], "ok") << ops[i];
    EXPECT_EQ(ops[i]["kind"], "all_reduce");
    EXPECT_GE(ops[i]["total_us"], ops[i]["wait_us"]);
    numbers.insert(ops[i]["op"].get<int>());
  }
  // Those before the last, without a gap but for what was in flight together.
  EXPECT_EQ(numbers.size(), kRecorded - 1);
  EXPECT_EQ(*numbers.rbegin(), 299);
  EXPECT_EQ(ops.back()["op"], 300);
  // Whichever node 0 heard of first says what the op is, and the other one disagrees.
  const auto count = ops.back()["count"].get<std::uint64_t>();
  EXPECT_TRUE(count == 70000 || count == 70001) << count;
  EXPECT_EQ(ops.back()["dtype"], "f32");
  EXPECT_EQ(ops.back()["text"], told.text);
  EXPECT_THAT(told.text, HasSubstr("7000"));
}

TEST_F(FlightRecorder, HoldsAnOpThatTimedOut) {
  ASSERT_EQ(ranks.join("g", "op_timeout=700"), "");
  for (const Reply& reply : ranks.ask_all("declare group=g name=late count=1000")) {
    ASSERT_TRUE(reply.ok()) << reply;
  }
  ASSERT_TRUE(ranks[0].ask("submit op=x group=g tensor=late").ok());
  const Reply told = ranks[0].ask("wait op=x");
  EXPECT_EQ(told.code, TERN_ERR_OP_TIMEOUT) << told;
  const json found = record_that_ends_with("op_timeout");
  EXPECT_EQ(found["error"], "");  // the group goes on
  EXPECT_EQ(found["ops"].back()["tensor"], "late");
  EXPECT_EQ(found["ops"].back()["text"], told.text);
  EXPECT_THAT(told.text, HasSubstr("rank 1"));
}

TEST_F(FlightRecorder, HoldsTheOpsThatALostPeerFailed) {
  ASSERT_EQ(ranks.join(), "");
  ASSERT_EQ(disagreement(ranks.ask_all("stream group=g ops=10")), "");
  ASSERT_TRUE(ranks[0].ask("submit op=x group=g count=70000").ok());
  cluster[1].process().kill();
  const Reply told = ranks[0].ask("wait op=x");
  EXPECT_EQ(told.code, TERN_ERR_PEER_LOST) << told;
  const json found = record_that_ends_with("peer_lost");
  EXPECT_THAT(found["error"].get<std::string>(), HasSubstr(cluster[1].address()));
  EXPECT_EQ(found["ops"].size(), 11u);
  EXPECT_EQ(found["ops"].back()["text"], told.text);
}

// Operations of every kind, which the ranks do as one: in a trace, in the record, and, where they
// wait for a rank that does nothing, in what ternctl says.
TEST_F(FlightRecorder, AndTheOtherToolsSpeakOfEveryKind) {
  ASSERT_EQ(ranks.join(), "");
  cluster[0].ternctl({"trace", "start"});
  for (const Reply& reply : ranks.ask_all("kinds group=g rounds=40")) {
    ASSERT_TRUE(reply.ok()) << reply;
  }
  const std::string path = folder.path() + "/trace";
  cluster[0].ternctl({"trace", "stop", "--output", path});
  const std::string trace = tail_of(path, std::size_t{1} << 26);
  ranks[0].tell("kinds group=g rounds=1");
  EXPECT_TRUE(eventually([&] {
    return cluster[0].ternctl({"groups"}).find(": waits for rank 1, tag ") != std::string::npos;
  })) << cluster[0].ternctl({"groups"});
  ranks[1].process().kill();
  EXPECT_EQ(ranks[0].reply().code, TERN_ERR_RANK_LOST);
  const json found = record_that_ends_with("rank_lost");
  std::set<std::string> recorded;
  std::uint64_t exchanged = 0;
  for (const json& op : found["ops"]) {
    recorded.insert(op["kind"]);
    if (op["kind"] == "all_to_all") exchanged += op["count"].get<std::uint64_t>();
  }
  EXPECT_GT(exchanged, 0u) << "they have counts for each pair";
  for (const std::string kind :
       {"all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather", "gather", "scatter",
        "all_to_all", "barrier", "send", "recv"}) {
    EXPECT_THAT(trace, HasSubstr("\"" + kind + " #")) << kind;
    EXPECT_TRUE(recorded.contains(kind)) << kind;
  }
}

}  // namespace
}  // namespace tern::e2e
