#include "seed_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "daemon/tensor/codec_state.h"
#include "wire/crc32c.h"

namespace tern::sim {
namespace {

// In flight per rank, and how far orders may differ: together no more than max_ops_in_flight.
constexpr std::size_t kWindow = 8;

bool same_value(const Bytes& a, const Bytes& b, DType dtype) {
  if (a == b) return true;
  if (a.size() != b.size() || !dtype_is_float(dtype) || dtype == DType::f64) return false;
  // Which NaN comes out of a sum of two is the processor's choice.
  const auto x = floats_of(dtype, a);
  const auto y = floats_of(dtype, b);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool same = std::bit_cast<std::uint32_t>(x[i]) == std::bit_cast<std::uint32_t>(y[i]);
    if (!same && !(std::isnan(x[i]) && std::isnan(y[i]))) return false;
  }
  return true;
}

template <typename Word>
void replace_nans(Bytes& bytes, Word exponent, Word fraction) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, &bytes[at], sizeof(word));
    if ((word & exponent) != exponent || (word & fraction) == 0) continue;
    word = static_cast<Word>(exponent | fraction);
    std::memcpy(&bytes[at], &word, sizeof(word));
  }
}

// Which NaN comes out of a sum of two is the processor's choice.
Bytes with_one_nan(Bytes bytes, DType dtype) {
  if (dtype == DType::f64) {
    replace_nans<std::uint64_t>(bytes, 0x7ff0'0000'0000'0000, 0x000f'ffff'ffff'ffff);
  } else if (dtype == DType::f32) {
    replace_nans<std::uint32_t>(bytes, 0x7f80'0000, 0x007f'ffff);
  } else if (dtype == DType::f16) {
    replace_nans<std::uint16_t>(bytes, 0x7c00, 0x03ff);
  } else if (dtype == DType::bf16) {
    replace_nans<std::uint16_t>(bytes, 0x7f80, 0x007f);
  }
  return bytes;
}

}  // namespace

SeedRun::SeedRun(std::uint64_t seed)
    : seed_(seed), plan_(make_plan(seed)), world_(seed), random_(seed ^ 0x5eed), ranks_(size()) {
  world_.actors = [this] { return act(); };
}

void SeedRun::run() {
  for (const DaemonShape& shape : plan_.daemons) world_.add_daemon(shape);
  world_.trace("%zu daemons, %u ranks, %s", plan_.daemons.size(), size(),
               trouble_name(plan_.trouble));
  if (plan_.trouble == Trouble::slow)
    world_.set_faults(plan_.faults);  // the join has to bear it too
  connect_missing();
  if (testing::Test::HasFailure()) return;
  Client& minter = *ranks_[random_.below(size())].client;
  coordinator_ = minter.daemon();
  const std::uint64_t request = minter.mint();
  ASSERT_TRUE(world_.run_until([&] { return minter.answered(request); }, kSecond));
  group_id_ = minter.answer<shm::GroupMintedPacket>(request)->id;
  if (plan_.trouble >= Trouble::transient && random_.one_in(4) && !troubled_join()) return;
  if (!join_all(true)) return;
  if (!declare_all()) return;

  world_.set_faults(plan_.faults);
  troubled_ = plan_.trouble != Trouble::none && plan_.trouble != Trouble::slow;
  if (!run_ops(plan_.ops, troubled_)) return;
  heal();
  const std::uint32_t before = epoch_;
  // Also the healthy ones come back now and then.
  if (troubled_ || random_.one_in(2)) {
    for (Rank& rank : ranks_) {
      if (!rank.lost && !rank.client->lost()) rank.client->leave();
    }
    connect_missing();
    if (testing::Test::HasFailure() || !join_all(true)) return;
    // Only a coordinator that was restarted begins to count anew.
    ASSERT_TRUE(coordinator_forgot_ || epoch_ > before) << epoch_ << " after " << before;
    ++counts_.rejoins;
    if (!declare_all()) return;
    troubled_ = false;
    if (!run_ops(plan_.ops_after, false)) return;
  }
  leave_all();
  counts_.rounds = world_.rounds;
  counts_.ended_ns = world_.clock.now_ns();
}

// ---- Ops ----------------------------------------------------------------------------------------

void SeedRun::prepare(const std::vector<PlannedOp>& ops) {
  ops_ = &ops;
  for (std::uint32_t r = 0; r < size(); ++r) {
    Rank& rank = ranks_[r];
    rank.client->forget_arena();
    rank.next = 0;
    rank.tickets.assign(ops.size(), 0);
    rank.inputs.assign(ops.size(), {});
    rank.order.resize(ops.size());
    for (std::size_t i = 0; i < ops.size(); ++i) {
      rank.order[i] = i;
      rank.inputs[i] = make_input(ops[i], seed_, r, i);
    }
    // Orders differ within blocks; uses of one tensor, and anonymous ops, keep theirs.
    for (std::size_t begin = 0; begin < ops.size(); begin += kWindow) {
      const std::size_t end = std::min(begin + kWindow, ops.size());
      std::vector<std::size_t> block(rank.order.begin() + static_cast<std::ptrdiff_t>(begin),
                                     rank.order.begin() + static_cast<std::ptrdiff_t>(end));
      random_.shuffle(block);
      for (std::size_t i = 0; i < block.size(); ++i) {
        for (std::size_t j = i + 1; j < block.size(); ++j) {
          if (ops[block[i]].tensor == ops[block[j]].tensor && block[i] > block[j])
            std::swap(block[i], block[j]);
        }
      }
      std::copy(block.begin(), block.end(),
                rank.order.begin() + static_cast<std::ptrdiff_t>(begin));
    }
  }
}

