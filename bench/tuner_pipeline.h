#pragma once

// One all-reduce between two nodes, event by event: on each a lane, one thread that encodes, sends,
// receives and decodes, and towards the other a link with a queue. It shares no formula with the
// tuner's model: what overlaps follows from who waits for what.

#include <array>
#include <cstddef>
#include <cstdint>

namespace tern::bench {

// What a recipe costs a lane for each byte of a chunk, and what its blocks weigh.
struct StageCost {
  double encode_ns = 0.0;
  double decode_ns = 0.0;
  double wire = 1.0;
  // The encoder stops for so long at every so many blocks; 0: never.
  std::uint32_t stall_every = 0;
  double stall_ns = 0.0;
};

// How one node sends.
struct NodePlan {
  StageCost reduce;
  StageCost broadcast;
  std::uint32_t probe_chunks = 0;  // so many of the first contributions travel as `probe`
  StageCost probe;
};

struct PipelineSetting {
  double bytes = 0.0;
  double chunk_bytes = 0.0;
  double rate = 0.0;  // bytes per second, each way
  double round_trip_ns = 0.0;
  double byte_ns = 0.0;   // of a lane, for each byte sent or received
  double chunk_ns = 0.0;  // and each block
  double load = 1.0;      // a lane's work takes so many times longer
};

// What a node sees of an op.
struct NodeOutcome {
  double busy_ns = 0.0;   // of its lane
  double codec_ns = 0.0;  // of that
  double wire_bytes = 0.0;
  std::uint64_t blocks = 0;         // sent and received
  double contribution_ns = 0.0;     // spent to encode contributions, probes apart
  double contribution_bytes = 0.0;  // of elements
  // Blocks that were sent while the one before was still under way show what the link does.
  std::uint32_t longest_train = 0;
  double train_bytes = 0.0;
  // The most that a single block had delivered by the time its acknowledgement came back: what a
  // kernel reports of a sender that does not fill its link.
  double lower_bound = 0.0;  // bytes per second
};

struct PipelineOutcome {
  double ns = 0.0;
  std::array<NodeOutcome, 2> nodes;
};

PipelineOutcome run_pipeline(const PipelineSetting& setting, const std::array<NodePlan, 2>& plans);

}  // namespace tern::bench
