// Lossy recipes on what moves, through whole daemons: gathered and broadcast deltas are encoded once,
// with memory, and everybody decodes the same bytes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "cluster.h"
#include "codec/draw_key.h"

namespace tern::sim {
namespace {

using shm::OpKind;

// What arrives of one share, or of a root's values, computed with the codec's functions alone. It
// keeps what the sender keeps.
class MovedReference {
 public:
  struct Sender {
    std::uint32_t node = 0;
    std::uint32_t first_number = 0;  // of its chunks
    std::uint32_t step = 1;          // between their numbers
    bool has_codebooks = false;
  };

  MovedReference(const Tensor& tensor, const Sender& sender, std::uint64_t count)
      : tensor_(tensor),
        sender_(sender),
        recipe_(*codec::parse_recipe(tensor.spec.recipe)),
        chunk_elements_(shm::chunk_elements(16 << 10, tensor.spec.dtype)),
        residual_(count) {}

  const std::vector<float>& residual() const { return residual_; }

  float largest(const std::vector<float>& values, float state_scale) const {
    float max = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      max = std::max(max, std::abs(values[i] + state_scale * residual_[i]));
    }
    return max;
  }
  // `fixed_max`: of all that the sender's node sends, for scale=tensor.
  std::vector<float> deliver(const std::vector<float>& values, std::uint64_t sequence,
                             float state_scale, float fixed_max) {
    std::vector<float> out(values.size());
    std::uint32_t number = sender_.first_number;
    for (std::size_t begin = 0; begin < values.size(); begin += chunk_elements_) {
      const std::size_t elements = std::min(chunk_elements_, values.size() - begin);
      Bytes payload(codec::encode_bound(recipe_, elements));
      codec::EncodeRequest request;
      request.input = {values.data() + begin, elements};
      request.state = codec::has_memory(recipe_) ? residual_.data() + begin : nullptr;
      request.state_scale = state_scale;
      request.delivered = tensor_.spec.dtype;
      request.fixed_scale_max = fixed_max;
      request.stream_step = sequence;
      request.key = codec::DrawKey{0, tensor_.id, sequence, sender_.node, true, number}.mixed();
      request.sparsify = true;
      auto& codebook = codebooks_[number];
      codebook.resize(codec::kCodebookLevels);
      request.codebook = sender_.has_codebooks ? codebook.data() : nullptr;
      wire::BlockHeader header;
      const auto encoded = codec::encode(recipe_, request, {payload, header}, workspace_);
      const std::span<float> here{out.data() + begin, elements};
      if (encoded.nonfinite) {
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(begin), elements, here.begin());
      } else {
        payload.resize(encoded.payload_bytes);
        EXPECT_EQ(codec::decode({header, payload}, here, workspace_), codec::DecodeStatus::ok);
      }
      number += sender_.step;
    }
    return floats_of(tensor_.spec.dtype, bytes_of(tensor_.spec.dtype, out));
  }

 private:
  const Tensor& tensor_;
  Sender sender_;
  codec::Recipe recipe_;
  std::size_t chunk_elements_;
  std::vector<float> residual_;
  std::map<std::uint32_t, std::vector<float>> codebooks_;
  codec::Workspace workspace_;
};

TensorSpec delta(const std::string& recipe, std::uint64_t count, DType dtype = DType::f32) {
  TensorSpec spec;
  spec.name = "d";
  spec.count = count;
  spec.dtype = dtype;
  spec.role = Role::delta;
  spec.recipe = recipe;
  return spec;
}

struct Move {
  OpRequest request;
  std::vector<std::vector<float>> inputs;  // by rank; of a broadcast the root's only
  bool in_place = false;
};

struct Moved {
  std::vector<float> values;
  std::uint64_t bytes_sent = 0;
};

std::uint64_t begin_of(const std::vector<std::uint64_t>& counts, std::uint32_t rank) {
  std::uint64_t begin = 0;
  for (std::uint32_t i = 0; i < rank; ++i) begin += counts[i];
  return begin;
}

