#include "every_kind.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace tern::sim {
namespace {

constexpr std::byte kUntouched{0xa5};
constexpr std::uint64_t kMargin = 64;  // bytes around a rank's memory

std::uint64_t share_begin(const KindCase& c, std::uint32_t rank) {
  return std::accumulate(c.counts.begin(), c.counts.begin() + rank, std::uint64_t{0});
}

plan::Range share(const KindCase& c, std::uint32_t rank) {
  return {share_begin(c, rank), c.counts[rank]};
}

plan::Range whole(const KindCase& c) { return {0, total(c.counts)}; }

// ---- Pairs. An element has a number of its own for each rank: see plan/pairs.h. ----

std::uint32_t ranks_of_pairs(const KindCase& c) {
  std::uint32_t ranks = 1;
  while (std::size_t{ranks} * ranks < c.counts.size()) ++ranks;
  return ranks;
}

std::uint64_t pair(const KindCase& c, std::uint32_t from, std::uint32_t to) {
  return c.counts[std::size_t{from} * ranks_of_pairs(c) + to];
}

// What `rank` has for (gets from) each.
std::vector<std::uint64_t> one_way(const KindCase& c, std::uint32_t rank, bool received) {
  std::vector<std::uint64_t> counts;
  for (std::uint32_t other = 0; other < ranks_of_pairs(c); ++other) {
    counts.push_back(received ? pair(c, other, rank) : pair(c, rank, other));
  }
  return counts;
}

// Of the i-th element that `to` gets: which rank has it, and what it is.
double expected_of_pairs(const KindCase& c, std::uint32_t to, std::uint64_t i) {
  std::uint32_t from = 0;
  for (; i >= pair(c, from, to); ++from) i -= pair(c, from, to);
  for (std::uint32_t before = 0; before < to; ++before) i += pair(c, from, before);
  return value_at(c, from, plan::pair_inputs_begin(from) + i);
}

// Who may say what an element is, of a kind that moves.
std::uint32_t source_of(const KindCase& c, std::uint64_t element) {
  if (c.kind == shm::OpKind::broadcast || c.kind == shm::OpKind::scatter) return c.root;
  std::uint32_t rank = 0;
  while (element >= share_begin(c, rank) + c.counts[rank]) ++rank;
  return rank;
}

Bytes bytes_of_values(const KindCase& c, std::uint32_t rank, const plan::Range& range) {
  std::vector<float> values(range.count);
  for (std::uint64_t i = 0; i < range.count; ++i) {
    values[i] = static_cast<float>(value_at(c, rank, range.begin + i));
  }
  return bytes_of(c.dtype, values);
}

Bytes bytes_of_expected(const KindCase& c, std::uint32_t rank, std::uint32_t ranks) {
  const plan::Range range = output_of(c, rank);
  std::vector<float> values(range.count);
  for (std::uint64_t i = 0; i < range.count; ++i) {
    values[i] = static_cast<float>(c.kind == shm::OpKind::all_to_all
                                       ? expected_of_pairs(c, rank, i)
                                       : expected_at(c, ranks, range.begin + i));
  }
  return bytes_of(c.dtype, values);
}

// Memory of a rank that has margins.
std::uint64_t framed(Client& client, std::uint64_t bytes) {
  const std::uint64_t at = client.allocate(bytes + 2 * kMargin) + kMargin;
  std::fill_n(client.at(at - kMargin), bytes + 2 * kMargin, kUntouched);
  return at;
}

bool margins_are_untouched(Client& client, std::uint64_t at, std::uint64_t bytes) {
  const auto untouched = [&](const std::byte* begin) {
    return std::all_of(begin, begin + kMargin, [](std::byte b) { return b == kUntouched; });
  };
  return untouched(client.at(at) - kMargin) && untouched(client.at(at) + bytes);
}

struct Placed {
  std::uint64_t block = 0, block_bytes = 0;  // of the output, and the input if in place
  OpRequest request;
  std::uint64_t ticket = 0;
};

Placed place(Client& client, const KindCase& c, std::uint32_t rank) {
  const std::uint64_t element = dtype_bytes(c.dtype);
  const plan::Range in = input_of(c, rank), out = output_of(c, rank);
  Placed placed;
  placed.request = request_of(c, rank);
  const plan::Range held =
      c.in_place && in.count != 0 && (out.count == 0 || in.count >= out.count) ? in : out;
  placed.block_bytes = held.count * element;
  placed.block = framed(client, placed.block_bytes);
  placed.request.output = placed.block + (out.count != 0 ? out.begin - held.begin : 0) * element;
  placed.request.input = c.in_place && in.count != 0
                             ? placed.block + (in.begin - held.begin) * element
                             : framed(client, in.count * element);
  const Bytes values = bytes_of_values(c, rank, in);
  std::copy(values.begin(), values.end(), client.at(placed.request.input));
  return placed;
}

}  // namespace