void SeedRun::submit(std::uint32_t r) {
  Rank& rank = ranks_[r];
  const std::size_t index = rank.order[rank.next++];
  const PlannedOp& op = (*ops_)[index];
  OpRequest request = op.request;
  const Bytes& input = rank.inputs[index];
  request.input = rank.client->allocate(input.size() + 64);
  request.output = op.in_place ? request.input : rank.client->allocate(input.size() + 64);
  std::copy(input.begin(), input.end(), rank.client->at(request.input));
  if (!op.in_place) std::fill_n(rank.client->at(request.output), input.size(), std::byte{0xcd});
  if (op.mismatched && r == size() - 1) request.count = request.count > 1 ? request.count - 1 : 2;
  Tensor* tensor = op.tensor >= 0 ? rank.tensors[static_cast<std::size_t>(op.tensor)] : nullptr;
  rank.tickets[index] = rank.client->submit(request, tensor);
  outputs_[{r, index}] = request.output;
  world_.trace("rank %u submits op %zu (%s %llu, use %llu)", r, index,
               tensor != nullptr ? tensor->spec.name.c_str() : "anonymous",
               static_cast<unsigned long long>(request.count),
               static_cast<unsigned long long>(op.sequence));
}

int SeedRun::act() {
  int work = 0;
  for (std::uint32_t r = 0; r < size(); ++r) {
    Rank& rank = ranks_[r];
    if (rank.lost || rank.client == nullptr || !rank.client->ready()) continue;
    work += rank.client->poll();
    if (ops_ == nullptr || rank.next == rank.order.size() || rank.client->in_flight() >= kWindow)
      continue;
    if (random_.one_in(3)) {
      submit(r);
      ++work;
      const std::size_t index = random_.below(ops_->size());
      if ((*ops_)[index].cancelled && rank.tickets[index] != 0 && !rank.client->lost()) {
        rank.client->cancel(rank.tickets[index]);
      }
    }
  }
  if (ops_ != nullptr && troubled_ && !troubles_begun_ && world_.rounds >= trouble_at_)
    make_trouble();
  return work;
}

bool SeedRun::all_done() const {
  for (const Rank& rank : ranks_) {
    if (rank.lost) continue;
    if (rank.next < rank.order.size() || rank.client->in_flight() > 0) return false;
  }
  return true;
}

bool SeedRun::run_ops(const std::vector<PlannedOp>& ops, bool troubled) {
  prepare(ops);
  trouble_at_ = world_.rounds + random_.below(150);
  // No op outlives the group's op_timeout and the links' own timeouts.
  const bool ended = world_.run_until([this] { return all_done(); }, 120 * kSecond);
  ops_ = nullptr;
  if (!ended) {
    ADD_FAILURE() << "ops have not ended in time";
    return false;
  }
  ops_ = &ops;
  taint_streams();
  for (std::size_t i = 0; i < ops.size() && !testing::Test::HasFailure(); ++i)
    check_op(i, troubled);
  ops_ = nullptr;
  return !testing::Test::HasFailure();
}

void SeedRun::make_trouble() {
  troubles_begun_ = true;
  const std::size_t victim = random_.below(plan_.daemons.size());
  switch (plan_.trouble) {
    case Trouble::none:
    case Trouble::slow:
    case Trouble::corrupt:
      break;
    case Trouble::transient:
      world_.cut_all(victim);
      break;
    case Trouble::partition:
      world_.set_partitioned(victim, (victim + 1) % plan_.daemons.size(), true);
      break;
    case Trouble::daemon_death:
      world_.kill(victim);
      coordinator_forgot_ = victim == coordinator_;
      break;
    case Trouble::client_death: {
      const auto rank = static_cast<std::uint32_t>(random_.below(size()));
      ranks_[rank].lost = true;
      world_.close(*ranks_[rank].client);
      break;
    }
  }
}

void SeedRun::heal() {
  counts_.links_lost = world_.links_lost();
  world_.set_faults({});
  for (std::size_t a = 0; a < plan_.daemons.size(); ++a) {
    for (std::size_t b = a + 1; b < plan_.daemons.size(); ++b) world_.set_partitioned(a, b, false);
    if (!world_.alive(a)) world_.restart(a);
  }
}

// ---- What must hold -----------------------------------------------------------------------------

bool SeedRun::allowed(Errc code) const {
  switch (plan_.trouble) {
    case Trouble::none:
    case Trouble::slow:
      return false;
    case Trouble::corrupt:
      return code == Errc::corrupt_data || code == Errc::peer_lost || code == Errc::protocol_error;
    case Trouble::transient:
    case Trouble::partition:
      return code == Errc::peer_lost;
    case Trouble::daemon_death:
      return code == Errc::peer_lost || code == Errc::daemon_lost;
    case Trouble::client_death:
      return code == Errc::rank_lost;
  }
  return false;
}

