// Every kind of operation through libtern and real daemons, over one to eight nodes of one to four
// ranks: what each rank gets is computed here, one element at a time.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "client_lib/include/tern/tern.hpp"
#include "tests/e2e/cluster.h"
#include "tests/e2e/ranks_on_nodes.h"
#include "tests/e2e/typed_ops.h"

namespace tern::e2e {
namespace {

enum class OfKind { all_reduce, broadcast, reduce, reduce_scatter, all_gather, gather, scatter };
constexpr const char* kNames[] = {"all_reduce", "broadcast", "reduce", "reduce_scatter",
                                  "all_gather", "gather",    "scatter"};
// What carries the op: pointers from anywhere, the arena, one of these in place.
enum class Place { heap, arena, in_place };

using Values = std::vector<std::int32_t>;

struct DrawnOp {
  OfKind kind = OfKind::all_reduce;
  std::int32_t root = 0;
  std::vector<std::uint64_t> counts;  // of every rank
  bool equal = false;
  Place place = Place::heap;
  std::int32_t draw = 0;

  std::uint64_t begin(std::size_t rank) const {
    return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank),
                           std::uint64_t{0});
  }
  std::uint64_t total() const { return begin(counts.size()); }
  bool shares() const { return kind >= OfKind::reduce_scatter; }
  bool sends_share() const { return kind == OfKind::all_gather || kind == OfKind::gather; }
  bool gets_share() const { return kind == OfKind::reduce_scatter || kind == OfKind::scatter; }
  bool root_sends() const { return kind == OfKind::broadcast || kind == OfKind::scatter; }
  bool root_gets() const { return kind == OfKind::reduce || kind == OfKind::gather; }
  bool adds() const { return !root_sends() && !sends_share(); }

  std::string text() const {
    std::string text = std::string(kNames[static_cast<int>(kind)]) + ", root " +
                       std::to_string(root) + (equal ? ", equal" : ", counts");
    for (const std::uint64_t count : counts) text += " " + std::to_string(count);
    return text + ", place " + std::to_string(static_cast<int>(place));
  }
};

std::int32_t value_at(const DrawnOp& op, std::size_t rank, std::uint64_t element) {
  return static_cast<std::int32_t>(element * 2654435761u + rank * 40503u) + op.draw;
}

std::int32_t expected_at(const DrawnOp& op, std::uint64_t element) {
  if (op.root_sends()) return value_at(op, static_cast<std::size_t>(op.root), element);
  if (op.sends_share()) {
    std::size_t rank = 0;
    while (element >= op.begin(rank) + op.counts[rank]) ++rank;
    return value_at(op, rank, element);
  }
  std::uint32_t sum = 0;  // integers wrap
  for (std::size_t rank = 0; rank < op.counts.size(); ++rank) {
    sum += static_cast<std::uint32_t>(value_at(op, rank, element));
  }
  return static_cast<std::int32_t>(sum);
}

struct Held {
  std::uint64_t begin = 0, count = 0;
};

Held input_of(const DrawnOp& op, std::size_t rank) {
  if (op.root_sends() && static_cast<int>(rank) != op.root) return {};
  return op.sends_share() ? Held{op.begin(rank), op.counts[rank]} : Held{0, op.total()};
}

Held output_of(const DrawnOp& op, std::size_t rank) {
  if (op.root_gets() && static_cast<int>(rank) != op.root) return {};
  return op.gets_share() ? Held{op.begin(rank), op.counts[rank]} : Held{0, op.total()};
}

class KindRank {
 public:
  explicit KindRank(LayoutRank& at) : at_(at) {}

  // Empty, or what is wrong.
  std::string run(const DrawnOp& op) {
    const Held in = input_of(op, rank_), out = output_of(op, rank_);
    const bool arena = op.place != Place::heap;
    // In place there is one buffer, of whichever holds more of the op.
    const Held held = in.count >= out.count ? in : out;
    const bool in_place = op.place == Place::in_place && in.count != 0 && out.count != 0;
    Buffer whole(*at_.client, in_place ? held.count : 0, arena);
    Buffer input(*at_.client, in_place ? 0 : in.count, arena);
    Buffer output(*at_.client, in_place ? 0 : out.count, arena);
    std::int32_t* const from = in_place ? whole.data() + (in.begin - held.begin) : input.data();
    std::int32_t* const to = in_place ? whole.data() + (out.begin - held.begin) : output.data();
    for (std::uint64_t i = 0; i < in.count; ++i) from[i] = value_at(op, rank_, in.begin + i);
    submit(op, {from, in.count}, {to, out.count}).wait();
    for (std::uint64_t i = 0; i < out.count; ++i) {
      const std::int32_t wanted = expected_at(op, out.begin + i);
      if (to[i] == wanted) continue;
      return "has " + std::to_string(to[i]) + " and not " + std::to_string(wanted) + " at " +
             std::to_string(out.begin + i);
    }
    return "";
  }

