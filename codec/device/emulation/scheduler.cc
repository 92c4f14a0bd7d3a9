#include "codec/device/emulation/scheduler.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "base/random.h"

namespace tern::codec::device::emulation {

Scheduler::Scheduler(const Schedule& schedule, std::uint32_t warps)
    : schedule_(schedule), state_(mix64(schedule.seed + 1)), ready_(warps, 0u), order_(warps) {
  std::iota(order_.begin(), order_.end(), 0u);
  shuffle();
}

std::uint64_t Scheduler::draw() noexcept {
  state_ += 0x9e3779b97f4a7c15u;
  return mix64(state_);
}

void Scheduler::set_ready(std::uint32_t thread, bool ready) noexcept {
  const std::uint32_t bit = 1u << (thread % 32);
  std::uint32_t& mask = ready_[thread / 32];
  mask = ready ? mask | bit : mask & ~bit;
}

void Scheduler::shuffle() noexcept {
  if (schedule_.order == Schedule::Order::reversed) return;
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[draw() % i]);
  if (schedule_.order != Schedule::Order::starved_warp) return;
  // Always the same one.
  const auto starved = static_cast<std::uint32_t>(schedule_.seed % order_.size());
  for (std::uint32_t& warp : order_) {
    if (warp == starved) std::swap(warp, order_.back());
  }
}

std::uint32_t Scheduler::any_lane(std::uint32_t warp) noexcept {
  const auto shift = static_cast<int>(draw() % 32);
  const std::uint32_t turned = std::rotr(ready_[warp], shift);
  const auto first = static_cast<std::uint32_t>(std::countr_zero(turned));
  return 32 * warp + (first + static_cast<std::uint32_t>(shift)) % 32;
}

std::uint32_t Scheduler::next() noexcept {
  const auto warps = static_cast<std::uint32_t>(ready_.size());
  if (schedule_.order == Schedule::Order::uniform) {
    const auto first = static_cast<std::uint32_t>(draw() % warps);
    for (std::uint32_t i = 0; i < warps; ++i) {
      const std::uint32_t warp = (first + i) % warps;
      if (ready_[warp] != 0) return any_lane(warp);
    }
    return kNobody;
  }
  if (schedule_.order == Schedule::Order::reversed) {
    for (std::uint32_t warp = warps; warp-- > 0;) {
      if (ready_[warp] == 0) continue;
      return 32 * warp + 31 - static_cast<std::uint32_t>(std::countl_zero(ready_[warp]));
    }
    return kNobody;
  }
  for (const std::uint32_t warp : order_) {
    if (ready_[warp] != 0) return any_lane(warp);
  }
  return kNobody;
}

std::vector<std::uint32_t> Scheduler::blocks(std::uint32_t count) noexcept {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  if (schedule_.order == Schedule::Order::reversed) {
    std::reverse(order.begin(), order.end());
  } else {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw() % i]);
  }
  return order;
}

}  // namespace tern::codec::device::emulation
