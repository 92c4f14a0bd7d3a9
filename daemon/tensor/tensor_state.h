#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bump.h"
#include "base/dtype.h"
#include "codec/recipe.h"
#include "daemon/tensor/codec_state.h"
#include "daemon/tensor/memory_use.h"
#include "daemon/tensor/recipe_resolver.h"
#include "daemon/tensor/tensor_tuning.h"
#include "shm/block_slots.h"
#include "shm/layout.h"

namespace tern::daemon {

// What a lane counts of a tensor's ops, read by the conductor at any time.
struct TensorCounts {
  std::atomic<std::uint64_t> ops{0}, bytes_raw{0}, bytes_sent{0};
  std::atomic<std::uint64_t> encode_ns{0}, queue_ns{0}, wire_ns{0}, decode_ns{0}, wait_ns{0};
  std::atomic<std::uint64_t> raw_fallbacks{0}, resets{0};
  std::atomic<double> input_energy{0}, residual_energy{0};  // of the last op
  std::atomic<std::uint16_t> kind{0};                       // of the last op; 0: there was none
};

// What one lane keeps of a tensor. While the lane has ops of it, nobody else reads more than
// `counts`.
struct alignas(64) TensorLane {
  TensorCounts counts;
  std::uint64_t uses = 0;      // ops that have used the tensor, however they ended
  bool state_touched = false;  // an op, whole or failed, may have left something in the codec state
  double usual_ns = 0.0;       // what the last op took

  struct Streams {
    bool lost = false;  // blocks were lost, and nobody has been told yet
    // Whether this node has sent since the streams began anew last, and has received of others since
    // they were lost last.
    bool sent = false, received = false;
  };
  Streams streams;

  // Of the last lossy op with counts.
  struct Shares {
    std::vector<std::uint64_t> begins;  // of the ranks', and where the last one ends
    std::uint32_t counts_crc = 0;
  };
  Shares shares;

  // Of tensors whose recipe the tuner chooses.
  struct Tuned {
    // What the leading node has said of the next op, where contributions are made before an op is
    // announced; and that some node's client makes them before, so that the leading node has to say
    // it early.
    TensorTuning::Lead next_lead;
    bool encoded_early = false;
    // By which candidate this node's client was told to encode the next op, and which one it has
    // not gone by, so many times in a row.
    std::uint8_t told_client = tuner::kRaw;
    std::uint64_t client_ns = 0;  // how long it has encoded the newest op
    std::uint8_t unheeded = tuner::kRaw;
    std::uint8_t times_unheeded = 0;
    // For the log of choices: the last op that was settled, and how it was sent.
    std::uint64_t settled_use = ~std::uint64_t{0};
    std::uint64_t settled_choice = ~std::uint64_t{0};  // ChoiceUsed
  };
  Tuned tuned;
};

// A declared tensor and its codec state. Made and freed by the conductor.
struct TensorState {
  // `lane_count`: of its group.
  explicit TensorState(std::uint32_t lane_count = shm::kMaxLanes) : lanes(lane_count) {}

  std::uint64_t id = 0;
  std::string name;
  DType dtype = DType::f32;
  Role role = Role::exact;
  std::uint64_t count = 0;
  ResolvedRecipe declared;
  bool exempt = false;
  std::int32_t priority = 0;
  std::uint64_t generation = 0;
  // Its client hands over and takes blocks, and keeps what contributions leave out. Without a value
  // it has elements.
  std::optional<shm::BlockSlots> slots;
  CodecState codec;
  MemoryUse memory_use;
  std::unique_ptr<TensorTuning> tuning;  // null: the recipe is what was declared
  // An op was under way when its epoch ended or a rank left: what the residual holds may have been
  // sent or not.
  std::atomic<bool> doubtful{false};
  // What contributions have left out its client has, and has not handed over since (client_blocks).
  std::atomic<bool> residual_with_client{false};
  // What results have left out is of averages, and not of sums.
  std::atomic<bool> averages{false};
  // The last import failed, perhaps after some chunks: neither what was nor what was given. The
  // conductor's.
  bool half_imported = false;
  bool imported = false;  // something, once; the conductor's
  // Resets that came with the declaration, beside those of the lanes. The conductor's.
  std::atomic<std::uint64_t> resets{0};
  std::vector<TensorLane> lanes;

  // To free so much is for the disposal. What is less is freed where it is: very many things that
  // wait would count as a user who is stuck.
  static constexpr std::uint64_t kMuchState = 16 << 20;
  // Of memory that is kept for the tensor beside itself; the same from its declaration on.
  std::uint64_t state_bytes() const noexcept {
    return codec.bytes() + (tuning ? tuning->replay_bytes : 0);
  }
  // What the codec state holds is not what is owed.
  bool is_incomplete() const noexcept {
    return doubtful.load(std::memory_order_relaxed) ||
           residual_with_client.load(std::memory_order_relaxed);
  }
  // Whether the codec state may hold something that a reset would lose. REQUIRES: no lane uses it.
  bool has_history() const noexcept {
    if (codec.empty()) return false;
    if (imported || is_incomplete()) return true;
    if (tuning) return tuning->any_residual_pending();
    return std::any_of(lanes.begin(), lanes.end(),
                       [](const TensorLane& lane) { return lane.state_touched; });
  }
};

// The sums over all lanes.
struct TensorTotals {
  std::uint64_t ops = 0, bytes_raw = 0, bytes_sent = 0;
  std::uint64_t encode_ns = 0, queue_ns = 0, wire_ns = 0, decode_ns = 0, wait_ns = 0;
  std::uint64_t raw_fallbacks = 0, resets = 0;
  std::uint16_t kind = 0;  // of the last op; 0: there was none
  double input_energy = 0, residual_energy = 0;

  double ratio() const noexcept {
    return bytes_sent == 0 ? 1.0 : static_cast<double>(bytes_raw) / static_cast<double>(bytes_sent);
  }
  double residual_ratio() const noexcept {
    return input_energy == 0 ? 0.0 : std::sqrt(residual_energy / input_energy);
  }
};
TensorTotals total(const TensorState& state) noexcept;

}  // namespace tern::daemon
