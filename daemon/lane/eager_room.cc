#include "daemon/lane/eager_room.h"

#include <utility>

#include "collective/mailbox.h"
#include "daemon/lane/eager_inputs.h"

namespace tern::daemon {
namespace {

// This node has no more than its ops in flight. Another one may have as many as that, and as many
// that it has completed while this node still waits for a third node.
std::uint32_t announced_by(std::uint32_t node, const collective::GroupShape& shape) noexcept {
  if (shape.eager_bytes == 0) return 0;
  return node == shape.node ? shape.max_ops_in_flight : 2 * shape.max_ops_in_flight;
}

std::uint32_t offered_by(std::uint32_t node, const collective::GroupShape& shape) noexcept {
  return node == shape.node || shape.eager_bytes == 0 ? 0 : collective::Mailbox::kEagerReserve;
}

}  // namespace

std::uint64_t EagerRoom::bytes_for(const collective::GroupShape& shape) noexcept {
  std::uint64_t bytes = 0;
  for (std::uint32_t node = 0; node < shape.nodes(); ++node) {
    bytes += SlabPool::bytes_for(announced_by(node, shape), EagerInputs::most_bytes(shape)) +
             SlabPool::bytes_for(offered_by(node, shape), shape.eager_bytes);
  }
  return bytes;
}

Result<EagerRoom> EagerRoom::make(const collective::GroupShape& shape) {
  auto mapped = Mapping::make(bytes_for(shape));
  if (!mapped) {
    // As short as what a client is told.
    return fail(mapped.error().code,
                "no room for small operations: " + mapped.error().text +
                    "; leave groups, or lower max_ops_in_flight or eager_bytes");
  }
  EagerRoom room;
  room.memory_ = std::move(*mapped);
  room.announced_.reserve(shape.nodes());
  room.offered_.reserve(shape.nodes());
  for (std::uint32_t node = 0; node < shape.nodes(); ++node) {
    room.announced_.emplace_back(room.memory_, announced_by(node, shape),
                                 EagerInputs::most_bytes(shape));
    room.offered_.emplace_back(room.memory_, offered_by(node, shape), shape.eager_bytes);
  }
  return room;
}

bool EagerRoom::drop_pages(std::size_t pool) noexcept {
  std::vector<SlabPool>& pools = pool < announced_.size() ? announced_ : offered_;
  if (&pools == &offered_) pool -= announced_.size();
  if (pool >= pools.size()) return false;
  pools[pool].drop_pages();
  return true;
}

}  // namespace tern::daemon
