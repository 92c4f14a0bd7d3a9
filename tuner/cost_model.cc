#include "tuner/cost_model.h"

#include <algorithm>

namespace tern::tuner {

OpParts parts_of(const OpShape& shape, const PairCost& codecs, const LaneCost& lane,
                 double round_trip_ns) noexcept {
  const auto& [reduce, broadcast] = codecs;
  const double nodes = shape.nodes;
  const double bytes = static_cast<double>(shape.bytes);
  const double share = bytes / nodes;            // of one owner
  const double foreign = share * (nodes - 1.0);  // of all others
  const double chunk = std::min(bytes, static_cast<double>(shape.chunk_bytes));
  const double blocks = 4.0 * foreign / chunk;  // sent and received, on both legs
  const double leg_bytes = foreign * (reduce.wire + broadcast.wire);  // sent; as many come
  OpParts parts;
  parts.work_ns =
      (foreign * (reduce.encode_ns + reduce.decode_ns) + share * broadcast.encode_ns +
       bytes * broadcast.decode_ns + 2.0 * leg_bytes * lane.byte_ns + blocks * lane.chunk_ns) /
      shape.lanes;
  // Each lane announces the op to each peer.
  parts.work_ns += 2.0 * (nodes - 1.0) * lane.chunk_ns;
  // To each peer goes the same; all links are filled at once.
  parts.peer_bytes = share * (reduce.wire + broadcast.wire);
  parts.chunk_ns =
      chunk * (reduce.encode_ns + reduce.decode_ns + broadcast.encode_ns + broadcast.decode_ns);
  parts.chunk_bytes = chunk * (reduce.wire + broadcast.wire);
  // Announce and grant, then a leg each way.
  parts.fixed_ns = 2.0 * round_trip_ns;
  return parts;
}

OpParts parts_of_eager(const OpShape& shape, const CodecCost& raw, const LaneCost& lane,
                       double round_trip_ns) noexcept {
  const double peers = shape.nodes - 1.0;
  const double bytes = static_cast<double>(shape.bytes);
  OpParts parts;
  parts.work_ns =
      peers * (bytes * raw.decode_ns + 2.0 * bytes * lane.byte_ns + 2.0 * lane.chunk_ns);
  parts.peer_bytes = bytes;
  parts.fixed_ns = 0.5 * round_trip_ns;
  return parts;
}

Prediction predict(const OpShape& shape, const PairCost& codecs, const LaneCost& lane,
                   const LinkCost& link) noexcept {
  return parts_of(shape, codecs, lane, link.round_trip_ns).at(kNsPerSecond / link.rate);
}

}  // namespace tern::tuner