// All ranks submit it, each with the recipe that `recipe_of_rank` has for it.
std::vector<std::uint64_t> submit(Cluster& cluster, Move& move, const std::vector<Tensor*>& tensors,
                                  std::vector<std::uint64_t>& outputs,
                                  const std::vector<std::string>& recipes = {}) {
  const std::size_t element = dtype_bytes(move.request.dtype);
  std::vector<std::uint64_t> tickets;
  for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
    Client& client = *cluster.ranks[rank];
    OpRequest request = move.request;
    if (!recipes.empty()) request.recipe = recipes[rank];
    const Bytes input = bytes_of(request.dtype, move.inputs[rank]);
    request.output = client.allocate(request.count * element + 64);
    const std::uint64_t place = request.kind == OpKind::broadcast ? 0
                                : request.counts.empty() ? rank * (request.count / cluster.size())
                                                         : begin_of(request.counts, rank);
    request.input =
        move.in_place ? request.output + place * element : client.allocate(input.size() + 64);
    std::copy(input.begin(), input.end(), client.at(request.input));
    outputs.push_back(request.output);
    tickets.push_back(client.submit(request, tensors.empty() ? nullptr : tensors[rank]));
  }
  return tickets;
}

// One move of all ranks, which must succeed with the same bits everywhere.
Moved run(Cluster& cluster, Move move, const std::vector<Tensor*>& tensors,
          const std::vector<std::string>& recipes = {}) {
  std::vector<std::uint64_t> outputs;
  const auto tickets = submit(cluster, move, tensors, outputs, recipes);
  Moved moved;
  Bytes first;
  for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
    Client& client = *cluster.ranks[rank];
    EXPECT_TRUE(cluster.world.run_until([&] { return client.done(tickets[rank]); })) << rank;
    if (!client.done(tickets[rank])) return moved;
    const OpResult& result = client.result(tickets[rank]);
    EXPECT_EQ(result.status, Errc::ok) << "rank " << rank << ": " << result.detail;
    moved.bytes_sent += result.bytes_sent;
    const std::byte* const at = client.at(outputs[rank]);
    const Bytes output(at, at + move.request.count * dtype_bytes(move.request.dtype));
    if (rank == 0) first = output;
    EXPECT_EQ(output == first, true) << "rank " << rank << " has other bits";
  }
  moved.values = floats_of(move.request.dtype, first);
  cluster.forget_arenas();
  return moved;
}

void expect_refused(Cluster& cluster, Move move, const std::vector<Tensor*>& tensors,
                    const std::string& word) {
  std::vector<std::uint64_t> outputs;
  const auto tickets = submit(cluster, move, tensors, outputs);
  for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
    Client& client = *cluster.ranks[rank];
    ASSERT_TRUE(cluster.world.run_until([&] { return client.done(tickets[rank]); })) << rank;
    EXPECT_EQ(client.result(tickets[rank]).status, Errc::bad_recipe);
    EXPECT_TRUE(contains(client.result(tickets[rank]).detail, word))
        << client.result(tickets[rank]).detail;
  }
  cluster.forget_arenas();
}

// Every rank has values of its own for its share; counts empty: equal shares.
Move gather_of(DType dtype, const std::vector<std::uint64_t>& counts, std::uint64_t seed) {
  Move move;
  move.request.kind = OpKind::all_gather;
  move.request.dtype = dtype;
  move.request.counts = counts;
  for (std::uint32_t rank = 0; rank < counts.size(); ++rank) {
    move.request.count += counts[rank];
    move.inputs.push_back(
        floats_of(dtype, bytes_of(dtype, values_of(counts[rank], seed * 100 + rank))));
  }
  return move;
}

Move broadcast_of(DType dtype, std::uint64_t count, std::uint32_t ranks, std::uint64_t seed) {
  Move move;
  move.request.kind = OpKind::broadcast;
  move.request.dtype = dtype;
  move.request.count = count;
  move.request.root = 1;
  move.inputs.resize(ranks);
  move.inputs[1] = floats_of(dtype, bytes_of(dtype, values_of(count, seed)));
  return move;
}