  // What each rank has for each, rank by rank of who sends. Empty, or what is wrong.
  std::string exchange(const std::vector<std::uint64_t>& pairs, bool equal) {
    const std::size_t size = static_cast<std::size_t>(at_.group->info().size);
    std::vector<std::uint64_t> sent, received;
    Values input, output;
    for (std::size_t other = 0; other < size; ++other) {
      sent.push_back(pairs[rank_ * size + other]);
      received.push_back(pairs[other * size + rank_]);
      for (std::uint64_t i = 0; i < sent.back(); ++i) input.push_back(mark(rank_, other, i));
      output.resize(output.size() + received.back(), -1);
    }
    if (equal) sent.clear(), received.clear();
    at_.group->all_to_all(In(input), Out(output), sent, received).wait();
    std::size_t at = 0;
    for (std::size_t other = 0; other < size; ++other) {
      for (std::uint64_t i = 0; i < pairs[other * size + rank_]; ++i, ++at) {
        if (output[at] == mark(other, rank_, i)) continue;
        return "has something else from rank " + std::to_string(other) + " at " + std::to_string(i);
      }
    }
    return "";
  }

 private:
  static std::int32_t mark(std::size_t from, std::size_t to, std::uint64_t i) {
    return static_cast<std::int32_t>((from * 64 + to) * 100'000 + i % 100'000);
  }

  using In = std::span<const std::int32_t>;
  using Out = std::span<std::int32_t>;

  class Buffer {
   public:
    Buffer(tern::Client& client, std::uint64_t count, bool arena) : client_(client) {
      if (arena && count != 0) {
        arena_ = client.allocate<std::int32_t>(count);
      } else {
        heap_.resize(count);
      }
    }
    ~Buffer() {
      if (!arena_.empty()) client_.deallocate(arena_);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    std::int32_t* data() { return arena_.empty() ? heap_.data() : arena_.data(); }

   private:
    tern::Client& client_;
    std::span<std::int32_t> arena_;
    Values heap_;
  };

  tern::Ticket submit(const DrawnOp& op, In input, Out output) {
    const std::span<const std::uint64_t> counts =
        op.equal ? std::span<const std::uint64_t>{} : std::span<const std::uint64_t>(op.counts);
    switch (op.kind) {
      case OfKind::reduce:
        return at_.group->reduce(input, output, op.root);
      case OfKind::reduce_scatter:
        return at_.group->reduce_scatter(input, output, counts);
      case OfKind::all_gather:
        return at_.group->all_gather(input, output, counts);
      case OfKind::gather:
        return at_.group->gather(input, output, op.root, counts);
      case OfKind::scatter:
        return at_.group->scatter(input, output, op.root, counts);
      case OfKind::all_reduce:
      case OfKind::broadcast:
        break;
    }
    tern_op plain = TERN_OP_INIT;
    plain.dtype = TERN_I32;
    plain.input = input.data();
    plain.output = output.data();
    plain.count = op.total();
    plain.root = op.root;
    return op.kind == OfKind::broadcast ? at_.group->broadcast(plain)
                                        : at_.group->all_reduce(plain);
  }

  LayoutRank& at_;
  std::size_t rank_ = at_.rank;
};

using EveryKind = RanksOnNodes;

TEST_P(EveryKind, DeliversWhatAReferenceDoes) {
  constexpr std::uint64_t kSeed = 20;
  std::mt19937_64 random(kSeed);
  const auto below = [&](std::uint64_t end) { return random() % end; };
  for (int draw = 0; draw < 84; ++draw) {
    DrawnOp op;
    op.kind = static_cast<OfKind>(draw % 7);
    op.root = static_cast<std::int32_t>(below(ranks().size()));
    op.place = static_cast<Place>(below(3));
    op.draw = draw;
    op.equal = below(2) == 0;
    const std::uint64_t most = below(4) == 0 ? 40'000 : 400;
    op.counts.assign(ranks().size(), below(most));
    for (std::uint64_t& count : op.counts) {
      if (!op.equal) count = below(4) == 0 ? 0 : below(most);
    }
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", " << op.text());
    ASSERT_EQ(ranks().on_all([&](LayoutRank& at) { return KindRank(at).run(op); }), "");
  }
}