std::uint64_t total(const std::vector<std::uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

bool reduces(shm::OpKind kind) {
  return kind == shm::OpKind::all_reduce || kind == shm::OpKind::reduce ||
         kind == shm::OpKind::reduce_scatter;
}

OpRequest request_of(const KindCase& c, std::uint32_t rank) {
  OpRequest request;
  request.kind = c.kind;
  request.dtype = c.dtype;
  request.reduction = c.reduction;
  request.root = c.root;
  request.count = total(c.counts);
  const bool shares = c.kind == shm::OpKind::reduce_scatter || c.kind == shm::OpKind::all_gather ||
                      c.kind == shm::OpKind::gather || c.kind == shm::OpKind::scatter;
  if (shares && !c.equal) request.counts = c.counts;
  if (c.kind == shm::OpKind::all_to_all) {
    const auto sent = one_way(c, rank, false), received = one_way(c, rank, true);
    request.count = c.equal ? total(sent) : 0;
    if (!c.equal) {
      request.counts = sent;
      request.counts.insert(request.counts.end(), received.begin(), received.end());
    }
  }
  return request;
}

plan::Range input_of(const KindCase& c, std::uint32_t rank) {
  switch (c.kind) {
    case shm::OpKind::all_gather:
    case shm::OpKind::gather:
      return share(c, rank);
    case shm::OpKind::all_to_all:
      return {plan::pair_inputs_begin(rank), total(one_way(c, rank, false))};
    case shm::OpKind::broadcast:
    case shm::OpKind::scatter:
      return rank == c.root ? whole(c) : plan::Range{};
    default:
      return whole(c);
  }
}

plan::Range output_of(const KindCase& c, std::uint32_t rank) {
  switch (c.kind) {
    case shm::OpKind::reduce_scatter:
    case shm::OpKind::scatter:
      return share(c, rank);
    case shm::OpKind::all_to_all:
      return {plan::pair_outputs_begin(rank), total(one_way(c, rank, true))};
    case shm::OpKind::reduce:
    case shm::OpKind::gather:
      return rank == c.root ? whole(c) : plan::Range{};
    default:
      return whole(c);
  }
}

double value_at(const KindCase& c, std::uint32_t rank, std::uint64_t element) {
  // Products stay small: most values are one.
  if (c.reduction == Reduction::product) return (element * 7 + rank) % 5 == 0 ? 2.0 : 1.0;
  // Truth is not a number: 2 and 1 are both true.
  if (c.dtype == DType::boolean) return static_cast<double>((element + rank) % 2);
  return static_cast<double>((element * 31 + rank * 17) % 13);
}

double expected_at(const KindCase& c, std::uint32_t ranks, std::uint64_t element) {
  if (!reduces(c.kind)) return value_at(c, source_of(c, element), element);
  double result = value_at(c, 0, element);
  for (std::uint32_t rank = 1; rank < ranks; ++rank) {
    const double value = value_at(c, rank, element);
    switch (c.reduction) {
      case Reduction::sum:
      case Reduction::average:
        result += value;
        break;
      case Reduction::min:
        result = std::min(result, value);
        break;
      case Reduction::max:
        result = std::max(result, value);
        break;
      case Reduction::product:
        result *= value;
        break;
      case Reduction::bit_and:
        result = static_cast<double>(static_cast<int>(result) & static_cast<int>(value));
        break;
      case Reduction::bit_or:
        result = static_cast<double>(static_cast<int>(result) | static_cast<int>(value));
        break;
      case Reduction::bit_xor:
        result = static_cast<double>(static_cast<int>(result) ^ static_cast<int>(value));
        break;
    }
  }
  return c.reduction == Reduction::average
             ? static_cast<double>(static_cast<float>(result) * (1.0f / static_cast<float>(ranks)))
             : result;
}

void expect_kind(Cluster& cluster, const KindCase& c, std::uint64_t seed,
                 const std::vector<Tensor*>& tensors) {
  std::vector<std::uint32_t> order(cluster.size());
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  std::vector<Placed> placed(cluster.size());
  for (const std::uint32_t rank : order) {
    Client& client = *cluster.ranks[rank];
    placed[rank] = place(client, c, rank);
    placed[rank].ticket =
        client.submit(placed[rank].request, tensors.empty() ? nullptr : tensors[rank]);
  }
  for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
    Client& client = *cluster.ranks[rank];
    const Placed& mine = placed[rank];
    ASSERT_TRUE(cluster.world.run_until([&] { return client.done(mine.ticket); }))
        << "rank " << rank << " waits";
    ASSERT_EQ(client.result(mine.ticket).status, Errc::ok)
        << "rank " << rank << ": " << client.result(mine.ticket).detail;
    const Bytes expected = bytes_of_expected(c, rank, cluster.size());
    const std::byte* const got = client.at(mine.request.output);
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), got)) << "rank " << rank;
    ASSERT_TRUE(margins_are_untouched(client, mine.block, mine.block_bytes)) << "rank " << rank;
    if (c.in_place) continue;
    const Bytes input = bytes_of_values(c, rank, input_of(c, rank));
    ASSERT_TRUE(std::equal(input.begin(), input.end(), client.at(mine.request.input)))
        << "rank " << rank << " has another input than before";
  }
  cluster.forget_arenas();
}

}  // namespace tern::sim
