#include "tuner/cost_model.h"

#include <algorithm>

namespace tern::tuner {
namespace {

constexpr double kHop = 0.5;  // round trips

// What one node's lanes have to do, all of them together.
struct NodeWork {
  double codec_ns = 0.0;
  double bytes = 0.0;  // sent and received
  double blocks = 0.0;

  double ns(const LaneCost& lane) const noexcept {
    return codec_ns + bytes * lane.byte_ns + blocks * lane.chunk_ns;
  }
};

// Bytes of the tensor that pass a node on one leg: those that it owns, to or from all others, and
// those that others own.
struct Passing {
  double owned = 0.0;
  double of_others = 0.0;
  double each = 0.0;   // owned, to one other node
  double chunk = 1.0;  // of a chunk
};

// Contributions: encoded for other owners, and added where they end.
void add_reduce_leg(NodeWork& work, const Passing& node, const CodecCost& cost) noexcept {
  work.codec_ns += node.of_others * cost.encode_ns + node.owned * cost.decode_ns;
  work.bytes += (node.of_others + node.owned) * cost.wire;
  work.blocks += (node.of_others + node.owned) / node.chunk;
}

// Results: encoded once for all, and decoded by all, who has encoded them too.
void add_broadcast_leg(NodeWork& work, const Passing& node, const CodecCost& cost) noexcept {
  work.codec_ns += node.each * cost.encode_ns + (node.each + node.of_others) * cost.decode_ns;
  work.bytes += (node.of_others + node.owned) * cost.wire;
  work.blocks += (node.of_others + node.owned) / node.chunk;
}

double work_of(const OpLegs& legs, const Passing& node, const PairCost& codecs,
               const LaneCost& lane) noexcept {
  NodeWork work;
  if (legs.reduce) add_reduce_leg(work, node, codecs.reduce);
  if (legs.broadcast) add_broadcast_leg(work, node, codecs.broadcast);
  return work.ns(lane);
}

}  // namespace

OpParts parts_of(const OpShape& shape, const PairCost& codecs, const LaneCost& lane,
                 double round_trip_ns) noexcept {
  const OpLegs& legs = shape.legs;
  const double others = shape.nodes - 1.0;
  const double bytes = static_cast<double>(shape.bytes);
  const double share = legs.one_owner ? bytes : bytes / shape.nodes;  // of one owner
  const double chunk = std::min(bytes, static_cast<double>(shape.chunk_bytes));
  OpParts parts;
  if (legs.one_owner) {
    // All wait for the busier of the owner and any other.
    parts.work_ns = std::max(work_of(legs, {bytes * others, 0.0, bytes, chunk}, codecs, lane),
                             work_of(legs, {0.0, bytes, 0.0, chunk}, codecs, lane));
  } else {
    parts.work_ns = work_of(legs, {share * others, share * others, share, chunk}, codecs, lane);
  }
  const bool at_once = shape.is_contributed_at_once();
  // Each lane announces the op to each peer: frames beside those of its blocks, or the same.
  parts.work_ns = parts.work_ns / shape.lanes + (at_once ? 0.0 : 2.0 * others * lane.chunk_ns);
  // An announcement and, before contributions, a grant; then a hop for each leg.
  double hops = 1.0;
  if (legs.reduce) {
    parts.peer_bytes += share * codecs.reduce.wire;
    parts.chunk_ns += chunk * (codecs.reduce.encode_ns + codecs.reduce.decode_ns);
    parts.chunk_bytes += chunk * codecs.reduce.wire;
    if (!at_once) hops += 2.0;
  }
  if (legs.broadcast) {
    // To each peer goes the same; all links are filled at once.
    parts.peer_bytes += share * codecs.broadcast.wire;
    parts.chunk_ns += chunk * (codecs.broadcast.encode_ns + codecs.broadcast.decode_ns);
    parts.chunk_bytes += chunk * codecs.broadcast.wire;
    hops += 1.0;
  }
  parts.fixed_ns = kHop * hops * round_trip_ns;
  return parts;
}

OpParts parts_of_eager(const OpShape& shape, const CodecCost& codec, const LaneCost& lane,
                       double round_trip_ns) noexcept {
  const OpLegs& legs = shape.legs;
  const double peers = shape.nodes - 1.0;
  const double bytes = static_cast<double>(shape.bytes);
  // Each gets what concerns it: all values, those of one share, or those for one owner.
  const bool of_a_share = legs.reduce != legs.broadcast && !legs.one_owner;
  const double each = of_a_share ? bytes / shape.nodes : bytes;
  OpParts parts;
  const double sent = each * codec.wire;
  // A node decodes what it has encoded, too.
  const double decoded = codec.encode_ns > 0.0 ? each * (peers + 1.0) : each * peers;
  parts.work_ns = each * codec.encode_ns + decoded * codec.decode_ns +
                  peers * (2.0 * sent * lane.byte_ns + 2.0 * lane.chunk_ns);
  parts.peer_bytes = sent;
  parts.fixed_ns = kHop * round_trip_ns;
  return parts;
}

Prediction predict(const OpShape& shape, const PairCost& codecs, const LaneCost& lane,
                   const LinkCost& link) noexcept {
  return parts_of(shape, codecs, lane, link.round_trip_ns).at(kNsPerSecond / link.rate);
}

}  // namespace tern::tuner
