#include "tests/e2e/kind_stream.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tern::e2e {
namespace {

constexpr std::int64_t kHangMs = 60'000;
// Of tensors that lose values: above lossy_min_bytes, and of several chunks.
constexpr std::uint64_t kLossyCount = 150'000;

constexpr tern_op_kind kDrawnKinds[] = {TERN_OP_ALL_REDUCE,     TERN_OP_BROADCAST,  TERN_OP_REDUCE,
                                        TERN_OP_REDUCE_SCATTER, TERN_OP_ALL_GATHER, TERN_OP_GATHER,
                                        TERN_OP_SCATTER};
constexpr const char* kKindNames[] = {
    "?",      "all_reduce",     "broadcast",  "barrier", "?",
    "reduce", "reduce_scatter", "all_gather", "?",       "all_to_all",
    "?",      "gather",         "scatter",    "send",    "recv"};

bool root_has_input(tern_op_kind kind) {
  return kind == TERN_OP_BROADCAST || kind == TERN_OP_SCATTER;
}
bool root_has_output(tern_op_kind kind) { return kind == TERN_OP_REDUCE || kind == TERN_OP_GATHER; }
bool share_is_input(tern_op_kind kind) {
  return kind == TERN_OP_ALL_GATHER || kind == TERN_OP_GATHER;
}
bool share_is_output(tern_op_kind kind) {
  return kind == TERN_OP_REDUCE_SCATTER || kind == TERN_OP_SCATTER;
}

std::int32_t value_of(std::uint32_t rank, std::uint64_t element) {
  const std::uint32_t of_rank = rank * 40503u;  // which may wrap: a tag stands for a rank too
  return static_cast<std::int32_t>((element * 2654435761u + of_rank) % 1'000'000);
}
// Of what one rank has for another.
std::int32_t value_for(std::uint32_t from, std::uint32_t to, std::uint64_t element) {
  return value_of(from * 64 + to, element);
}

using Submit = tern_status (*)(tern_group*, const tern_op*, tern_ticket*);
Submit submit_of(tern_op_kind kind) {
  switch (kind) {
    case TERN_OP_ALL_REDUCE:
      return tern_all_reduce;
    case TERN_OP_BROADCAST:
      return tern_broadcast;
    case TERN_OP_REDUCE:
      return tern_reduce;
    case TERN_OP_REDUCE_SCATTER:
      return tern_reduce_scatter;
    case TERN_OP_ALL_GATHER:
      return tern_all_gather;
    case TERN_OP_ALL_TO_ALL:
      return tern_all_to_all;
    case TERN_OP_GATHER:
      return tern_gather;
    case TERN_OP_SCATTER:
      return tern_scatter;
    case TERN_OP_SEND:
      return tern_send;
    case TERN_OP_RECV:
      return tern_recv;
    case TERN_OP_BARRIER:
      break;
  }
  return nullptr;
}

}  // namespace

Numbers::Numbers(tern_client* client, std::size_t count, bool in_arena) : client_(client) {
  void* memory = nullptr;
  if (in_arena && count != 0 &&
      tern_alloc(client, count * sizeof(std::int32_t), &memory) == TERN_OK) {
    arena_ = static_cast<std::int32_t*>(memory);
  } else {
    heap_.resize(count);
  }
}
Numbers::Numbers(Numbers&& other) noexcept
    : client_(other.client_),
      arena_(std::exchange(other.arena_, nullptr)),
      heap_(std::move(other.heap_)) {}
Numbers::~Numbers() {
  if (arena_ != nullptr) tern_free(client_, arena_);
}

std::uint64_t KindStream::Drawn::begin(std::uint32_t rank) const {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::uint64_t{0});
}

void KindStream::note(const std::string& problem) {
  if (problems_.find(problem) != std::string::npos) return;
  problems_ += (problems_.empty() ? "" : " || ") + problem;
}

void KindStream::note(tern_status status, const std::string& what) {
  const std::string detail = tern_error_detail();
  note("[" + std::to_string(status) + "] " + what + ": " +
       (detail.empty() ? tern_strerror(status) : detail));
}

std::string KindStream::run(std::uint64_t rounds) {
  std::uint64_t number = 0;
  for (; (rounds == 0 || number < rounds) && problems_.empty(); ++number) round(number);
  tern_push_pull_release(std::exchange(server_, nullptr));
  for (tern_tensor** tensor : {&gathered_, &spread_}) {
    if (*tensor != nullptr) tern_tensor_release(std::exchange(*tensor, nullptr));
  }
  if (problems_.empty()) return "ok rounds=" + std::to_string(number);
  // "[8] text" begins an answer as "error 8 text".
  std::string answer = std::exchange(problems_, "");
  answer.erase(answer.find(']'), 1);
  return "error " + answer.substr(1);
}

