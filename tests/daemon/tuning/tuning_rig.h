#pragma once

// A tuner's tables with a group of two nodes, on a clock moved by hand. Values are measured without
// taking time, as in the simulator.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/lane/lane_group.h"
#include "daemon/tuning/tuning.h"
#include "plan/plans.h"
#include "tests/daemon/tuning/folder.h"

namespace tern::daemon::tuning_test {

inline constexpr std::uint32_t kAlice = 1001, kBob = 1002;  // users
inline constexpr std::uint32_t kLanes = 2;
inline constexpr std::uint64_t kSecond = 1'000'000'000;

// Of node 0, with a rank on each node.
inline std::unique_ptr<MemberGroup> group_of(std::uint32_t user, std::uint64_t number) {
  auto group = std::make_unique<MemberGroup>();
  group->number = number;
  group->uid = "0123abcd00000000";
  group->job = "job";
  group->uid_of_user = group->account = user;
  group->users = {user};
  group->epoch = 3;
  group->size = 2;
  group->lane_count = kLanes;
  group->chunk_bytes = 256 << 10;
  group->addresses = {"here:7000", "there:7000"};
  GroupSetup setup;
  setup.number = number;
  setup.size = 2;
  setup.shape.lanes = kLanes;
  setup.shape.chunk_bytes = group->chunk_bytes;
  setup.shape.max_ops_in_flight = 4;
  setup.shape.ranks = {{0}, {1}};
  setup.node_ids = {{7, 7}, {8, 8}};
  setup.endpoints = {{"here", 7000}, {"there", 7000}};
  setup.local_clients = {1};
  group->ranks_of_node = setup.shape.ranks;
  for (setup.shape.lane = 0; setup.shape.lane < kLanes; ++setup.shape.lane) {
    group->lanes.push_back(std::make_unique<LaneGroup>(setup, EagerRoom()));
  }
  return group;
}

class TuningRig : public testing::Test {
 protected:
  static constexpr std::uint64_t kTensor = 5;  // its ops are counted by lane 1

  TuningRig() { restart(); }

  // As another daemon with the same settings.
  void restart() {
    tuning.reset();
    auto created = Tuning::create(settings, clock, writing);
    ASSERT_TRUE(created) << created.error().text;
    tuning = std::move(*created);
    shadow = std::make_unique<Shadow>(
        tuning->recipes(), kLanes, [] {}, &clock);
    tuning->set_shadow(shadow.get());
    tuning->set_change_sink([this](const RecipeChange& change) { changes.push_back(change); });
  }
  // Of 1M elements.
  std::unique_ptr<TensorState> declare(const std::string& name = "weights") const {
    auto state = std::make_unique<TensorState>(kLanes);
    state->id = kTensor;
    state->name = name;
    state->count = 1 << 20;
    state->role = Role::gradient;
    state->declared = *resolve_declared(
        "auto", {.role = Role::gradient, .has_tuner = true, .nodes = 2, .chunk_elements = 65536});
    return state;
  }
  Status begin(TensorState& state, const std::string& level = "", const std::string& replay = "") {
    if (replay.empty()) return tuning->begin(*group, state, level, nullptr);
    const auto reading = tuning->reading_of(replay, *group, state);
    if (!reading) return tl::unexpected(reading.error());
    (*reading)->read();
    return tuning->begin(*group, state, level, reading->get());
  }
  // The shadow measures every candidate on some of the tensor's values.
  void measure(const TensorState& state) {
    std::vector<float> values(Shadow::kSampleElements);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sin(static_cast<float>(i * i % 1009));
    }
    ASSERT_TRUE(shadow->has_room(1));
    shadow->offer(1, {state.tuning->number(), DType::f32, values, nullptr, 1.0f});
    ASSERT_EQ(shadow->do_work(), 1);
    tuning->do_work();
  }
  // What its lane says of an op that went by the newest choice.
  OpRecord op_of(const TensorState& state) {
    OpRecord record;
    record.tensor = state.id;
    record.kind = plan::kAllReduce.number;
    record.lane = 1;
    TunedRecord& tuned = record.tuned.emplace();
    record.count = state.count;
    tuned.choice = state.tuning->version();
    record.submitted_ns = record.started_ns = clock.now_ns();
    clock.advance_ns(1'000'000);
    record.ended_ns = clock.now_ns();
    tuned.error.contributions = {.energy = 100.0, .residual_energy = 1.0, .elements = state.count};
    return record;
  }
  void run(const TensorState& state, int ops) {
    for (int i = 0; i < ops; ++i) {
      tuning->on_op(*group, state, op_of(state));
      tuning->do_work();
    }
  }
  nlohmann::json explained(const std::string& tensor = "weights") const {
    const auto rows = tuning->explain(tensor, Scope::of_all());
    EXPECT_TRUE(rows) << (rows ? "" : rows.error().text);
    return rows ? rows->at(0) : nlohmann::json{};
  }
  // Of a candidate, by its recipe.
  nlohmann::json candidate(const std::string& recipe) const {
    const nlohmann::json row = explained();
    for (const auto& one : row.at("candidates")) {
      if (one["recipe"] == recipe) return one;
    }
    ADD_FAILURE() << recipe;
    return {};
  }
  bool may_use(const TensorState& state, const std::string& recipe) const {
    const auto& recipes = *tuning->recipes();
    for (std::uint32_t i = 0; i < recipes.size(); ++i) {
      if (recipes[i] == *codec::parse_recipe(recipe)) return state.tuning->may_use(i);
    }
    ADD_FAILURE() << recipe;
    return false;
  }

  TuningSettings settings;
  ManualClock clock;
  Disposal writing{Disposal::By::caller};
  std::unique_ptr<Shadow> shadow;
  std::unique_ptr<Tuning> tuning;
  std::vector<RecipeChange> changes;
  std::unique_ptr<MemberGroup> group = group_of(kAlice, 9);
};

}  // namespace tern::daemon::tuning_test
