#include "every_kind.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "plan/plans.h"

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

SubmittedKind place(Client& client, const KindCase& c, std::uint32_t rank) {
  const std::uint64_t element = dtype_bytes(c.dtype);
  const plan::Range in = input_of(c, rank), out = output_of(c, rank);
  SubmittedKind placed;
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

constexpr shm::OpKind kKinds[] = {shm::OpKind::all_reduce, shm::OpKind::broadcast,
                                  shm::OpKind::reduce,     shm::OpKind::reduce_scatter,
                                  shm::OpKind::all_gather, shm::OpKind::gather,
                                  shm::OpKind::scatter,    shm::OpKind::all_to_all};

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
  return static_cast<double>((element * 31 + std::uint64_t{17} * rank) % 13);
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

SubmittedKind submit_on(Client& client, const KindCase& c, std::uint32_t rank, Tensor* tensor) {
  SubmittedKind placed = place(client, c, rank);
  placed.ticket = client.submit(placed.request, tensor);
  return placed;
}

std::vector<SubmittedKind> submit_kind(Cluster& cluster, const KindCase& c, std::uint64_t seed,
                                       const std::vector<Tensor*>& tensors) {
  std::vector<std::uint32_t> order(cluster.size());
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  std::vector<SubmittedKind> submitted(cluster.size());
  for (const std::uint32_t rank : order) {
    submitted[rank] =
        submit_on(*cluster.ranks[rank], c, rank, tensors.empty() ? nullptr : tensors[rank]);
  }
  return submitted;
}

std::string wrong_in(Cluster& cluster, const KindCase& c, std::uint32_t rank,
                     const SubmittedKind& mine) {
  Client& client = *cluster.ranks[rank];
  const std::string who = "rank " + std::to_string(rank);
  const Bytes expected = bytes_of_expected(c, rank, cluster.size());
  if (!std::equal(expected.begin(), expected.end(), client.at(mine.request.output))) {
    return who + " has another result";
  }
  if (!margins_are_untouched(client, mine.block, mine.block_bytes)) {
    return who + " has other bytes around its memory";
  }
  if (c.in_place) return "";
  const Bytes input = bytes_of_values(c, rank, input_of(c, rank));
  const bool same = std::equal(input.begin(), input.end(), client.at(mine.request.input));
  return same ? "" : who + " has another input than before";
}

void expect_kind(Cluster& cluster, const KindCase& c, std::uint64_t seed) {
  const std::vector<SubmittedKind> submitted = submit_kind(cluster, c, seed);
  for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
    Client& client = *cluster.ranks[rank];
    const std::uint64_t ticket = submitted[rank].ticket;
    ASSERT_TRUE(cluster.world.run_until([&] { return client.done(ticket); }))
        << "rank " << rank << " waits";
    ASSERT_EQ(client.result(ticket).status, Errc::ok)
        << "rank " << rank << ": " << client.result(ticket).detail;
    ASSERT_EQ(wrong_in(cluster, c, rank, submitted[rank]), "");
  }
  cluster.forget_arenas();
}

KindCase draw_kind(std::mt19937_64& random, std::uint32_t ranks) {
  const auto below = [&](std::uint64_t end) { return random() % end; };
  const auto one_in = [&](std::uint64_t times) { return random() % times == 0; };
  KindCase c;
  c.kind = kKinds[below(std::size(kKinds))];
  c.dtype = static_cast<DType>(below(static_cast<std::uint64_t>(kLastDType) + 1));
  c.reduction = static_cast<Reduction>(below(static_cast<std::uint64_t>(kLastReduction) + 1));
  // A product of complex numbers is not what it is of their real parts; a third of a whole number
  // is not exact, and only in f32 what expected_at() says; of what is narrow, products of all ranks
  // are not exact, nor sums of bytes with a sign.
  const bool narrow = dtype_bytes(c.dtype) <= 2;
  const bool in_f32 = c.dtype == DType::f32 || c.dtype == DType::c64;
  const bool inexact =
      (c.reduction == Reduction::product && (narrow || dtype_is_complex(c.dtype))) ||
      (c.reduction == Reduction::average && (narrow || (!in_f32 && (ranks & (ranks - 1)) != 0)));
  if (inexact) c.reduction = Reduction::sum;
  if (c.dtype == DType::i8 && c.reduction == Reduction::sum) c.reduction = Reduction::max;
  if (reduces(c.kind) && dtype_is_fp8(c.dtype)) c.dtype = DType::u16;
  if (reduces(c.kind) && objection(c.reduction, c.dtype) != nullptr) {
    c.reduction = c.dtype == DType::boolean ? Reduction::bit_xor : Reduction::sum;
  }
  c.root = static_cast<std::uint32_t>(below(ranks));
  const std::uint64_t most = one_in(3) ? 30'000 : 300;
  c.equal = one_in(3);
  if (c.equal) {
    c.counts.assign(ranks, below(most));
  } else {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      c.counts.push_back(one_in(4) ? 0 : below(most));
    }
  }
  c.in_place = one_in(3);
  if (c.kind == shm::OpKind::all_to_all) {
    c.in_place = false;
    c.counts.assign(std::size_t{ranks} * ranks, below(most / 4 + 1));
    for (std::uint64_t& count : c.counts) {
      if (!c.equal) count = one_in(4) ? 0 : below(most / 4 + 1);
    }
  }
  return c;
}

std::vector<std::uint32_t> draw_nodes(std::mt19937_64& random) {
  std::vector<std::uint32_t> ranks_of_node(random() % 4 + 1);
  for (auto& ranks : ranks_of_node) ranks = static_cast<std::uint32_t>(random() % 3 + 1);
  return ranks_of_node;
}

std::string words_of(const KindCase& c) {
  std::string text = std::string(plan::name_of(static_cast<std::uint64_t>(c.kind))) + " of " +
                     std::string(dtype_name(c.dtype)) + " " +
                     std::string(reduction_name(c.reduction)) + ", root " + std::to_string(c.root) +
                     (c.in_place ? ", in place, " : ", ") + (c.equal ? "equal shares" : "counts");
  for (const std::uint64_t count : c.counts) text += " " + std::to_string(count);
  return text;
}

}  // namespace tern::sim