void KindStream::round(std::uint64_t number) {
  random_.seed(number);
  own_random_.seed(number * 64 + at_.rank);
  next_tag_ = static_cast<std::uint32_t>(number * 64);
  switch (number % 8) {
    case 3:
      return split();
    case 5:
      return push_and_pull();
    case 6:
      return lossy_moves();
    default:
      return several(number % 2 == 0);
  }
}

void KindStream::several(bool as_batch) {
  for (std::uint64_t left = 2 + below(6); left > 0; --left) {
    switch (below(5)) {
      case 0:
        prepare_exchange();
        break;
      case 1:
        prepare_pass();
        break;
      case 2:
        prepare_from_any(static_cast<std::int32_t>(below(at_.size)));
        break;
      default: {
        Drawn drawn{kDrawnKinds[below(std::size(kDrawnKinds))],
                    static_cast<std::int32_t>(below(at_.size)),
                    {}};
        const std::uint64_t most = below(3) == 0 ? 50'000 : 500;
        for (std::uint32_t rank = 0; rank < at_.size; ++rank) {
          drawn.counts.push_back(below(5) == 0 ? 0 : below(most));
        }
        prepare_drawn(drawn);
      }
    }
  }
  if (below(3) == 0) prepare(TERN_OP_BARRIER, 0, 0);
  submit_all(as_batch);
  finish_all();
}

KindStream::Flying& KindStream::prepare(tern_op_kind kind, std::size_t input, std::size_t output) {
  const bool in_arena = own_random_() % 2 == 0;
  flying_.push_back({kKindNames[kind],
                     0,
                     Numbers(at_.client, input, in_arena),
                     Numbers(at_.client, output, in_arena),
                     {},
                     {},
                     {},
                     TERN_OP_INIT,
                     kind});
  Flying& flying = flying_.back();
  flying.op.dtype = TERN_I32;
  flying.op.input = input != 0 ? flying.input.data() : nullptr;
  flying.op.output = output != 0 ? flying.output.data() : nullptr;
  return flying;
}

void KindStream::prepare_drawn(const Drawn& drawn) {
  const std::uint64_t all = drawn.begin(at_.size);
  const auto part = [&](bool of_root, bool share) -> std::pair<std::uint64_t, std::uint64_t> {
    if (of_root && static_cast<std::int32_t>(at_.rank) != drawn.root) return {0, 0};
    return share ? std::pair(drawn.begin(at_.rank), drawn.counts[at_.rank])
                 : std::pair(std::uint64_t{0}, all);
  };
  const auto in = part(root_has_input(drawn.kind), share_is_input(drawn.kind));
  const auto out = part(root_has_output(drawn.kind), share_is_output(drawn.kind));
  Flying& flying = prepare(drawn.kind, in.second, out.second);
  for (std::uint64_t i = 0; i < in.second; ++i) {
    flying.input.data()[i] = value_of(at_.rank, in.first + i);
  }
  std::uint32_t source = root_has_input(drawn.kind) ? static_cast<std::uint32_t>(drawn.root) : 0;
  for (std::uint64_t element = out.first; element < out.first + out.second; ++element) {
    std::int32_t value = 0;
    if (share_is_input(drawn.kind)) {
      while (element >= drawn.begin(source + 1)) ++source;
    }
    if (share_is_input(drawn.kind) || root_has_input(drawn.kind)) {
      value = value_of(source, element);
    } else {
      for (std::uint32_t rank = 0; rank < at_.size; ++rank) value += value_of(rank, element);
    }
    flying.expected.push_back(value);
  }
  flying.op.count = all;
  flying.op.root = drawn.root;
  if (share_is_input(drawn.kind) || share_is_output(drawn.kind)) {
    flying.counts = drawn.counts;
    flying.op.counts = flying.counts.data();
  }
}

void KindStream::prepare_exchange() {
  const std::uint64_t most = below(3) == 0 ? 20'000 : 200, draw = below(1000);
  const auto pair = [&](std::uint32_t from, std::uint32_t to) {
    return (draw + std::uint64_t{7919} * from + std::uint64_t{104'729} * to) % most;
  };
  std::vector<std::uint64_t> counts, receive_counts;
  for (std::uint32_t other = 0; other < at_.size; ++other) {
    counts.push_back(pair(at_.rank, other));
    receive_counts.push_back(pair(other, at_.rank));
  }
  Flying& flying =
      prepare(TERN_OP_ALL_TO_ALL, std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}),
              std::accumulate(receive_counts.begin(), receive_counts.end(), std::uint64_t{0}));
  std::int32_t* next = flying.input.data();
  for (std::uint32_t other = 0; other < at_.size; ++other) {
    for (std::uint64_t i = 0; i < counts[other]; ++i) *next++ = value_for(at_.rank, other, i);
    for (std::uint64_t i = 0; i < receive_counts[other]; ++i) {
      flying.expected.push_back(value_for(other, at_.rank, i));
    }
  }
  flying.counts = std::move(counts);
  flying.receive_counts = std::move(receive_counts);
  flying.op.counts = flying.counts.data();
  flying.op.receive_counts = flying.receive_counts.data();
}

