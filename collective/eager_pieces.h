#pragma once

#include <cstdint>

#include "collective/group_shape.h"
#include "collective/op.h"
#include "plan/pairs.h"

namespace tern::collective {

// A run of elements that a node sends to another, or keeps for itself, with its announcement.
struct EagerPiece {
  plan::Range sent;                // in the op, or in the sending rank's input
  std::uint64_t result_begin = 0;  // where they begin in the outputs of the ranks that get them
};

// A node that sends, and one that receives.
struct Way {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
};

// Calls use(piece) for what one node has for the other, in the order in which it is sent. REQUIRES:
// the op is eager and has no counts.
template <typename Use>
void for_each_eager_piece(const Op& op, const Way& way, const GroupShape& shape, Use use) {
  const auto [from, to] = way;
  const plan::Plan& plan = *op.plan;
  const std::uint64_t count = op.announced_first.count;
  const auto piece = [&](std::uint64_t begin, std::uint64_t elements) {
    if (elements != 0) use(EagerPiece{{begin, elements}, begin});
  };
  if (plan.contributors == plan::Ranks::root && from != op.root_node) return;
  if (plan.receivers == plan::Ranks::root && to != op.root_node) return;
  if (plan.parts == plan::Parts::whole) return piece(0, count);
  const std::uint64_t share = count / shape.group_size();
  if (plan.parts == plan::Parts::shares) {
    const bool of_sender = plan.contributors == plan::Ranks::sharer;
    for (const std::uint32_t rank : shape.ranks[of_sender ? from : to]) piece(rank * share, share);
    return;
  }
  if (share == 0) return;
  for (const std::uint32_t sender : shape.ranks[from]) {
    for (const std::uint32_t receiver : shape.ranks[to]) {
      use(EagerPiece{{plan::pair_inputs_begin(sender) + receiver * share, share},
                     plan::pair_outputs_begin(receiver) + sender * share});
    }
  }
}

}  // namespace tern::collective