std::vector<float> plain(const Move& move) {
  std::vector<float> all;
  for (const auto& input : move.inputs) all.insert(all.end(), input.begin(), input.end());
  return all;
}

class MovedRecipe : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(
    Recipes, MovedRecipe,
    testing::Values("3lc:s=1", "3lc:s=1.75", "none(3lc:s=1)", "3lc:s=1.5,layout=paper",
                    "3lc:s=1,scale=tensor", "ef(3lc:s=1+huffman)", "ef(bf16)", "none(bf16)",
                    "ef(int:bits=4)", "ef(lloyd:bits=3+huffman)", "ef(onebit)",
                    "ef(topk:p=0.05+int:bits=8)", "ef(randk:p=0.1)",
                    "none(blocksparse:p=0.25,block=64)", "none(qsgd:levels=4)"),
    [](const auto& one) {
      std::string name = one.param;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
      return name;
    });

TEST_P(MovedRecipe, GatheredDeltasMatchTheReferenceOverManySteps) {
  const std::vector<std::uint64_t> counts{1'000, 9'000, 0, 5'000};
  const std::uint32_t node_of[] = {0, 1, 1, 2};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    DaemonShape shape;
    shape.lanes = 2;
    Cluster cluster({1, 2, 1}, shape);
    JoinOptions options;
    options.verify = true;
    cluster.join(options);
    const auto tensors = cluster.declare(delta(GetParam(), 15'000, dtype));
    std::vector<MovedReference> senders;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      senders.emplace_back(*tensors[0], MovedReference::Sender{node_of[rank], rank, 4, false},
                           counts[rank]);
    }
    for (std::uint64_t step = 0; step < 4; ++step) {
      Move move = gather_of(dtype, counts, step + 1);
      if (step == 2) move.request.state_scale = 0.5f;
      move.in_place = step == 1;
      float node_max[3] = {};
      for (std::uint32_t rank = 0; rank < 4; ++rank) {
        float& max = node_max[node_of[rank]];
        max = std::max(max, senders[rank].largest(move.inputs[rank], move.request.state_scale));
      }
      std::vector<float> expected;
      for (std::uint32_t rank = 0; rank < 4; ++rank) {
        const auto share = senders[rank].deliver(move.inputs[rank], step, move.request.state_scale,
                                                 node_max[node_of[rank]]);
        expected.insert(expected.end(), share.begin(), share.end());
      }
      EXPECT_EQ(run(cluster, move, tensors).values == expected, true)
          << dtype_name(dtype) << " step " << step;
    }
    cluster.leave_all();
  }
}

TEST_P(MovedRecipe, ABroadcastDeltaMatchesTheReferenceOverManySteps) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    DaemonShape shape;
    shape.lanes = 2;
    Cluster cluster({2, 1, 1}, shape);
    cluster.join();
    const auto tensors = cluster.declare(delta(GetParam(), 10'000, dtype));
    MovedReference root(*tensors[0], {0, 0, 1, true}, 10'000);
    for (std::uint64_t step = 0; step < 4; ++step) {
      Move move = broadcast_of(dtype, 10'000, 4, step + 1);
      const auto expected =
          root.deliver(move.inputs[1], step, 1.0f, root.largest(move.inputs[1], 1.0f));
      EXPECT_EQ(run(cluster, move, tensors).values == expected, true)
          << dtype_name(dtype) << " step " << step;
    }
    cluster.leave_all();
  }
}

TEST(LossyMoves, AreTheSameWithAnyNumberOfLanesAndSendFewBytes) {
  const std::vector<std::uint64_t> counts{20'000, 40'001, 7};
  std::vector<std::vector<float>> first;
  for (std::uint32_t lanes = 1; lanes <= 3; ++lanes) {
    DaemonShape shape;
    shape.lanes = lanes;
    Cluster cluster({1, 1, 1}, shape, lanes);
    cluster.join();
    const auto tensors = cluster.declare(delta("3lc:s=1", 60'008));
    for (std::size_t step = 0; step < 3; ++step) {
      const Moved moved = run(cluster, gather_of(DType::f32, counts, step + 1), tensors);
      if (first.size() == step) first.push_back(moved.values);
      EXPECT_EQ(moved.values == first[step], true) << lanes << " lanes, step " << step;
      EXPECT_LT(moved.bytes_sent, 2 * 60'008 * 4 / 8);
    }
    cluster.leave_all();
  }
}

// What has been delivered and what the sender keeps are what was given, to the bit: all values lie
// on a grid on which sums are exact.
TEST(LossyMoves, DeliveredAndKeptAreWhatWasGiven) {
  const std::vector<std::uint64_t> counts{6'000, 0, 3'000};
  Cluster cluster({1, 1, 1});
  cluster.join();
  const auto tensors = cluster.declare(delta("3lc:s=1", 9'000));
  std::vector<MovedReference> senders;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    senders.emplace_back(*tensors[0], MovedReference::Sender{rank, rank, 3, false}, counts[rank]);
  }
  std::vector<float> given(9'000), delivered(9'000);
  for (std::uint64_t step = 0; step < 20; ++step) {
    Move move = gather_of(DType::f32, counts, step + 1);
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      for (float& value : move.inputs[rank]) value = std::round(value * 1024) / 1024;
      senders[rank].deliver(move.inputs[rank], step, 1.0f, 0.0f);
    }
    const auto inputs = plain(move);
    const auto got = run(cluster, move, tensors).values;
    for (std::size_t i = 0; i < 9'000; ++i) {
      given[i] += inputs[i];
      delivered[i] += got[i];
    }
  }
  std::size_t at = 0, kept = 0;
  for (const MovedReference& sender : senders) {
    for (const float residual : sender.residual()) {
      ASSERT_EQ(given[at] - delivered[at], residual) << at;
      kept += residual != 0.0f ? 1 : 0;
      ++at;
    }
  }
  EXPECT_GT(kept, 1'000u) << "nothing was lost, so nothing was compressed";
}

struct Told {
  const char* name;
  OpKind kind;
  Role role;
  std::string recipe;  // of the declaration
  std::string own;     // of the op
  bool lossy;
  bool exempt = false;
  bool tuner = false;
};
void PrintTo(const Told& told, std::ostream* out) { *out << told.name; }
class WhoMayLose : public testing::TestWithParam<Told> {};
INSTANTIATE_TEST_SUITE_P(
    Moves, WhoMayLose,
    testing::Values(
        Told{"gathered_gradient", OpKind::all_gather, Role::gradient, "3lc:s=1", "", true},
        Told{"gathered_exact", OpKind::all_gather, Role::exact, "3lc:s=1", "", false},
        Told{"gathered_weights", OpKind::all_gather, Role::weights, "3lc:s=1", "", false},
        Told{"gathered_exempt", OpKind::all_gather, Role::delta, "3lc:s=1", "", false, true},
        Told{"gathered_raw", OpKind::all_gather, Role::delta, "3lc:s=1", "raw", false},
        Told{"gathered_auto", OpKind::all_gather, Role::delta, "auto", "", false, false, true},
        Told{"broadcast_default", OpKind::broadcast, Role::delta, "", "", false, false, true},
        Told{"broadcast_auto", OpKind::broadcast, Role::delta, "auto", "", false, false, true},
        Told{"broadcast_gradient", OpKind::broadcast, Role::gradient, "3lc:s=1", "", false},
        Told{"broadcast_exact", OpKind::broadcast, Role::exact, "3lc:s=1", "", false},
        Told{"broadcast_weights", OpKind::broadcast, Role::weights, "3lc:s=1", "", false},
        Told{"broadcast_exempt", OpKind::broadcast, Role::delta, "3lc:s=1", "", false, true},
        Told{"broadcast_asks_in_the_op", OpKind::broadcast, Role::delta, "auto", "3lc:s=1", true,
             false, true},
        Told{"broadcast_op_is_auto", OpKind::broadcast, Role::delta, "3lc:s=1", "auto", false}),
    [](const auto& one) { return std::string(one.param.name); });

TEST_P(WhoMayLose, IsAsDeclared) {
  const Told& told = GetParam();
  DaemonShape shape;
  shape.tuner = told.tuner;
  Cluster cluster({1, 1}, shape);
  cluster.join();
  TensorSpec spec = delta(told.recipe, 9'000);
  spec.role = told.role;
  spec.exempt = told.exempt;
  const auto tensors = cluster.declare(spec);
  for (std::uint64_t step = 1; step <= 2; ++step) {
    Move move = told.kind == OpKind::all_gather ? gather_of(DType::f32, {8'000, 1'000}, step)
                                                : broadcast_of(DType::f32, 9'000, 2, step);
    move.request.recipe = told.own;
    EXPECT_EQ(run(cluster, move, tensors).values != plain(move), told.lossy) << "step " << step;
  }
  cluster.leave_all();
}

// What the operator sets for all is no word of the application's.
TEST(LossyMoves, TheDefaultRecipeDoesNotReachABroadcast) {
  DaemonShape shape;
  shape.adjust = [](daemon::ConductorSettings& settings) {
    settings.tensors.default_gradient_recipe = "3lc:s=1";
  };
  Cluster cluster({1, 1}, shape);
  cluster.join();
  const auto tensors = cluster.declare(delta("", 9'000));
  const Move move = broadcast_of(DType::f32, 9'000, 2, 1);
  EXPECT_EQ(run(cluster, move, tensors).values == plain(move), true);
  const Move gather = gather_of(DType::f32, {8'000, 1'000}, 1);
  EXPECT_EQ(run(cluster, gather, tensors).values != plain(gather), true);
}

// ---- Ops that would fit in their announcements --------------------------------------------------

TEST(LossyMoves, OnesThatFitInTheirAnnouncementsAreCompressed) {
  DaemonShape shape;
  shape.eager_bytes = 64 << 10;
  Cluster cluster({1, 2, 1}, shape);
  cluster.join();
  for (const OpKind kind : {OpKind::all_gather, OpKind::broadcast}) {
    TensorSpec spec = delta("3lc:s=1", 4'000);
    spec.name = kind == OpKind::broadcast ? "b" : "g";
    const auto tensors = cluster.declare(spec);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      Move move = kind == OpKind::broadcast
                      ? broadcast_of(DType::f32, 4'000, 4, step)
                      : gather_of(DType::f32, std::vector<std::uint64_t>(4, 1'000), step);
      move.request.counts.clear();
      const Moved moved = run(cluster, move, tensors);
      EXPECT_EQ(moved.values != plain(move), true);
      EXPECT_LT(moved.bytes_sent, 2 * 4'000 * 4 / 4) << "step " << step;
    }
  }
  cluster.leave_all();
}

// One rank's own recipe for the op, without a word to the others.
TEST(LossyMoves, OneNodeThatCompressesMakesNoOpEager) {
  DaemonShape shape;
  shape.eager_bytes = 64 << 10;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Cluster cluster({1, 1, 1}, shape, seed);
    cluster.join();
    const auto tensors = cluster.declare(delta("none(raw)", 3'000));
    for (std::uint32_t compressing = 0; compressing < 3; ++compressing) {
      Move move = gather_of(DType::f32, {1'000, 1'000, 1'000}, seed + compressing);
      move.request.counts.clear();
      std::vector<std::string> recipes(3);
      recipes[compressing] = "none(bf16)";
      const auto got = run(cluster, move, tensors, recipes).values;
      const auto exact = plain(move);
      for (std::uint32_t rank = 0; rank < 3; ++rank) {
        const auto begin = static_cast<std::ptrdiff_t>(rank * 1'000);
        EXPECT_EQ(
            std::equal(got.begin() + begin, got.begin() + begin + 1'000, exact.begin() + begin),
            rank != compressing)
            << "seed " << seed << ", rank " << rank;
      }
    }
    cluster.leave_all();
  }
}

// ---- Memory -------------------------------------------------------------------------------------

// A share that overflowed travels as it is, and the residual is that of the step before.
TEST(LossyMoves, AChunkWithAnInfinityTravelsRawAndLeavesTheResidual) {
  const std::vector<std::uint64_t> counts{6'000, 3'000};
  for (const std::string recipe : {"3lc:s=1", "ef(int:bits=4)"}) {
    Cluster cluster({1, 1});
    cluster.join();
    const auto tensors = cluster.declare(delta(recipe, 9'000));
    std::vector<MovedReference> senders;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      senders.emplace_back(*tensors[0], MovedReference::Sender{rank, rank, 2, false}, counts[rank]);
    }
    for (std::uint64_t step = 0; step < 4; ++step) {
      Move move = gather_of(DType::f32, counts, step + 1);
      if (step == 1) move.inputs[0][4'200] = std::numeric_limits<float>::infinity();
      const std::vector<float> before = senders[0].residual();
      std::vector<float> expected;
      for (std::uint32_t rank = 0; rank < 2; ++rank) {
        const auto share = senders[rank].deliver(move.inputs[rank], step, 1.0f, 0.0f);
        expected.insert(expected.end(), share.begin(), share.end());
      }
      const auto got = run(cluster, move, tensors).values;
      EXPECT_EQ(got == expected, true) << recipe << " step " << step;
      if (step == 1) {
        EXPECT_EQ(
            std::equal(move.inputs[0].begin() + 4'096, move.inputs[0].end(), got.begin() + 4'096),
            true);
        EXPECT_EQ(
            std::equal(before.begin() + 4'096, before.end(), senders[0].residual().begin() + 4'096),
            true);
      }
    }
    cluster.leave_all();
  }
}

TEST(LossyMoves, AResidualIsOfOneKindAndItsCounts) {
  Cluster cluster({1, 1});
  cluster.join();
  const auto tensors = cluster.declare(delta("3lc:s=1", 9'000));
  run(cluster, gather_of(DType::f32, {8'000, 1'000}, 1), tensors);
  expect_refused(cluster, gather_of(DType::f32, {1'000, 8'000}, 2), tensors,
                 "declare a tensor for each");
  expect_refused(cluster, broadcast_of(DType::f32, 9'000, 2, 3), tensors,
                 "declare a tensor for each");
  // What loses nothing needs no residual.
  Move raw = broadcast_of(DType::f32, 9'000, 2, 4);
  raw.request.recipe = "raw";
  EXPECT_EQ(run(cluster, raw, tensors).values == plain(raw), true);
  run(cluster, gather_of(DType::f32, {8'000, 1'000}, 5), tensors);
  cluster.leave_all();
}

TEST(LossyMoves, AShiftIsForAnAllReduce) {
  Cluster cluster({1, 1});
  cluster.join();
  const auto tensors = cluster.declare(delta("diana(qsgd:levels=4)", 9'000));
  expect_refused(cluster, gather_of(DType::f32, {8'000, 1'000}, 1), tensors,
                 "declare the tensor with ef");
  Move raw = gather_of(DType::f32, {8'000, 1'000}, 2);
  raw.request.recipe = "raw";
  EXPECT_EQ(run(cluster, raw, tensors).values == plain(raw), true);
  cluster.leave_all();
}

// Numbers of chunks of shares are no places in what the tuner keeps of a tensor's chunks.
TEST(LossyMoves, AnOwnRecipeOnATunedTensorIsLossyInShares) {
  DaemonShape shape;
  shape.tuner = true;
  Cluster cluster({1, 1}, shape);
  cluster.join();
  const auto tensors = cluster.declare(delta("auto", 9'000));
  Move move = gather_of(DType::f32, {9'000, 0}, 1);
  move.request.recipe = "3lc:s=1";
  EXPECT_EQ(run(cluster, move, tensors).values != plain(move), true);
  cluster.leave_all();
}

}  // namespace
}  // namespace tern::sim