void KindStream::prepare_pass() {
  const std::uint64_t count = below(3) == 0 ? 100'000 : below(1000);
  const std::uint32_t tag = next_tag_++;
  const std::uint32_t next = (at_.rank + 1) % at_.size, last = (at_.rank + at_.size - 1) % at_.size;
  Flying& out = prepare(TERN_OP_SEND, count, 0);
  out.op.count = count;
  out.op.peer = static_cast<std::int32_t>(next);
  out.op.tag = tag;
  for (std::uint64_t i = 0; i < count; ++i) out.input.data()[i] = value_for(at_.rank, next, i);
  Flying& in = prepare(TERN_OP_RECV, 0, count);
  in.op.count = count;
  in.op.peer = static_cast<std::int32_t>(last);
  in.op.tag = tag;
  for (std::uint64_t i = 0; i < count; ++i) in.expected.push_back(value_for(last, at_.rank, i));
}

// Every rank sends the same, so that it does not matter whose comes first.
void KindStream::prepare_from_any(std::int32_t to) {
  const std::uint64_t count = below(3) == 0 ? 40'000 : below(1000);
  const std::uint32_t tag = next_tag_++;
  Flying& out = prepare(TERN_OP_SEND, count, 0);
  out.op.count = count;
  out.op.peer = to;
  out.op.tag = tag;
  for (std::uint64_t i = 0; i < count; ++i) out.input.data()[i] = value_of(tag, i);
  if (static_cast<std::int32_t>(at_.rank) != to) return;
  for (std::uint32_t rank = 0; rank < at_.size; ++rank) {
    Flying& in = prepare(TERN_OP_RECV, 0, count);
    in.what = "recv from any";
    in.op.count = count;
    in.op.peer = TERN_ANY_SOURCE;
    in.op.tag = tag;
    for (std::uint64_t i = 0; i < count; ++i) in.expected.push_back(value_of(tag, i));
  }
}

tern_status KindStream::submit(Flying& flying) {
  if (flying.kind == TERN_OP_BARRIER) return tern_barrier(at_.group, &flying.ticket);
  return submit_of(flying.kind)(at_.group, &flying.op, &flying.ticket);
}

void KindStream::submit_all(bool as_batch) {
  if (!as_batch) {
    for (Flying& flying : flying_) {
      if (const tern_status status = submit(flying); status != TERN_OK) note(status, flying.what);
    }
    return;
  }
  std::vector<tern_batch_op> ops;
  for (Flying& flying : flying_) {
    ops.push_back({flying.kind, 0, flying.kind == TERN_OP_BARRIER ? nullptr : &flying.op});
  }
  std::vector<tern_ticket> tickets(ops.size());
  tern_batch batch = TERN_BATCH_INIT;
  batch.ops = ops.data();
  batch.count = ops.size();
  batch.tickets = own_random_() % 2 == 0 ? tickets.data() : nullptr;
  tern_ticket all = 0;
  if (const tern_status status = tern_submit_batch(at_.group, &batch, &all); status != TERN_OK) {
    note(status, "batch");
  } else if (batch.tickets == nullptr) {
    wait(all, "batch");
  }
  for (std::size_t i = 0; i < tickets.size(); ++i) flying_[i].ticket = tickets[i];
}

void KindStream::wait(tern_ticket ticket, const std::string& what) {
  const tern_status status = tern_wait(at_.client, ticket, kHangMs);
  if (status == TERN_ERR_TIMEOUT) return note("[34] " + what + ": hang: it has not ended");
  if (status != TERN_OK) note(status, what);
}

void KindStream::finish_all() {
  for (Flying& flying : flying_) {
    if (flying.ticket != 0) wait(flying.ticket, flying.what);
  }
  for (Flying& flying : flying_) {
    if (!problems_.empty()) break;
    if (!std::equal(flying.expected.begin(), flying.expected.end(), flying.output.data())) {
      note("[34] " + flying.what + ": wrong result");
    }
  }
  flying_.clear();
}

