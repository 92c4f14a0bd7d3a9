// What an operator sees of each kind of operation: whom it waits for, its tensor, its count in the
// metrics, a slice in a trace, and a line in the flight recorder.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/ranks_on_nodes.h"

namespace tern::e2e {
namespace every_kind_seen_test {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr std::uint64_t kCount = 4'000;

struct SeenKind {
  const char* name;
  bool takes_tensor;
  tern::Ticket (tern::Group::*submit)(const tern_op& op);
};

const std::vector<SeenKind>& kinds() {
  static const std::vector<SeenKind> kAll{{"all_reduce", true, &tern::Group::all_reduce},
                                          {"broadcast", true, &tern::Group::broadcast},
                                          {"reduce", true, &tern::Group::reduce},
                                          {"reduce_scatter", true, &tern::Group::reduce_scatter},
                                          {"all_gather", true, &tern::Group::all_gather},
                                          {"gather", true, &tern::Group::gather},
                                          {"scatter", true, &tern::Group::scatter},
                                          {"all_to_all", false, &tern::Group::all_to_all},
                                          {"send", false, &tern::Group::send},
                                          {"recv", false, &tern::Group::recv}};
  return kAll;
}

class EveryKindSeen : public testing::Test {
 protected:
  EveryKindSeen() : cluster_(2, {}, {{"--flight-directory", records_.path()}}) {}

  void SetUp() override {
    ASSERT_TRUE(cluster_.running());
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      ranks_.push_back(std::make_unique<LayoutRank>(cluster_[rank], rank));
    }
    const tern_group_id id = ranks_[0]->client->mint();
    std::thread other([&] { ranks_[1]->group.emplace(ranks_[1]->client->join(id, 1, 2)); });
    ranks_[0]->group.emplace(ranks_[0]->client->join(id, 0, 2));
    other.join();
  }

  // The rank's side of the kind, with rank 0 as root and as who sends or receives.
  tern::Ticket submit(std::uint32_t rank, const SeenKind& kind) {
    tern::Group& group = *ranks_[rank]->group;
    tern_op op = TERN_OP_INIT;
    op.dtype = TERN_F32;
    op.input = memory_[rank].data();
    op.output = memory_[rank].data() + 2 * kCount;
    op.count = kCount;
    op.peer = static_cast<std::int32_t>(1 - rank);
    op.tag = 7;
    const std::string name = kind.name;
    // Where only rank 0 has an input or an output the other gives none.
    if (rank == 1 && (name == "broadcast" || name == "scatter")) op.input = nullptr;
    if (rank == 1 && (name == "reduce" || name == "gather")) op.output = nullptr;
    if (kind.takes_tensor) {
      tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
      options.name = kind.name;
      options.count = kCount;
      options.dtype = TERN_F32;
      if (name == "reduce_scatter") {
        options.role = TERN_GRADIENT;
        options.recipe = "ef(int:bits=8)";
      }
      tensors_.push_back(group.declare(options));
      op.tensor = tensors_.back().get();
    }
    if (rank == 1 && name == "send") return group.recv(op);
    if (rank == 1 && name == "recv") return group.send(op);
    return (group.*kind.submit)(op);
  }
  bool groups_show(const std::string& text) {
    return eventually(
        [&] { return cluster_[0].ternctl({"groups"}).find(text) != std::string::npos; });
  }