TEST_P(EveryKind, ExchangesWhatEachRankHasForEach) {
  constexpr std::uint64_t kSeed = 21;
  std::mt19937_64 random(kSeed);
  for (int draw = 0; draw < 12; ++draw) {
    const bool equal = draw % 2 == 0;
    const std::uint64_t most = draw % 3 == 0 ? 20'000 : 300;
    std::vector<std::uint64_t> pairs(std::size_t{ranks().size()} * ranks().size(), random() % most);
    for (std::uint64_t& count : pairs) {
      if (!equal) count = random() % 4 == 0 ? 0 : random() % most;
    }
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", draw " << draw);
    ASSERT_EQ(ranks().on_all([&](LayoutRank& at) { return KindRank(at).exchange(pairs, equal); }),
              "");
  }
}

TEST_P(EveryKind, HasEveryTypeAndReductionWhateverTheOrderOfSubmission) {
  constexpr std::uint64_t kSeed = 22;
  std::mt19937_64 random(kSeed);
  for (int number = 0; number <= static_cast<int>(kLastDType); ++number) {
    const auto dtype = static_cast<DType>(number);
    const auto ops = typed_ops_of(dtype, ranks().size(), random);
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", " << dtype_name(dtype));
    ASSERT_EQ(ranks().on_all([&](LayoutRank& at) { return run_typed_ops(at, ops, kSeed); }), "");
  }
}

#ifdef TERN_TOKEN_EXCHANGE
TEST(Examples, TokensComeBackFromTheirExperts) {
  Cluster cluster(2);
  ASSERT_TRUE(cluster.running());
  std::vector<Process> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    const DaemonProcess& daemon = cluster[static_cast<std::size_t>(rank / 2)];
    ranks.emplace_back(
        "/usr/bin/env",
        std::vector<std::string>{"TERN_SOCKET=" + daemon.socket(), TERN_TOKEN_EXCHANGE,
                                 cluster.folder() + "/id", std::to_string(rank), "4", "3000"},
        daemon.folder() + "/ranks.log");
  }
  for (int rank = 0; rank < 4; ++rank) {
    Process& process = ranks[static_cast<std::size_t>(rank)];
    const auto said = process.read_line();
    ASSERT_TRUE(said.has_value()) << tail_of(cluster[static_cast<std::size_t>(rank / 2)].folder() +
                                             "/ranks.log");
    EXPECT_NE(said->find("3000 tokens out"), std::string::npos) << *said;
    const auto exit = process.wait_exit();
    EXPECT_TRUE(exit && exit->status == 0);
  }
}
#endif

std::string name_of_layout(const testing::TestParamInfo<NodeLayout>& layout) {
  return layout.param.name;
}
// A suite for each, so that its tests share its daemons.
INSTANTIATE_TEST_SUITE_P(OneNode, EveryKind, testing::Values(NodeLayout{"OneNode", {4}, {}}),
                         name_of_layout);
INSTANTIATE_TEST_SUITE_P(TwoNodes, EveryKind,
                         testing::Values(NodeLayout{"TwoNodes", {1, 1}, {"--lanes", "2"}}),
                         name_of_layout);
INSTANTIATE_TEST_SUITE_P(TwoNodesEncrypted, EveryKind,
                         testing::Values(NodeLayout{"TwoNodesEncrypted", {2, 3}, {}, true}),
                         name_of_layout);
INSTANTIATE_TEST_SUITE_P(ThreeUnevenNodes, EveryKind,
                         testing::Values(NodeLayout{
                             "ThreeUnevenNodes", {3, 1, 2}, {"--lanes", "3"}}),
                         name_of_layout);
INSTANTIATE_TEST_SUITE_P(FiveNodes, EveryKind,
                         testing::Values(NodeLayout{"FiveNodes", {1, 2, 1, 1, 4}, {}}),
                         name_of_layout);
INSTANTIATE_TEST_SUITE_P(EightNodes, EveryKind,
                         testing::Values(NodeLayout{"EightNodes", {1, 1, 1, 1, 1, 1, 1, 1}, {}}),
                         name_of_layout);

}  // namespace
}  // namespace tern::e2e
