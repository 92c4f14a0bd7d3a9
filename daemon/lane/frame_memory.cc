#include "daemon/lane/frame_memory.h"

#include <algorithm>

#include "base/check.h"

namespace tern::daemon {

FrameMemory::FrameMemory(const LaneSettings& settings)
    : send_count_(settings.send_slabs),
      result_count_(settings.result_slabs),
      // A chunk of f16 has an f32 accumulator of twice its size.
      accumulators_(2 * settings.result_slabs, 2 * settings.chunk_bytes),
      receive_slabs_(settings.receive_slabs, settings.block_bytes()),
      send_slabs_(settings.send_slabs, settings.block_bytes()),
      result_slabs_(settings.result_slabs, settings.block_bytes()) {
  const std::uint32_t tokens = send_count_ + result_count_;
  tokens_.resize(tokens);
  free_tokens_.resize(tokens);
  for (std::uint32_t i = 0; i < tokens; ++i) free_tokens_[i] = tokens - 1 - i;
}

collective::Room FrameMemory::room() const noexcept {
  collective::Room room;
  room.accumulators = accumulators_.free_count();
  room.receive_slabs = receive_slabs_.free_count();
  room.contributions = send_count_ - contributions_in_flight_;
  room.results = result_count_ - results_in_flight_;
  return room;
}

collective::Room FrameMemory::room(const LaneJob& job, const LaneLoad& load, std::uint32_t nodes,
                                   std::size_t jobs) const noexcept {
  if (jobs <= 1) return room();  // what is held is its own
  // A grant needs a slab for every other node.
  const std::uint32_t others = std::max(nodes, 2u) - 1;
  using Held = LaneJob::Held;
  const auto left = [&](std::uint32_t count, std::uint32_t Held::*of, std::uint32_t least) {
    const std::uint32_t held = job.held.*of, of_user = held + job.held_beside.*of;
    const std::uint32_t share = load.share(job, count, least, jobs);
    const std::uint32_t share_of_user = load.share_of_user(job, count, least);
    return std::min(share - std::min(held, share),
                    share_of_user - std::min(of_user, share_of_user));
  };
  collective::Room room = this->room();
  room.accumulators =
      std::min(room.accumulators, left(accumulators_.count(), &Held::accumulators, 1));
  room.receive_slabs =
      std::min(room.receive_slabs, left(receive_slabs_.count(), &Held::receive_slabs, others));
  room.contributions = std::min(room.contributions, left(send_count_, &Held::contributions, 1));
  room.results = std::min(room.results, left(result_count_, &Held::results, 1));
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
    TERN_CHECK(transport.remember_memory({pool->memory(), kind_of(Space::host)}).has_value());
  }
}

void FrameMemory::untell(net::Transport& transport) const {
  for (const SlabPool* pool : {&accumulators_, &send_slabs_, &result_slabs_}) {
    transport.forget_memory({pool->memory(), kind_of(Space::host)});
  }
}

void FrameMemory::drop_pages() noexcept {
  for (SlabPool* pool : {&accumulators_, &receive_slabs_, &send_slabs_, &result_slabs_}) {
    pool->drop_pages();
  }
}

}  // namespace tern::daemon