  TemporaryFolder records_;
  Cluster cluster_;
  std::vector<std::unique_ptr<LayoutRank>> ranks_;
  std::vector<float> memory_[2] = {std::vector<float>(4 * kCount, 1.0f),
                                   std::vector<float>(4 * kCount, 2.0f)};
  std::vector<tern::Tensor> tensors_;
};

TEST_F(EveryKindSeen, GroupsTensorsMetricsAndATraceNameIt) {
  EXPECT_THAT(cluster_[0].ternctl({"trace", "start"}), HasSubstr("Recording"));
  const std::int64_t before = cluster_[0].counter("ops_completed");
  for (const SeenKind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    tern::Ticket own = submit(0, kind);
    const std::string name = kind.name;
    const bool passes = name == "send" || name == "recv";
    std::string waits = name + " of " + (kind.takes_tensor ? name : "#");
    if (passes) waits = name + ": waits for rank 1, tag 7, for ";
    EXPECT_TRUE(groups_show(waits)) << cluster_[0].ternctl({"groups"});
    if (kind.takes_tensor) {
      EXPECT_TRUE(groups_show(waits + ": waiting for ranks 1 for")) << name;
    }
    tern::Ticket other = submit(1, kind);
    own.wait();
    other.wait();
  }
  tern::Ticket barrier = ranks_[0]->group->barrier();
  EXPECT_TRUE(groups_show("barrier of #")) << cluster_[0].ternctl({"groups"});
  ranks_[1]->group->barrier().wait();
  barrier.wait();
  EXPECT_EQ(cluster_[0].counter("ops_completed") - before,
            static_cast<std::int64_t>(kinds().size()) + 1);
  for (const SeenKind& kind : kinds()) {
    EXPECT_EQ(cluster_[0].counter("ops_of_" + std::string(kind.name)), 1) << kind.name;
  }
  EXPECT_EQ(cluster_[0].counter("ops_of_barrier"), 1);

  const json tensors = cluster_[0].ask("tensors");
  for (const SeenKind& kind : kinds()) {
    if (!kind.takes_tensor) continue;
    const auto row = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const json& one) { return one["name"] == kind.name; });
    ASSERT_NE(row, tensors.end()) << kind.name;
    EXPECT_EQ((*row)["ops"], 1) << kind.name;
    EXPECT_EQ((*row)["operation"], kind.name);
    if ((*row)["name"] == "reduce_scatter") {
      EXPECT_EQ((*row)["state_of"], "reduce_scatter");
    }
  }

  const std::string file = cluster_.folder() + "/trace";
  int exit_code = -1;
  const std::string said = cluster_[0].ternctl({"trace", "stop", "--output", file}, &exit_code);
  ASSERT_EQ(exit_code, 0) << said;
  std::ifstream stream(file);
  const json trace = json::parse(stream, nullptr, false);
  std::set<std::string> named;
  for (const json& event : trace["traceEvents"]) {
    if (event.value("cat", "") != "op") continue;
    const std::string name = event["name"];
    named.insert(name.substr(0, name.find(' ')));
  }
  for (const SeenKind& kind : kinds()) EXPECT_TRUE(named.contains(kind.name)) << kind.name;
  EXPECT_TRUE(named.contains("barrier"));
}

TEST_F(EveryKindSeen, TheFlightRecorderNamesIt) {
  for (const SeenKind& kind : kinds()) {
    tern::Ticket own = submit(0, kind), other = submit(1, kind);
    own.wait();
    other.wait();
  }
  tern::Ticket last = ranks_[0]->group->send(std::span<const float>(memory_[0]), 1, 9);
  cluster_[1].process().kill();
  EXPECT_THROW(last.wait(), tern::Failure);
  const auto record = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(records_.path())) {
      std::ifstream stream(entry.path());
      if (entry.path().extension() == ".json") return json::parse(stream, nullptr, false);
    }
    return json();
  };
  std::set<std::string> named;
  EXPECT_TRUE(eventually([&] {
    const json found = record();
    named.clear();
    if (!found.is_object()) return false;
    for (const json& op : found["ops"]) named.insert(op["kind"].get<std::string>());
    return !found["ops"].empty() && found["ops"].back()["status"] == "peer_lost";
  })) << record().dump(1);
  for (const SeenKind& kind : kinds()) EXPECT_TRUE(named.contains(kind.name)) << kind.name;
  const json found = record();
  EXPECT_EQ(found["ops"].back()["kind"], "send");
  EXPECT_EQ(found["ops"].back()["peer"], 1);
  EXPECT_EQ(found["ops"].back()["tag"], 9);
}

}  // namespace every_kind_seen_test
}  // namespace tern::e2e
