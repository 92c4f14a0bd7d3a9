#pragma once

#include "codec/device/quantizer_formats.h"

// Quantizers that make a code of each element, with their residual or without, one chunk for each
// block of threads. The sums of the chunk stay in shared memory: input and residual are read once,
// and nothing is written before all sums are known to be finite.
namespace tern::codec::device {

template <typename Format>
class ElementEncoder {
 public:
  TERN_DEVICE ElementEncoder(const ElementStage& stage, const EncodeChunk& chunk,
                             simt::Arena& arena)
      : stage_(stage),
        chunk_(chunk),
        scale_count_(scale_count(stage, chunk)),
        sums_(chunk, arena),
        energies_(arena),
        grids_(arena.take<Grid>(scale_count_ + 1)),
        verdicts_(arena.take<std::uint32_t>(simt::warps())) {}

  TERN_DEVICE void run() {
    sums_.scan();
    if (!find_grids()) return refuse();
    write_side();
    // Usually nothing is rounded, and nobody has to ask for each element.
    if (chunk_.delivered == DType::f32) {
      encode_all([](float value) { return value; });
    } else {
      encode_all([&](float value) { return round_to_dtype(chunk_.delivered, value); });
    }
    simt::barrier();
    left_energy_.add_rows(sums_.shared(), 0,
                          (chunk_.elements + kResidualLanes - 1) / kResidualLanes);
    energies_.gather(sums_.energy(), left_energy_.lane());
    if (simt::thread() == 0) finish();
  }

 private:
  using Grid = typename Format::Grid;
  using Codes = std::conditional_t<Format::kBits == 16, std::uint64_t, std::uint32_t>;
  static constexpr unsigned kRow = 32;

  static TERN_DEVICE std::uint32_t scale_count(const ElementStage& stage,
                                               const EncodeChunk& chunk) {
    if (chunk.elements == 0) return 0;
    return stage.block == 0 ? 1 : (chunk.elements - 1) / stage.block + 1;
  }

  // An infinity in the type in which it is delivered would stay in the residual for ever. The
  // largest magnitude is also delivered as the largest.
  TERN_DEVICE bool fits(std::uint32_t largest, const Grid& grid) const {
    if (largest >= kInfinityBits) return false;
    const Rounded made = Format::round(std::bit_cast<float>(largest), grid);
    const float seen = round_to_dtype(chunk_.delivered, made.value);
    return magnitude_of(seen) < kInfinityBits;
  }

  // A warp for each scale. False, to all threads: the chunk must travel raw.
  TERN_DEVICE bool find_grids() {
    const std::uint32_t rows = sums_.row_count();
    const std::uint32_t block_rows = stage_.block == 0 ? rows : stage_.block / kRow;
    bool fine = true;
    for (std::uint32_t block = simt::warp(); block < scale_count_; block += simt::warps()) {
      const std::uint32_t begin = block * block_rows;
      const std::uint32_t end = rows - begin < block_rows ? rows : begin + block_rows;
      std::uint32_t largest = 0;
      for (std::uint32_t row = begin + simt::lane(); row < end; row += simt::kWarp) {
        const std::uint32_t bits = sums_.row(row);
        largest = largest < bits ? bits : largest;
      }
      largest = simt::largest_of(simt::kAllLanes, largest);
      const Grid grid = Format::grid_of(largest < kInfinityBits ? largest : 0);
      fine = fine && fits(largest, grid);
      if (simt::lane() == 0) grids_.store(block, grid);
    }
    if (simt::lane() == 0) verdicts_.store(simt::warp(), fine ? 1 : 0);
    simt::barrier();
    for (unsigned warp = 0; warp < simt::warps(); ++warp) fine = fine && verdicts_.load(warp) != 0;
    return fine;
  }

  TERN_DEVICE std::byte* payload() const { return chunk_.block + wire::kBlockHeaderBytes; }
  TERN_DEVICE std::uint32_t side_bytes() const { return Format::kHasSide ? 4 * scale_count_ : 0; }
  template <typename T>
  TERN_DEVICE simt::Global<T> body() const {
    return simt::Global<T>(static_cast<T*>(static_cast<void*>(payload() + side_bytes())));
  }

  TERN_DEVICE void write_side() const {
    if constexpr (Format::kHasSide) {
      const simt::Global<std::uint32_t> words(
          static_cast<std::uint32_t*>(static_cast<void*>(payload())));
      for (std::uint32_t i = simt::thread(); i < scale_count_; i += simt::threads()) {
        words.store(i, Format::side_of(grids_.load(i)));
      }
    }
  }

