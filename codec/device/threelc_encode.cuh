#pragma once

#include <bit>

#include "base/half.h"
#include "codec/device/chunk_sums.h"
#include "codec/device/threelc.h"
#include "codec/device/zero_runs.h"

// 3LC with its residual, one chunk for each block of threads. On chip the sums of a chunk lie in
// shared memory, so that input and residual are read once; otherwise they are read twice. Nothing
// but the outcome is written before all sums are known to be finite.
namespace tern::codec::device {

template <bool kOnChip>
class ThreelcEncoder {
 public:
  TERN_DEVICE ThreelcEncoder(const ThreelcStage& stage, const EncodeChunk& chunk,
                             simt::Arena& arena)
      : stage_(stage),
        chunk_(chunk),
        shape_(chunk.elements, stage.scale_elements),
        sums_(chunk, arena),
        energies_(arena),
        scales_(arena.take<std::uint32_t>(shape_.scale_count + 1)),
        verdicts_(arena.take<std::uint32_t>(simt::warps())),
        totals_(arena.take<std::uint32_t>(simt::warps())),
        tile_left_(arena.take<float>(kOnChip ? 4 : kRunsPerBlock * 4 * simt::threads())),
        columns_(arena.take<std::uint8_t>(column_room())),
        coded_(arena.take<std::uint8_t>(column_room())) {}

  TERN_DEVICE void run() {
    sums_.scan();
    const std::uint32_t verdict = find_scales();
    if ((verdict & kBad) != 0) return refuse();
    const bool all_zero = (verdict & kNotZero) == 0;
    std::uint32_t bytes = 0;
    if (all_zero) {
      fold_residual();
    } else {
      quantize_blocks();
      quantize_tail();
      bytes = write_payload();
    }
    energies_.gather(sums_.energy(), left_energy_.lane());
    if (simt::thread() == 0) finish(bytes, all_zero);
  }

 private:
  static constexpr std::uint32_t kBad = 1;
  static constexpr std::uint32_t kNotZero = 2;

  TERN_DEVICE std::uint32_t column_room() const {
    return rounded_up(shape_.columns + 1, ZeroRuns::kPiece);
  }

  // What the largest magnitude of a group becomes; false if the chunk must travel raw.
  TERN_DEVICE bool scale_of(std::uint32_t largest, std::uint32_t& scale_bits) const {
    if (largest >= kInfinityBits) return false;
    if (stage_.scale_elements == 0) largest = std::bit_cast<std::uint32_t>(chunk_.fixed_scale_max);
    if (largest >= kInfinityBits) return false;
    const float scale = std::bit_cast<float>(largest) * stage_.s;
    scale_bits = std::bit_cast<std::uint32_t>(scale);
    return magnitude_of(round_to_dtype(chunk_.delivered, scale)) < kInfinityBits;
  }

  // A warp for each group. The same verdict to all threads.
  TERN_DEVICE std::uint32_t find_scales() {
    const std::uint32_t rows = sums_.row_count();
    const std::uint32_t group_rows =
        stage_.scale_elements == 0 ? rows : stage_.scale_elements / kRunElements;
    std::uint32_t verdict = 0;
    for (std::uint32_t group = simt::warp(); group < shape_.scale_count; group += simt::warps()) {
      const std::uint32_t begin = group * group_rows;
      const std::uint32_t end = rows - begin < group_rows ? rows : begin + group_rows;
      std::uint32_t largest = 0;
      for (std::uint32_t row = begin + simt::lane(); row < end; row += simt::kWarp) {
        const std::uint32_t bits = sums_.row(row);
        largest = largest < bits ? bits : largest;
      }
      largest = simt::largest_of(simt::kAllLanes, largest);
      std::uint32_t scale_bits = 0;
      if (!scale_of(largest, scale_bits)) verdict |= kBad;
      if (scale_bits != 0) verdict |= kNotZero;
      if (simt::lane() == 0) scales_.store(group, scale_bits);
    }
    if (simt::lane() == 0) verdicts_.store(simt::warp(), verdict);
    simt::barrier();
    for (unsigned warp = 0; warp < simt::warps(); ++warp) verdict |= verdicts_.load(warp);
    return verdict;
  }