// A child of the first ranks, or of all of them: they have their parent's numbers.
void KindStream::split() {
  const auto members = static_cast<std::uint32_t>(below(2) == 0 ? at_.size : below(at_.size) + 1);
  tern_split_options options = TERN_SPLIT_OPTIONS_INIT;
  options.timeout_ms = 20'000;
  tern_group* child = nullptr;
  const tern_status status =
      tern_group_split(at_.group, at_.rank < members ? 7 : -1, 0, &options, &child);
  if (status != TERN_OK) return note(status, "split");
  if (child != nullptr) {
    const GroupRank parent = std::exchange(at_, {at_.client, child, at_.rank, members});
    prepare_exchange();
    prepare_drawn({TERN_OP_ALL_REDUCE, 0, std::vector<std::uint64_t>(members, 1000)});
    prepare_pass();
    submit_all(false);
    finish_all();
    at_ = parent;
  }
  // A rank that leaves ends what others still have in flight in the child.
  prepare(TERN_OP_BARRIER, 0, 0);
  submit_all(false);
  finish_all();
  if (child == nullptr) return;
  if (const tern_status left = tern_group_leave(child); left != TERN_OK) note(left, "leave");
}

void KindStream::push_and_pull() {
  if (server_ == nullptr) {
    tern_push_pull_options options = TERN_PUSH_PULL_OPTIONS_INIT;
    options.name = "server";
    options.count = kLossyCount;
    options.push_recipe = "3lc:s=1";
    options.pull_recipe = "3lc:s=1";
    const tern_status status = tern_push_pull_declare(at_.group, &options, &server_);
    if (status != TERN_OK) return note(status, "push_pull");
  }
  std::uint64_t begin = 0, count = 0;
  tern_push_pull_get_shard(server_, static_cast<std::int32_t>(at_.rank), &begin, &count);
  std::vector<float> gradient(kLossyCount, 0.5f), shard(count), all(kLossyCount);
  tern_ticket ticket = 0;
  tern_status status = tern_push(server_, gradient.data(), shard.data(), &ticket);
  if (status != TERN_OK) return note(status, "push");
  wait(ticket, "push");
  if (!problems_.empty()) return;
  status = tern_pull(server_, shard.data(), all.data(), &ticket);
  if (status != TERN_OK) return note(status, "pull");
  wait(ticket, "pull");
}

// To the next rank, of values that the recipe keeps.
void KindStream::lossy_pass() {
  std::vector<float> out(kLossyCount), in(kLossyCount);
  for (std::uint64_t i = 0; i < kLossyCount; ++i) out[i] = static_cast<float>(i % 256);
  tern_op op = TERN_OP_INIT;
  op.dtype = TERN_F32;
  op.count = kLossyCount;
  op.recipe = "bf16";
  op.tag = next_tag_++;
  op.input = out.data();
  op.peer = static_cast<std::int32_t>((at_.rank + 1) % at_.size);
  tern_ticket send = 0, recv = 0;
  const tern_status sending = tern_send(at_.group, &op, &send);
  if (sending != TERN_OK) note(sending, "lossy send");
  op.input = nullptr;
  op.output = in.data();
  op.peer = static_cast<std::int32_t>((at_.rank + at_.size - 1) % at_.size);
  const tern_status receiving = tern_recv(at_.group, &op, &recv);
  if (receiving != TERN_OK) note(receiving, "lossy recv");
  if (sending == TERN_OK) wait(send, "lossy send");
  if (receiving == TERN_OK) wait(recv, "lossy recv");
  if (problems_.empty() && in != out) note("[34] lossy recv: wrong result");
}

void KindStream::lossy_moves() {
  tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
  options.count = kLossyCount;
  options.dtype = TERN_F32;
  options.role = TERN_DELTA;
  options.recipe = "3lc:s=1";
  for (const auto& [name, tensor] :
       {std::pair("gathered", &gathered_), std::pair("spread", &spread_)}) {
    options.name = name;
    if (*tensor != nullptr) continue;
    const tern_status status = tern_tensor_declare(at_.group, &options, tensor);
    if (status != TERN_OK) return note(status, "declare");
  }
  const bool whole = kLossyCount % at_.size == 0;
  const std::uint64_t share = kLossyCount / at_.size;
  std::vector<std::uint64_t> counts(at_.size, share);
  counts.back() += kLossyCount - share * at_.size;
  std::vector<float> mine(counts[at_.rank], 0.25f), all(kLossyCount), spread(kLossyCount, 0.5f);
  tern_op op = TERN_OP_INIT;
  op.tensor = gathered_;
  op.input = mine.data();
  op.output = all.data();
  op.counts = whole ? nullptr : counts.data();
  tern_ticket gather = 0, broadcast = 0;
  const tern_status gathering = tern_all_gather(at_.group, &op, &gather);
  if (gathering != TERN_OK) note(gathering, "lossy all_gather");
  op.tensor = spread_;
  op.input = op.output = spread.data();
  op.counts = nullptr;
  const tern_status spreading = tern_broadcast(at_.group, &op, &broadcast);
  if (spreading != TERN_OK) note(spreading, "lossy broadcast");
  lossy_pass();
  if (gathering == TERN_OK) wait(gather, "lossy all_gather");
  if (spreading == TERN_OK) wait(broadcast, "lossy broadcast");
}

}  // namespace tern::e2e
