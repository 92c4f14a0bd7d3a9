#pragma once

// The plans that this process knows, by their numbers.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "plan/all_gather.h"
#include "plan/all_reduce.h"
#include "plan/all_to_all.h"
#include "plan/barrier.h"
#include "plan/broadcast.h"
#include "plan/gather.h"
#include "plan/recv.h"
#include "plan/reduce.h"
#include "plan/reduce_scatter.h"
#include "plan/scatter.h"
#include "plan/send.h"

namespace tern::plan {

inline constexpr std::size_t kMaxPlans = 32;

namespace table {
inline constinit std::array<const Plan*, kMaxPlans> plans{
    &kAllReduce, &kBroadcast, &kBarrier,  &kReduce, &kReduceScatter, &kAllGather,
    &kGather,    &kScatter,   &kAllToAll, &kSend,   &kRecv};
inline constinit std::size_t count = 11;
}  // namespace table

inline std::span<const Plan* const> known() noexcept {
  return std::span(table::plans).first(table::count);
}

// Null for a number that is no plan's.
inline const Plan* find(std::uint16_t number) noexcept {
  for (std::size_t i = 0; i < table::count; ++i) {
    if (table::plans[i]->number == number) return table::plans[i];
  }
  return nullptr;
}

// For people: errors, reports, traces. Of a number that is no plan's: "unknown".
inline const char* name_of(std::uint64_t number) noexcept {
  const Plan* const plan = number <= 0xffff ? find(static_cast<std::uint16_t>(number)) : nullptr;
  return plan != nullptr ? plan->name : "unknown";
}

constexpr Ownership owner_of(Ranks ranks) noexcept {
  return ranks == Ranks::root     ? Ownership::root_node
         : ranks == Ranks::sharer ? Ownership::sharer_node
                                  : Ownership::striped;
}

// Adds a plan for the rest of the process. Thread: before any other starts, as a global object.
struct Registration {
  explicit Registration(const Plan& plan) {
    TERN_CHECK(table::count < kMaxPlans && find(plan.number) == nullptr && plan.extents != nullptr);
    // A sum is made where it ends, or by all in turn; what moves is sent by whose it is.
    TERN_CHECK(plan.work == Work::none || plan.passes() ||
               plan.ownership == owner_of(plan.reduces() ? plan.receivers : plan.contributors));
    table::plans[table::count++] = &plan;
  }
};

}  // namespace tern::plan