Bytes SeedRun::output_of(std::uint32_t rank, std::size_t index) const {
  const PlannedOp& op = (*ops_)[index];
  const std::byte* at = ranks_[rank].client->at(outputs_.at({rank, index}));
  return Bytes(at, at + op.request.count * dtype_bytes(op.request.dtype));
}

void SeedRun::check_op(std::size_t index, bool troubled) {
  const PlannedOp& op = (*ops_)[index];
  SCOPED_TRACE(testing::Message()
               << "op " << index << " " << dtype_name(op.request.dtype) << " x " << op.request.count
               << " " << reduction_name(op.request.reduction) << " '"
               << (op.tensor < 0 ? "" : plan_.tensors[static_cast<std::size_t>(op.tensor)].recipe)
               << "' '" << op.request.recipe << "' scale " << op.request.state_scale);
  std::vector<std::uint32_t> succeeded;
  bool failed = false;
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (ranks_[r].lost) {
      failed = true;
      continue;
    }
    const OpResult& result = ranks_[r].client->result(ranks_[r].tickets[index]);
    note_outcome(r, index);
    if (result.status == Errc::ok) {
      succeeded.push_back(r);
      ++counts_.ops_ok;
      EXPECT_FALSE(op.mismatched) << "rank " << r;
      continue;
    }
    failed = true;
    ++counts_.ops_failed;
    EXPECT_FALSE(result.detail.empty()) << "an error without a sentence, rank " << r;
    const bool expected = (op.mismatched && result.status == Errc::mismatch) ||
                          (op.cancelled && result.status == Errc::cancelled);
    EXPECT_TRUE(expected || (troubled && allowed(result.status)))
        << "rank " << r << ": " << errc_name(result.status) << ": " << result.detail;
  }
  check_bits(index, succeeded);
  if (failed && op.tensor >= 0) tainted_[static_cast<std::size_t>(op.tensor)] = true;
}

// A use that fails begins the streams of its tensor anew, under earlier uses that are under way
// too.
void SeedRun::taint_streams() {
  for (std::size_t index = 0; index < ops_->size(); ++index) {
    const int tensor = (*ops_)[index].tensor;
    if (tensor < 0) continue;
    const auto at = static_cast<std::size_t>(tensor);
    const auto recipe = codec::parse_recipe(plan_.tensors[at].recipe);
    if (!recipe || !daemon::CodecState::has_streams(*recipe)) continue;
    for (const Rank& rank : ranks_) {
      if (rank.lost || rank.client->result(rank.tickets[index]).status != Errc::ok)
        tainted_[at] = true;
    }
  }
}

void SeedRun::note_outcome(std::uint32_t rank, std::size_t index) {
  const OpResult& result = ranks_[rank].client->result(ranks_[rank].tickets[index]);
  std::uint32_t& crc = counts_.outcomes_crc;
  std::uint32_t& results = counts_.results_crc;
  const auto code = static_cast<std::int32_t>(result.status);
  crc = wire::crc32c(std::as_bytes(std::span(&code, 1)), crc);
  crc = wire::crc32c(std::as_bytes(std::span(result.detail)), crc);
  results = wire::crc32c(std::as_bytes(std::span(&code, 1)), results);
  if (result.status != Errc::ok) return;
  const Bytes output = output_of(rank, index);
  crc = wire::crc32c(output, crc);
  results = wire::crc32c(with_one_nan(output, (*ops_)[index].request.dtype), results);
}

void SeedRun::check_bits(std::size_t index, const std::vector<std::uint32_t>& succeeded) {
  const PlannedOp& op = (*ops_)[index];
  if (op.request.kind == shm::OpKind::barrier || op.mismatched) return;
  std::vector<Bytes> inputs;
  for (const Rank& rank : ranks_) inputs.push_back(rank.inputs[index]);
  // A rank whose process is gone submitted the same as it would have.
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (inputs[r].empty()) inputs[r] = make_input(op, seed_, r, index);
  }
  const Tensor* tensor = nullptr;
  for (const Rank& rank : ranks_) {
    if (op.tensor >= 0 && !rank.lost) tensor = rank.tensors[static_cast<std::size_t>(op.tensor)];
  }
  Bytes expected;
  bool known = true;
  if (op.request.kind == shm::OpKind::broadcast) {
    expected = inputs[op.request.root];
  } else {
    expected = reference_->all_reduce(op.request, tensor, op.sequence, inputs);
    known =
        !reference_->is_lossy(op.request, tensor) || !tainted_[static_cast<std::size_t>(op.tensor)];
  }
  for (const std::uint32_t r : succeeded) {
    const Bytes output = output_of(r, index);
    EXPECT_EQ(output == output_of(succeeded.front(), index), true) << "ranks differ: " << r;
    EXPECT_TRUE(!known || same_value(output, expected, op.request.dtype))
        << "wrong result on rank " << r;
  }
}

}  // namespace tern::sim
