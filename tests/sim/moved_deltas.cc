#include "moved_deltas.h"

#include <algorithm>
#include <cmath>

#include "codec/draw_key.h"

namespace tern::sim {

using shm::OpKind;

float MovedReference::largest(const std::vector<float>& values, float state_scale) const {
  float max = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    max = std::max(max, std::abs(values[i] + state_scale * residual_[i]));
  }
  return max;
}

std::vector<float> MovedReference::deliver(const std::vector<float>& values, std::uint64_t sequence,
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

TensorSpec delta(const std::string& recipe, std::uint64_t count, DType dtype) {
  TensorSpec spec;
  spec.name = "d";
  spec.count = count;
  spec.dtype = dtype;
  spec.role = Role::delta;
  spec.recipe = recipe;
  return spec;
}

namespace {

struct Submitted {
  std::vector<std::uint64_t> tickets, outputs;  // by rank
};

std::uint64_t begin_of(const std::vector<std::uint64_t>& counts, std::uint32_t rank) {
  std::uint64_t begin = 0;
  for (std::uint32_t i = 0; i < rank; ++i) begin += counts[i];
  return begin;
}

Submitted submit(Cluster& cluster, const Move& move, const std::vector<Tensor*>& tensors) {
  const std::size_t element = dtype_bytes(move.request.dtype);
  Submitted submitted;
  for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
    Client& client = *cluster.ranks[rank];
    OpRequest request = move.request;
    if (!move.recipes.empty()) request.recipe = move.recipes[rank];
    const Bytes input = bytes_of(request.dtype, move.inputs[rank]);
    request.output = client.allocate(request.count * element + 64);
    const std::uint64_t place = request.kind == OpKind::broadcast ? 0
                                : request.counts.empty() ? rank * (request.count / cluster.size())
                                                         : begin_of(request.counts, rank);
    request.input =
        move.in_place ? request.output + place * element : client.allocate(input.size() + 64);
    std::copy(input.begin(), input.end(), client.at(request.input));
    submitted.outputs.push_back(request.output);
    submitted.tickets.push_back(client.submit(request, tensors[rank]));
  }
  return submitted;
}

}  // namespace

Moved run(Cluster& cluster, const Move& move, const std::vector<Tensor*>& tensors) {
  const auto [tickets, outputs] = submit(cluster, move, tensors);
  Moved moved;
  Bytes first;
  for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
    Client& client = *cluster.ranks[rank];
    EXPECT_TRUE(cluster.world.run_until([&, ticket = tickets[rank]] {
      return client.done(ticket);
    })) << rank;
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

void expect_refused(Cluster& cluster, const Move& move, const std::vector<Tensor*>& tensors,
                    const std::string& word) {
  const std::vector<std::uint64_t> tickets = submit(cluster, move, tensors).tickets;
  for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
    Client& client = *cluster.ranks[rank];
    ASSERT_TRUE(cluster.world.run_until([&, ticket = tickets[rank]] {
      return client.done(ticket);
    })) << rank;
    EXPECT_EQ(client.result(tickets[rank]).status, Errc::bad_recipe);
    EXPECT_TRUE(contains(client.result(tickets[rank]).detail, word))
        << client.result(tickets[rank]).detail;
  }
  cluster.forget_arenas();
}

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

}  // namespace tern::sim
