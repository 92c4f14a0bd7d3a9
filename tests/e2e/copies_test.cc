// Memory outside the arena and in regions, through libtern and real daemons: every kind, several
// types, in place, in batches, with cancels. What each rank gets is computed here.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/include/tern/tern.hpp"
#include "tests/e2e/cluster.h"

namespace tern::e2e {
namespace {

enum class Where { heap, region, arena };

// One operation of all ranks, of `share` elements for each.
struct Spec {
  tern_op_kind kind = TERN_OP_ALL_REDUCE;
  std::uint64_t share = 0;
  std::size_t ranks = 1;
  std::size_t root = 0;
  bool in_place = false;

  std::uint64_t total() const { return share * ranks; }
  bool sends_share() const { return kind == TERN_OP_ALL_GATHER || kind == TERN_OP_GATHER; }
  bool gets_share() const { return kind == TERN_OP_REDUCE_SCATTER || kind == TERN_OP_SCATTER; }
  bool adds() const {
    return kind == TERN_OP_ALL_REDUCE || kind == TERN_OP_REDUCE || kind == TERN_OP_REDUCE_SCATTER;
  }
  std::uint64_t input(std::size_t rank) const {
    const bool root_alone = kind == TERN_OP_BROADCAST || kind == TERN_OP_SCATTER;
    if (root_alone && rank != root) return 0;
    return sends_share() ? share : total();
  }
  std::uint64_t output(std::size_t rank) const {
    const bool root_alone = kind == TERN_OP_REDUCE || kind == TERN_OP_GATHER;
    if (root_alone && rank != root) return 0;
    return gets_share() ? share : total();
  }
  // Of the op, the number of its first element that the input (output) holds.
  std::uint64_t input_begin(std::size_t rank) const { return sends_share() ? rank * share : 0; }
  std::uint64_t output_begin(std::size_t rank) const { return gets_share() ? rank * share : 0; }