  TERN_DEVICE void refuse() const {
    if (simt::thread() != 0) return;
    EncodeOutcome outcome;
    outcome.nonfinite = 1;
    simt::Global<EncodeOutcome>(chunk_.outcome).store(0, outcome);
    simt::Global<wire::BlockHeader>(header()).store(0, wire::BlockHeader{});
  }

  // A block of zeros still folds a residual that cancels the input.
  TERN_DEVICE void fold_residual() const {
    if (chunk_.residual == nullptr) return;
    for (std::uint32_t at = 4 * simt::thread(); at < shape_.elements; at += 4 * simt::threads()) {
      store_four(chunk_, at, sums_.four(at));
    }
  }

  // One digit and what it leaves. A tie goes to zero.
  struct Scale {
    float threshold;
    float delivered;
  };
  TERN_DEVICE Scale scale_in(std::uint32_t group) const {
    const float scale = std::bit_cast<float>(scales_.load(group));
    return {scale * 0.5f, round_to_dtype(chunk_.delivered, scale)};
  }
  static TERN_DEVICE int digit(float sum, const Scale& scale, float& left) {
    const int q = (sum > scale.threshold ? 1 : 0) - (sum < -scale.threshold ? 1 : 0);
    left = sum - (q == 0 ? 0.0f : q > 0 ? scale.delivered : -scale.delivered);
    return q;
  }

  TERN_DEVICE void quantize_blocks() {
    const std::uint32_t tile_blocks = simt::threads() / FourColumns::kThreads;
    for (std::uint32_t first = 0; first < shape_.full_blocks; first += tile_blocks) {
      const FourColumns four(first);
      if (four.block < shape_.full_blocks) quantize_four(four, first);
      if constexpr (!kOnChip) {
        simt::barrier();
        const std::uint32_t rest = shape_.full_blocks - first;
        left_energy_.add_rows(tile_left_, 0,
                              kRunsPerBlock * (rest < tile_blocks ? rest : tile_blocks));
        simt::barrier();
      }
    }
    if constexpr (kOnChip) {
      simt::barrier();
      left_energy_.add_rows(sums_.shared(), 0, kRunsPerBlock * shape_.full_blocks);
    }
  }

  TERN_DEVICE void quantize_four(const FourColumns& four, std::uint32_t first_block) {
    std::uint32_t word = kZeroColumn * 0x01010101u;
    RunGroup group(shape_, four.element(0));
    for (unsigned run = 0; run < kRunsPerBlock; ++run, group.advance()) {
      const std::uint32_t at = four.element(run);
      const Scale scale = scale_in(group.get());
      const simt::Wide<float> sum = sums_.four(at);
      simt::Wide<float> left;
      for (unsigned k = 0; k < 4; ++k) {
        const int q = digit(sum.of[k], scale, left.of[k]);
        word += static_cast<std::uint32_t>(q * static_cast<int>(digit_weight(run))) << (8 * k);
      }
      store_four(chunk_, at, left);
      if constexpr (kOnChip) {
        sums_.shared().store_wide(at, left);
      } else {
        tile_left_.store_wide(at - kBlockElements * first_block, left);
      }
    }
    columns_.store_word(four.column, word);
  }

  // Up to 64 columns, a thread for each; it is also the one that adds their energies. What the
  // last piece of the columns has too many is never used, but read.
  TERN_DEVICE void quantize_tail() {
    const std::uint32_t column = simt::thread();
    const std::uint32_t place = kBlockColumns * shape_.full_blocks + column;
    if (column < shape_.tail_columns) {
      std::uint32_t byte = kZeroColumn;
      for (unsigned run = 0; run < kRunsPerBlock; ++run) {
        const std::uint32_t at = shape_.tail_element(run, column);
        if (at >= shape_.elements) break;
        float left = 0.0f;
        const int q = digit(sums_.one(at), scale_in(shape_.group_of(at)), left);
        byte += static_cast<std::uint32_t>(q * static_cast<int>(digit_weight(run)));
        if (chunk_.residual != nullptr) simt::Global<float>(chunk_.residual).store(at, left);
        left_energy_.add(left);
      }
      columns_.store(place, static_cast<std::uint8_t>(byte));
    } else if (place < column_room()) {
      columns_.store(place, 0);
    }
    simt::barrier();
  }

