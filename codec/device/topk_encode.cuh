#pragma once

#include "base/half.h"
#include "codec/device/chunk_sums.h"
#include "codec/device/position_section.h"
#include "codec/device/selection.h"
#include "wire/block.h"

// topk with its residual, the kept values as they are, one chunk for each block of threads. The
// sums of the chunk stay in shared memory, and nothing is written before all of them are known to
// be finite.
namespace tern::codec::device {

struct TopkStage {
  const std::uint32_t* wanted;  // k of each chunk
  bool exact;
};

class TopkEncoder {
 public:
  TERN_DEVICE TopkEncoder(const Selection::Request& request, const EncodeChunk& chunk,
                          simt::Arena& arena)
      : chunk_(chunk),
        sums_(chunk, arena),
        energies_(arena),
        totals_(arena.take<std::uint32_t>(simt::warps())),
        selection_(request, sums_.shared(), totals_, arena) {}

  TERN_DEVICE void run(bool exact) {
    sums_.scan();
    std::uint32_t largest = 0;
    for (std::uint32_t i = simt::thread(); i < sums_.row_count(); i += simt::threads()) {
      const std::uint32_t bits = sums_.row(i);
      largest = largest < bits ? bits : largest;
    }
    if (block_scan<Largest>(largest, totals_).all >= kInfinityBits) return refuse();
    const std::uint32_t kept = exact ? selection_.exactly() : selection_.about();
    if (!fits_delivered(kept)) return refuse();
    const PositionSection section(selection_, kept, chunk_.elements);
    write_payload(section, kept);
    simt::barrier();
    leave(kept);
    energies_.gather(sums_.energy(), left_energy_.lane());
    if (simt::thread() == 0) finish(section.bytes() + 4 * kept);
  }

 private:
  TERN_DEVICE float kept_value(std::uint32_t i) const {
    return sums_.shared().load(selection_.position(i));
  }

  // An infinity in the type in which it is delivered would stay in the residual for ever.
  TERN_DEVICE bool fits_delivered(std::uint32_t kept) const {
    if (chunk_.delivered == DType::f32) return true;
    std::uint32_t largest = 0;
    for (std::uint32_t i = simt::thread(); i < kept; i += simt::threads()) {
      const std::uint32_t bits = magnitude_of(round_to_dtype(chunk_.delivered, kept_value(i)));
      largest = largest < bits ? bits : largest;
    }
    return block_scan<Largest>(largest, totals_).all < kInfinityBits;
  }

  TERN_DEVICE std::uint8_t payload_byte(const PositionSection& section, std::uint32_t i) const {
    if (i < section.bytes()) return section.byte_at(i);
    const std::uint32_t at = i - section.bytes();
    return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(kept_value(at / 4)) >>
                                     (at % 4 * 8));
  }

  // Values follow a section of any length, so that words are put together from bytes.
  TERN_DEVICE void write_payload(const PositionSection& section, std::uint32_t kept) const {
    std::byte* const payload = chunk_.block + wire::kBlockHeaderBytes;
    const std::uint32_t bytes = section.bytes() + 4 * kept;
    const simt::Global<std::uint32_t> words(
        static_cast<std::uint32_t*>(static_cast<void*>(payload)));
    for (std::uint32_t i = simt::thread(); i < bytes / 4; i += simt::threads()) {
      std::uint32_t word = 0;
      for (unsigned k = 0; k < 4; ++k) {
        word |= std::uint32_t{payload_byte(section, 4 * i + k)} << (8 * k);
      }
      words.store(i, word);
    }
    const std::uint32_t at = bytes / 4 * 4 + simt::thread();
    if (at < bytes) {
      simt::Global<std::uint8_t>(static_cast<std::uint8_t*>(static_cast<void*>(payload)))
          .store(at, payload_byte(section, at));
    }
  }

  // What was dropped is left as it is.
  TERN_DEVICE void leave(std::uint32_t kept) {
    const simt::Shared<float>& left = sums_.shared();
    for (std::uint32_t i = simt::thread(); i < kept; i += simt::threads()) {
      const std::uint32_t position = selection_.position(i);
      const float value = left.load(position);
      left.store(position, value - round_to_dtype(chunk_.delivered, value));
    }
    simt::barrier();
    for (std::uint32_t at = 4 * simt::thread(); at < chunk_.elements; at += 4 * simt::threads()) {
      store_four(chunk_, at, sums_.four(at));
    }
    left_energy_.add_rows(left, 0, (chunk_.elements + kResidualLanes - 1) / kResidualLanes);
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

  TERN_DEVICE void finish(std::uint32_t bytes) const {
    EncodeOutcome outcome;
    outcome.payload_bytes = bytes;
    outcome.input_energy = energies_.input();
    outcome.residual_energy = energies_.left();
    simt::Global<EncodeOutcome>(chunk_.outcome).store(0, outcome);
    wire::BlockHeader made;
    made.codec = static_cast<std::uint8_t>(wire::CodecId::staged);
    made.dtype = static_cast<std::uint8_t>(DType::f32);
    made.elements = chunk_.elements;
    made.payload_bytes = bytes;
    made.stream_step = chunk_.stream_step;
    made.stages.sparsifier = static_cast<std::uint8_t>(wire::SparsifierId::topk);
    simt::Global<wire::BlockHeader>(header()).store(0, made);
  }

  const EncodeChunk& chunk_;
  ChunkSums<true, kRunElements> sums_;
  EnergySums energies_;
  LeftEnergy left_energy_;
  simt::Shared<std::uint32_t> totals_;
  Selection selection_;
};

// The kernel.
TERN_DEVICE void topk_encode(const TopkStage& stage, const EncodeChunk* chunks) {
  const EncodeChunk chunk = simt::Global<const EncodeChunk>(chunks).load(simt::block());
  const std::uint32_t wanted = simt::Global<const std::uint32_t>(stage.wanted).load(simt::block());
  const std::uint32_t most = 2 * wanted + 64;
  const std::uint32_t about = most < chunk.elements ? most : chunk.elements;
  simt::Arena arena;
  const Selection::Request request{chunk.elements, wanted, stage.exact ? wanted : about};
  TopkEncoder(request, chunk, arena).run(stage.exact);
}

}  // namespace tern::codec::device