  // Small enough that sums of all ranks fit in a byte.
  static std::uint64_t value(std::size_t rank, std::uint64_t element) {
    return (element * 31 + element / 4096 + rank * 7) % 17;
  }
  std::uint64_t expected(std::size_t rank, std::uint64_t at) const {
    const std::uint64_t element = output_begin(rank) + at;
    if (kind == TERN_OP_ALL_TO_ALL) return value(at / share, rank * share + at % share);
    if (sends_share()) return value(element / share, element);
    if (!adds()) return value(root, element);
    std::uint64_t sum = 0;
    for (std::size_t other = 0; other < ranks; ++other) sum += value(other, element);
    return sum;
  }
};

template <typename T>
constexpr tern_dtype dtype_of() {
  if constexpr (std::is_same_v<T, float>) return TERN_F32;
  if constexpr (std::is_same_v<T, double>) return TERN_F64;
  if constexpr (std::is_same_v<T, std::int32_t>) return TERN_I32;
  if constexpr (std::is_same_v<T, std::int16_t>) return TERN_I16;
  return TERN_U8;
}

// One rank with a client of its own.
class Rank {
 public:
  Rank(const DaemonProcess& daemon, std::size_t rank) : rank_(rank) {
    tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
    const std::string socket = daemon.socket();
    options.socket_path = socket.c_str();
    options.arena_bytes = 64 << 20;
    EXPECT_EQ(tern_connect(&options, &client_), TERN_OK) << tern_error_detail();
  }
  ~Rank() { tern_disconnect(client_); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  std::size_t number() const { return rank_; }
  tern_client* client() { return client_; }
  tern_group* group() { return group_; }
  tern_group_id mint() {
    tern_group_id id{};
    EXPECT_EQ(tern_group_mint(client_, &id), TERN_OK) << tern_error_detail();
    return id;
  }
  void join(const tern_group_id& id, std::size_t size) {
    tern_join_options options = TERN_JOIN_OPTIONS_INIT;
    options.rank = static_cast<std::int32_t>(rank_);
    options.size = static_cast<std::int32_t>(size);
    ASSERT_EQ(tern_group_join(client_, &id, &options, &group_), TERN_OK) << tern_error_detail();
  }

 private:
  std::size_t rank_;
  tern_client* client_ = nullptr;
  tern_group* group_ = nullptr;
};

// A rank's memory of one operation.
template <typename T>
class Operands {
 public:
  Operands(Rank& rank, const Spec& spec, Where where) : rank_(rank), spec_(spec), where_(where) {
    const std::size_t me = rank.number();
    const std::uint64_t input = spec.input(me), output = spec.output(me);
    const bool in_place = spec.in_place && input != 0 && output != 0;
    const std::uint64_t held = in_place ? std::max(input, output) : input + output;
    memory_ = take(held);
    const std::uint64_t first =
        in_place ? std::min(spec.input_begin(me), spec.output_begin(me)) : 0;
    T* const in = memory_ + (in_place ? spec.input_begin(me) - first : 0);
    out_ = in_place ? memory_ + (spec.output_begin(me) - first) : memory_ + input;
    for (std::uint64_t i = 0; i < input; ++i) {
      in[i] = static_cast<T>(Spec::value(me, spec.input_begin(me) + i));
    }
    op_.dtype = dtype_of<T>();
    op_.count = spec.total();
    op_.root = static_cast<std::int32_t>(spec.root);
    op_.input = input != 0 ? in : nullptr;
    op_.output = output != 0 ? out_ : nullptr;
  }
  ~Operands() {
    if (where_ != Where::heap) {
      EXPECT_EQ(tern_free(rank_.client(), memory_), TERN_OK) << tern_error_detail();
    }
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  tern_batch_op op() const { return {spec_.kind, 0, &op_}; }
  void expect_right() const {
    for (std::uint64_t i = 0; i < spec_.output(rank_.number()); ++i) {
      ASSERT_EQ(out_[i], static_cast<T>(spec_.expected(rank_.number(), i)))
          << "rank " << rank_.number() << ", kind " << spec_.kind << ", element " << i;
    }
  }

 private:
  T* take(std::uint64_t count) {
    void* memory = nullptr;
    const std::uint64_t bytes = std::max<std::uint64_t>(count, 1) * sizeof(T);
    if (where_ == Where::region) {
      EXPECT_EQ(tern_region_create(rank_.client(), bytes, &memory), TERN_OK) << tern_error_detail();
    } else if (where_ == Where::arena) {
      EXPECT_EQ(tern_alloc(rank_.client(), bytes, &memory), TERN_OK) << tern_error_detail();
    } else {
      heap_.resize(std::max<std::uint64_t>(count, 1));
      memory = heap_.data();
    }
    return static_cast<T*>(memory);
  }

  Rank& rank_;
  Spec spec_;
  Where where_;
  std::vector<T> heap_;
  T* memory_ = nullptr;
  T* out_ = nullptr;
  tern_op op_ = TERN_OP_INIT;
};

class CopiesThroughDaemons : public ::testing::Test {
 protected:
  // All ranks at once, each on a thread of its own.
  void run(const std::vector<std::size_t>& node_of_rank,
           const std::function<void(Rank&, std::size_t size)>& work) {
    const std::size_t nodes = node_of_rank.back() + 1;
    Cluster cluster(static_cast<int>(nodes), {"--lanes", "2"});
    ASSERT_TRUE(cluster.running());
    std::vector<std::unique_ptr<Rank>> ranks;
    for (std::size_t i = 0; i < node_of_rank.size(); ++i) {
      ranks.push_back(std::make_unique<Rank>(cluster[node_of_rank[i]], i));
    }
    const tern_group_id id = ranks[0]->mint();
    std::vector<std::thread> threads;
    threads.reserve(ranks.size());
    for (auto& rank : ranks) {
      threads.emplace_back([&, one = rank.get()] {
        one->join(id, ranks.size());
        if (!HasFatalFailure()) work(*one, ranks.size());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  static void finish(Rank& rank, tern_ticket ticket) {
    ASSERT_EQ(tern_wait(rank.client(), ticket, 60'000), TERN_OK) << tern_error_detail();
  }
  static tern_ticket submit(Rank& rank, const std::vector<tern_batch_op>& ops) {
    tern_batch batch = TERN_BATCH_INIT;
    batch.ops = ops.data();
    batch.count = ops.size();
    tern_ticket ticket = 0;
    EXPECT_EQ(tern_submit_batch(rank.group(), &batch, &ticket), TERN_OK) << tern_error_detail();
    return ticket;
  }
  template <typename T>
  static void expect_kind(Rank& rank, const Spec& spec, Where where) {
    const Operands<T> operands(rank, spec, where);
    finish(rank, submit(rank, {operands.op()}));
    operands.expect_right();
  }
};

constexpr tern_op_kind kKinds[] = {TERN_OP_ALL_REDUCE,     TERN_OP_BROADCAST,  TERN_OP_REDUCE,
                                   TERN_OP_REDUCE_SCATTER, TERN_OP_ALL_GATHER, TERN_OP_GATHER,
                                   TERN_OP_SCATTER,        TERN_OP_ALL_TO_ALL};

TEST_F(CopiesThroughDaemons, EveryKindWhereverItsMemoryLies) {
  run({0, 0, 1}, [](Rank& rank, std::size_t size) {
    for (const tern_op_kind kind : kKinds) {
      for (const Where where : {Where::heap, Where::region}) {
        expect_kind<float>(rank, {kind, 220'011, size, 1, false}, where);
        const bool never = kind == TERN_OP_ALL_TO_ALL;
        if (!never) expect_kind<float>(rank, {kind, 220'011, size, 1, true}, where);
      }
      if (HasFatalFailure()) return;
    }
  });
}

TEST_F(CopiesThroughDaemons, EveryWidthOfElements) {
  run({0, 1}, [](Rank& rank, std::size_t size) {
    // Each rank has its memory where it likes.
    const Where where = rank.number() == 0 ? Where::heap : Where::arena;
    expect_kind<double>(rank, {TERN_OP_ALL_REDUCE, 300'007, size, 0, true}, where);
    expect_kind<std::int32_t>(rank, {TERN_OP_REDUCE_SCATTER, 300'007, size, 0, false}, where);
    expect_kind<std::int16_t>(rank, {TERN_OP_ALL_GATHER, 500'001, size, 0, true}, where);
    expect_kind<std::uint8_t>(rank, {TERN_OP_BROADCAST, 900'001, size, 1, false}, where);
  });
}

TEST_F(CopiesThroughDaemons, BatchesAndOpsAmongThem) {
  run({0, 1}, [](Rank& rank, std::size_t size) {
    const Operands<float> first(rank, {TERN_OP_ALL_REDUCE, 400'000, size, 0, true}, Where::heap);
    const Operands<float> second(rank, {TERN_OP_ALL_GATHER, 200'000, size, 0, false}, Where::heap);
    const Operands<float> third(rank, {TERN_OP_BROADCAST, 10, size, 0, false}, Where::heap);
    const Operands<float> alone(rank, {TERN_OP_ALL_REDUCE, 300'000, size, 0, false}, Where::region);
    const tern_ticket batch = submit(rank, {first.op(), second.op(), third.op()});
    const tern_ticket one = submit(rank, {alone.op()});
    finish(rank, one);
    finish(rank, batch);
    for (const auto* operands : {&first, &second, &third, &alone}) operands->expect_right();
  });
}

TEST_F(CopiesThroughDaemons, ACancelledOpLeavesTheNextOneRight) {
  run({0, 1}, [](Rank& rank, std::size_t size) {
    const Spec spec{TERN_OP_ALL_REDUCE, 2'000'000, size, 0, false};
    const Operands<float> cancelled(rank, spec, Where::heap);
    const tern_ticket ticket = submit(rank, {cancelled.op()});
    if (rank.number() == 1) {
      EXPECT_EQ(tern_cancel(rank.client(), ticket), TERN_OK) << tern_error_detail();
    }
    // It may have ended before.
    const tern_status status = tern_wait(rank.client(), ticket, 60'000);
    EXPECT_TRUE(status == TERN_OK || status == TERN_ERR_CANCELLED) << tern_error_detail();
    if (status == TERN_OK) cancelled.expect_right();
    expect_kind<float>(rank, spec, Where::heap);
  });
}

TEST_F(CopiesThroughDaemons, RegionsAreSeenAndCounted) {
  Cluster cluster(1, {"--max-arena-bytes", "100MiB"});
  ASSERT_TRUE(cluster.running());
  Rank rank(cluster[0], 0);
  void *first = nullptr, *second = nullptr;
  ASSERT_EQ(tern_region_create(rank.client(), 32 << 20, &first), TERN_OK) << tern_error_detail();
  EXPECT_EQ(tern_region_create(rank.client(), 8 << 20, &second), TERN_ERR_QUOTA_EXCEEDED);
  EXPECT_STREQ(tern_error_detail(),
               "a region of 8388608 bytes beside 100663296 exceeds max_arena_bytes = 104857600");
  const nlohmann::json clients = cluster[0].ask("clients");
  ASSERT_EQ(clients.size(), 1u) << clients;
  EXPECT_EQ(clients[0]["regions"], 1);
  EXPECT_EQ(clients[0]["region_bytes"], 32 << 20);
  EXPECT_NE(cluster[0].ternctl({"clients"}).find("32 MiB"), std::string::npos)
      << cluster[0].ternctl({"clients"});
  ASSERT_EQ(tern_free(rank.client(), first), TERN_OK) << tern_error_detail();
  ASSERT_EQ(tern_region_create(rank.client(), 8 << 20, &second), TERN_OK) << tern_error_detail();
}

}  // namespace
}  // namespace tern::e2e
