// Counts the allocations of lanes, so that the promise of none after warm-up can be checked. What
// carries the frames is the simulator's and is left out; tests/net/allocation_test.cc has the real
// ones.

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>

#include "cluster.h"
#include "point_to_point.h"

namespace {

std::uint64_t allocations = 0;  // by lanes; those of a world run on one thread

void* allocate(std::size_t size, std::size_t alignment) {
  if (tern::sim::in_lane_code()) ++allocations;
  const std::size_t whole = (size + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, whole == 0 ? alignment : whole);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace tern::sim {
namespace {

constexpr std::uint64_t kLarge = 100'003, kSmall = 100;

DaemonShape two_lanes(bool tuner) {
  DaemonShape shape;
  shape.lanes = 2;
  shape.tuner = tuner;
  shape.lossy_min_bytes = 0;  // what fits in an announcement is compressed there, too
  return shape;
}

class Allocations {
 public:
  Allocations(const std::string& recipe, bool verify, bool tuner)
      : cluster({2, 1}, two_lanes(tuner)) {
    JoinOptions options;
    options.verify = verify;
    cluster.join(options);
    if (recipe.empty()) return;
    TensorSpec spec;
    spec.name = "g";
    spec.count = kLarge;
    spec.role = recipe == "xordelta" ? Role::weights : Role::gradient;
    spec.recipe = recipe;
    tensors = cluster.declare(spec);
    spec.name = "s";
    spec.count = kSmall;
    small_tensors = cluster.declare(spec);
  }

  // A large op, eager ones and a broadcast, and time for the lanes' timers.
  void work() {
    for (int i = 0; i < 4; ++i) {
      cluster.reduce(all_reduce(DType::f32, kLarge), large, tensors);
      cluster.reduce(all_reduce(DType::f32, kSmall), small);
      if (!small_tensors.empty()) {
        cluster.reduce(all_reduce(DType::f32, kSmall), small, small_tensors);
      }
      OpRequest broadcast = all_reduce(DType::f32, kLarge);
      broadcast.kind = shm::OpKind::broadcast;
      cluster.reduce(broadcast, large, tensors);
      cluster.forget_arenas();
      cluster.world.run_for(kSecond / 10);
    }
  }
  std::uint64_t of_warm_work() {
    // Records of frames that are not acknowledged yet keep their memory, and take turns.
    for (int i = 0; i < 40; ++i) work();
    const std::uint64_t before = allocations;
    EXPECT_GT(before, 0u) << "nothing is counted";
    work();
    return allocations - before;
  }
  std::uint64_t counter(const std::string& name) {
    return cluster.world.daemon(0)
        .conductor->reports()
        .counters()[name]["value"]
        .get<std::uint64_t>();
  }

  Cluster cluster;
  std::vector<Tensor*> tensors, small_tensors;
  std::vector<Bytes> large = inputs_of(DType::f32, kLarge, 3);
  std::vector<Bytes> small = inputs_of(DType::f32, kSmall, 3, 2);
};

TEST(LaneAllocations, NoneForAnOpOnceWarm) {
  for (const std::string recipe :
       {"", "raw", "bf16", "3lc:s=1", "3lc:s=1,scale=tensor", "ef(int:bits=4)",
        "ef(topk:p=0.05+int:bits=8)", "ef(lloyd:bits=3+huffman)", "diana(qsgd:levels=4)",
        "ef21(topk:p=0.1)", "none(blocksparse:p=0.25,block=64)", "lossless", "xordelta"}) {
    Allocations lanes(recipe, false, false);
    EXPECT_EQ(lanes.of_warm_work(), 0u) << recipe;
  }
}

// Of f32, by a recipe.
Passed lossy_pass(Cluster& cluster, shm::OpKind kind, std::uint32_t rank, const PassSpec& spec) {
  Client& client = *cluster.ranks[rank];
  OpRequest request = pass_request(kind, spec);
  request.recipe = "none(int:bits=8)";
  request.input = request.output = client.allocate(spec.count * sizeof(float));
  std::memset(client.at(request.input), 0, spec.count * sizeof(float));
  return {&client, client.submit(request), request.input, spec.count};
}

// From rank to rank, within a node and between two, with elements in the offer and after it, as
// blocks, and copied meanwhile.
TEST(LaneAllocations, NoneForASendOnceWarm) {
  Cluster cluster({2, 1}, two_lanes(false));
  cluster.join();
  const auto work = [&] {
    std::vector<Passed> all;
    for (std::uint32_t tag = 0; tag < 8; ++tag) {
      for (Client* client : cluster.ranks) client->copying.seed = tag % 2;
      all.push_back(lossy_pass(cluster, shm::OpKind::send, 0, {2, 100 + tag, kLarge, DType::f32}));
      all.push_back(lossy_pass(cluster, shm::OpKind::recv, 2, {0, 100 + tag, kLarge, DType::f32}));
      for (const std::uint64_t count : {kSmall, kLarge}) {
        all.push_back(send(cluster, 0, {2, tag, count}));
        all.push_back(send(cluster, 0, {1, tag, count}));
        all.push_back(recv(cluster, 2, {0, tag, count}));
        all.push_back(recv(cluster, 1, {shm::kAnySource, tag, count}));
      }
    }
    for (const Passed& one : all) await(cluster, one);
    cluster.forget_arenas();
    cluster.world.run_for(kSecond / 10);
  };
  for (int i = 0; i < 40; ++i) work();
  const std::uint64_t before = allocations;
  EXPECT_GT(before, 0u) << "nothing is counted";
  work();
  EXPECT_EQ(allocations - before, 0u);
}

TEST(LaneAllocations, NoneForAnOpThatIsVerified) {
  Allocations lanes("3lc:s=1", true, false);
  EXPECT_EQ(lanes.of_warm_work(), 0u);
}

// Samples, measurements, choices: all of it is once for each candidate at most.
TEST(LaneAllocations, NoneForAnOpThatTheTunerChoosesFor) {
  Allocations lanes("auto", true, true);
  for (int i = 0; i < 40 && lanes.counter("tuner_switches") == 0; ++i) lanes.work();
  EXPECT_GT(lanes.counter("samples"), 0u);
  EXPECT_GT(lanes.counter("tuner_switches"), 0u) << "it never left raw";
  EXPECT_EQ(lanes.of_warm_work(), 0u);
}

}  // namespace
}  // namespace tern::sim