  // The scales, then the columns. Returns how many bytes.
  TERN_DEVICE std::uint32_t write_payload() {
    std::uint32_t bytes = shape_.columns;
    if (stage_.zero_run) bytes = ZeroRuns(columns_, shape_.columns, totals_).encode(coded_);
    std::byte* const payload = chunk_.block + wire::kBlockHeaderBytes;
    const simt::Global<std::uint32_t> words(
        static_cast<std::uint32_t*>(static_cast<void*>(payload)));
    for (std::uint32_t i = simt::thread(); i < shape_.scale_count; i += simt::threads()) {
      words.store(i, scales_.load(i));
    }
    const simt::Shared<std::uint8_t>& source = stage_.zero_run ? coded_ : columns_;
    for (std::uint32_t i = simt::thread(); i < bytes / 4; i += simt::threads()) {
      words.store(shape_.scale_count + i, source.load_word(std::size_t{4} * i));
    }
    const std::uint32_t at = bytes / 4 * 4 + simt::thread();
    if (at < bytes) {
      const simt::Global<std::byte> rest(payload + std::size_t{4} * shape_.scale_count);
      rest.store(at, static_cast<std::byte>(source.load(at)));
    }
    return 4 * shape_.scale_count + bytes;
  }

  TERN_DEVICE wire::BlockHeader* header() const {
    return static_cast<wire::BlockHeader*>(static_cast<void*>(chunk_.block));
  }

  TERN_DEVICE void finish(std::uint32_t bytes, bool all_zero) const {
    EncodeOutcome outcome;
    outcome.payload_bytes = bytes;
    outcome.input_energy = energies_.input();
    outcome.residual_energy = energies_.left();
    simt::Global<EncodeOutcome>(chunk_.outcome).store(0, outcome);
    wire::BlockHeader made;
    made.codec = static_cast<std::uint8_t>(wire::CodecId::threelc);
    made.dtype = static_cast<std::uint8_t>(DType::f32);
    unsigned flags = 0;
    if (stage_.zero_run) flags |= wire::kBlockZeroRun;
    if (all_zero) flags |= wire::kBlockAllZero;
    made.flags = static_cast<std::uint8_t>(flags);
    made.elements = shape_.elements;
    made.scale_elements = stage_.scale_elements;
    made.payload_bytes = bytes;
    made.stream_step = chunk_.stream_step;
    simt::Global<wire::BlockHeader>(header()).store(0, made);
  }

  const ThreelcStage& stage_;
  const EncodeChunk& chunk_;
  ThreelcShape shape_;
  ChunkSums<kOnChip, kRunElements> sums_;
  EnergySums energies_;
  LeftEnergy left_energy_;
  simt::Shared<std::uint32_t> scales_;
  simt::Shared<std::uint32_t> verdicts_;
  simt::Shared<std::uint32_t> totals_;
  simt::Shared<float> tile_left_;
  simt::Shared<std::uint8_t> columns_;
  simt::Shared<std::uint8_t> coded_;
};

// The kernel. On chip a block of threads needs the shared memory for all sums of its chunk.
template <bool kOnChip>
TERN_DEVICE void threelc_encode(const ThreelcStage& stage, const EncodeChunk* chunks) {
  const EncodeChunk chunk = simt::Global<const EncodeChunk>(chunks).load(simt::block());
  simt::Arena arena;
  ThreelcEncoder<kOnChip>(stage, chunk, arena).run();
}

}  // namespace tern::codec::device
