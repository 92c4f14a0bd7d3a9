#include "daemon/lane/frame_memory.h"

#include <algorithm>

#include "base/check.h"

namespace tern::daemon {

FrameMemory::FrameMemory(const LaneSettings& settings)
    : accumulator_stock_(settings.accumulators()),
      receive_stock_(settings.receive()),
      contribution_stock_(settings.contributions()),
      result_stock_(settings.results()),
      memory_(Mapping::at_start(mapped_bytes(settings))),
      accumulators_(memory_, accumulator_stock_.all(), settings.accumulator_bytes()),
      receive_slabs_(memory_, receive_stock_.all(), settings.block_bytes()),
      send_slabs_(memory_, contribution_stock_.all(), settings.block_bytes()),
      result_slabs_(memory_, result_stock_.all(), settings.block_bytes()) {
  const std::uint32_t tokens = contribution_stock_.all() + result_stock_.all();
  tokens_.resize(tokens);
  free_tokens_.resize(tokens);
  for (std::uint32_t i = 0; i < tokens; ++i) free_tokens_[i] = tokens - 1 - i;
}

std::uint64_t FrameMemory::mapped_bytes(const LaneSettings& settings) noexcept {
  std::uint64_t bytes =
      SlabPool::bytes_for(settings.accumulators().all(), settings.accumulator_bytes());
  for (const Stock& stock : {settings.receive(), settings.contributions(), settings.results()}) {
    bytes += SlabPool::bytes_for(stock.all(), settings.block_bytes());
  }
  return bytes;
}

collective::Room FrameMemory::room() const noexcept {
  collective::Room room;
  room.accumulators = accumulators_.free_count();
  room.receive_slabs = receive_slabs_.free_count();
  room.contributions = contribution_stock_.all() - contributions_in_flight_;
  room.results = result_stock_.all() - results_in_flight_;
  return room;
}

collective::Room FrameMemory::taken() const noexcept {
  collective::Room taken;
  taken.accumulators = accumulators_.count() - accumulators_.free_count();
  taken.receive_slabs = slabs_received();
  taken.contributions = contributions_in_flight_;
  taken.results = results_in_flight_;
  return taken;
}

collective::Room FrameMemory::room(const LaneJob& job, const LaneLoad& load, std::uint32_t nodes,
                                   std::size_t jobs) const noexcept {
  collective::Room room = this->room();
  using Held = LaneJob::Held;
  // What is held is its own.
  const auto left_alone = [](std::uint32_t& free, const Stock& stock) {
    free -= std::min(free, stock.reserve);
  };
  if (jobs <= 1) {
    left_alone(room.accumulators, accumulator_stock_);
    left_alone(room.receive_slabs, receive_stock_);
    left_alone(room.contributions, contribution_stock_);
    left_alone(room.results, result_stock_);
    return room;
  }
  const auto left = [&](std::uint32_t& free, const Stock& stock, std::uint32_t Held::*of,
                        std::uint32_t least) {
    const std::uint32_t held = job.held.*of, of_user = held + job.held_beside.*of;
    const std::uint32_t share = load.share(job, stock.shared, least, jobs);
    const std::uint32_t share_of_user = load.share_of_user(job, stock.shared, least);
    free = std::min({stock.open_to(of_user, free, least), share - std::min(held, share),
                     share_of_user - std::min(of_user, share_of_user)});
  };
  // A grant needs a slab for every other node.
  const std::uint32_t others = std::max(nodes, 2u) - 1;
  left(room.accumulators, accumulator_stock_, &Held::accumulators, 1);
  left(room.receive_slabs, receive_stock_, &Held::receive_slabs, others);
  left(room.contributions, contribution_stock_, &Held::contributions, 1);
  left(room.results, result_stock_, &Held::results, 1);
  return room;
}

Cookie FrameMemory::reserve(LaneJob& job, wire::Leg leg) noexcept {
  TERN_CHECK(!free_tokens_.empty());  // room() counts the same things
  const std::uint32_t index = free_tokens_.back();
  free_tokens_.pop_back();
  tokens_[index] = Token{leg, 0, &job, {}};
  const bool contribution = leg == wire::Leg::reduce;
  ++(contribution ? contributions_in_flight_ : results_in_flight_);
  ++(contribution ? job.held.contributions : job.held.results);
  return index + 1;
}

void FrameMemory::lend(Cookie cookie, std::uint32_t receivers,
                       const BorrowedMemory& memory) noexcept {
  Token& token = tokens_[cookie - 1];
  TERN_CHECK(receivers > 0 && token.unacked == 0);
  token.unacked = receivers;
  token.memory = memory;
}

void FrameMemory::withdraw(Cookie cookie) noexcept {
  TERN_CHECK(tokens_[cookie - 1].unacked == 0);
  free_token(cookie);
}

void FrameMemory::free_token(Cookie cookie) noexcept {
  Token& token = tokens_[cookie - 1];
  const bool contribution = token.leg == wire::Leg::reduce;
  --(contribution ? contributions_in_flight_ : results_in_flight_);
  --(contribution ? token.job->held.contributions : token.job->held.results);
  token = Token{};
  free_tokens_.push_back(static_cast<std::uint32_t>(cookie - 1));
}

bool FrameMemory::acked(Cookie cookie, BorrowedMemory& memory) noexcept {
  Token& token = tokens_[cookie - 1];
  TERN_CHECK(token.unacked > 0);
  if (--token.unacked > 0) return false;
  memory = token.memory;
  if (memory.slab != SlabPool::kNone) memory.pool->give(memory.slab);
  if (memory.pool == &accumulators_) --token.job->held.accumulators;
  free_token(cookie);
  return true;
}

void FrameMemory::tell(net::Transport& transport) const {
  for (const SlabPool* pool : {&accumulators_, &send_slabs_, &result_slabs_}) {
    // Slabs are host memory, which no transport refuses.
    TERN_CHECK(transport.remember_memory(memory_of(pool->region())).has_value());
  }
}

void FrameMemory::untell(net::Transport& transport) const {
  for (const SlabPool* pool : {&accumulators_, &send_slabs_, &result_slabs_}) {
    transport.forget_memory(memory_of(pool->region()));
  }
}

void FrameMemory::drop_pages() noexcept {
  for (SlabPool* pool : {&accumulators_, &receive_slabs_, &send_slabs_, &result_slabs_}) {
    pool->drop_pages();
  }
}

}  // namespace tern::daemon