  template <typename Delivered>
  TERN_DEVICE void encode_all(Delivered delivered) const {
    const std::uint32_t reciprocal = ScaleIndex::reciprocal(stage_.block, scale_count_);
    for (std::uint32_t at = 4 * simt::thread(); at < chunk_.elements; at += 4 * simt::threads()) {
      Grid grid{};
      if constexpr (Format::kHasSide) grid = grids_.load(ScaleIndex::of(at, reciprocal));
      encode_four(at, grid, delivered);
    }
  }

  template <typename Delivered>
  TERN_DEVICE void encode_four(std::uint32_t at, const Grid& grid, Delivered delivered) const {
    const simt::Wide<float> sum = sums_.four(at);
    simt::Wide<float> left = sum;
    Codes codes = 0;
    for (unsigned k = 0; k < 4; ++k) {
      const Rounded made = Format::round(sum.of[k], grid);
      left.of[k] -= delivered(made.value);
      codes |= Codes{made.code} << (Format::kBits * k);
    }
    store_codes(at, codes);
    store_four(chunk_, at, left);
    sums_.shared().store_wide(at, left);
  }

  // Four codes: 2, 4 or 8 bytes, fewer at the end of the chunk.
  TERN_DEVICE void store_codes(std::uint32_t at, Codes codes) const {
    constexpr unsigned kBytes = Format::kBits / 2;
    if (at + 4 > chunk_.elements) {
      // Unused bits of the last byte are zero.
      codes &= (Codes{1} << (Format::kBits * (chunk_.elements - at))) - 1;
      const std::uint32_t bytes = ((chunk_.elements - at) * Format::kBits + 7) / 8;
      for (std::uint32_t i = 0; i < bytes; ++i) {
        body<std::uint8_t>().store(at / 4 * kBytes + i,
                                   static_cast<std::uint8_t>(codes >> (8 * i)));
      }
      return;
    }
    if constexpr (kBytes == 2)
      body<std::uint16_t>().store(at / 4, static_cast<std::uint16_t>(codes));
    if constexpr (kBytes == 4)
      body<std::uint32_t>().store(at / 4, static_cast<std::uint32_t>(codes));
    if constexpr (kBytes == 8) body<std::uint64_t>().store(at / 4, codes);
  }

  TERN_DEVICE wire::BlockHeader* header() const {
    return static_cast<wire::BlockHeader*>(static_cast<void*>(chunk_.block));
  }

  TERN_DEVICE void refuse() const {
    if (simt::thread() != 0) return;
    EncodeOutcome outcome;
    outcome.nonfinite = 1;
    simt::Global<EncodeOutcome>(chunk_.outcome).store(0, outcome);
    simt::Global<wire::BlockHeader>(header()).store(0, wire::BlockHeader{});
  }

  TERN_DEVICE void finish() const {
    EncodeOutcome outcome;
    outcome.payload_bytes = side_bytes() + (chunk_.elements * Format::kBits + 7) / 8;
    outcome.input_energy = energies_.input();
    outcome.residual_energy = energies_.left();
    simt::Global<EncodeOutcome>(chunk_.outcome).store(0, outcome);
    wire::BlockHeader made;
    const bool staged = Format::kHasSide;
    made.codec = static_cast<std::uint8_t>(staged ? wire::CodecId::staged : wire::CodecId::bf16);
    made.dtype = static_cast<std::uint8_t>(DType::f32);
    made.elements = chunk_.elements;
    made.payload_bytes = outcome.payload_bytes;
    made.stream_step = chunk_.stream_step;
    if (staged) {
      made.scale_elements = stage_.block;
      made.stages.quantizer = static_cast<std::uint8_t>(Format::kKind);
      made.stages.bits = Format::kHeaderBits;
    }
    simt::Global<wire::BlockHeader>(header()).store(0, made);
  }

  const ElementStage& stage_;
  const EncodeChunk& chunk_;
  std::uint32_t scale_count_;
  ChunkSums<true, kRow> sums_;
  EnergySums energies_;
  LeftEnergy left_energy_;
  simt::Shared<Grid> grids_;
  simt::Shared<std::uint32_t> verdicts_;
};

// The kernel.
template <typename Format>
TERN_DEVICE void element_encode(const ElementStage& stage, const EncodeChunk* chunks) {
  const EncodeChunk chunk = simt::Global<const EncodeChunk>(chunks).load(simt::block());
  simt::Arena arena;
  ElementEncoder<Format>(stage, chunk, arena).run();
}

}  // namespace tern::codec::device
