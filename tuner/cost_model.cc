#include "tuner/cost_model.h"

#include <algorithm>

namespace tern::tuner {
namespace {

constexpr double kNsPerSecond = 1e9;

}  // namespace

Prediction predict(const OpShape& shape, const CodecCost& reduce, const CodecCost& broadcast,
                   const LaneCost& lane, double rate, double round_trip_ns) noexcept {
  const double nodes = shape.nodes;
  const double bytes = static_cast<double>(shape.bytes);
  const double share = bytes / nodes;            // of one owner
  const double foreign = share * (nodes - 1.0);  // of all others
  const double chunk = std::min(bytes, static_cast<double>(shape.chunk_bytes));
  const double blocks = 4.0 * foreign / chunk;  // sent and received, on both legs
  const double leg_bytes = foreign * (reduce.wire + broadcast.wire);  // sent; as many come
  Prediction result;
  result.work_ns =
      (foreign * (reduce.encode_ns + reduce.decode_ns) + share * broadcast.encode_ns +
       bytes * broadcast.decode_ns + 2.0 * leg_bytes * lane.byte_ns + blocks * lane.chunk_ns) /
      shape.lanes;
  // To each peer goes the same; all links are filled at once.
  const double peer_bytes = share * (reduce.wire + broadcast.wire);
  result.wire_ns = peer_bytes / rate * kNsPerSecond;
  const double through =
      chunk * (reduce.encode_ns + reduce.decode_ns + broadcast.encode_ns + broadcast.decode_ns) +
      chunk * (reduce.wire + broadcast.wire) / rate * kNsPerSecond;
  // Announce and grant, then a leg each way.
  result.fixed_ns =
      2.0 * round_trip_ns + std::min(through, 0.5 * (result.work_ns + result.wire_ns));
  result.total_ns = std::max(result.work_ns, result.wire_ns) + result.fixed_ns;
  return result;
}

Prediction predict_eager(const OpShape& shape, const CodecCost& raw, const LaneCost& lane,
                         double rate, double round_trip_ns) noexcept {
  const double peers = shape.nodes - 1.0;
  const double bytes = static_cast<double>(shape.bytes);
  Prediction result;
  result.work_ns = (peers * bytes * raw.decode_ns + 2.0 * peers * bytes * lane.byte_ns +
                    2.0 * peers * lane.chunk_ns);
  result.wire_ns = bytes / rate * kNsPerSecond;
  result.fixed_ns = 0.5 * round_trip_ns;
  result.total_ns = std::max(result.work_ns, result.wire_ns) + result.fixed_ns;
  return result;
}

}  // namespace tern::tuner
