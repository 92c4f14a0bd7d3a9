#pragma once

#include <bit>
#include <cstdint>

#include "codec/device/block_scan.h"
#include "codec/device/chunk_sums.h"
#include "codec/device/simt.h"

// The choice of the largest magnitudes by all threads of a block, with the thresholds of
// codec/sparsifier/topk.cc: a key is the bits of a magnitude, a threshold is bisected bit by bit
// with a counting pass for each, and "about k" begins with the threshold of a sample.
namespace tern::codec::device {

class Selection {
 public:
  struct Request {
    std::uint32_t elements;
    std::uint32_t wanted;  // k
    std::uint32_t limit;   // positions that there is room for; k, or min(elements, 2k + 64)
  };

  // `values` has whole rows of the lanes of energies; `totals` a number for each warp.
  TERN_DEVICE Selection(const Request& request, const simt::Shared<float>& values,
                        const simt::Shared<std::uint32_t>& totals, simt::Arena& arena)
      : request_(request),
        values_(values),
        totals_(totals),
        positions_(arena.take<std::uint32_t>(request.limit + 1)) {}

  // Ascending. Read them after the barrier with which exactly() and about() end.
  TERN_DEVICE std::uint32_t position(std::uint32_t i) const { return positions_.load(i); }

  // Of equal magnitudes those at lower positions. Returns how many.
  TERN_DEVICE std::uint32_t exactly() const {
    if (request_.wanted == 0) return 0;
    const Threshold found = bisect(all(), request_.wanted, 0);
    std::uint32_t equal = request_.elements;
    if (found.reached != request_.wanted) {
      equal = request_.wanted - count(all(), found.key + 1);
    }
    return gather(found.key, equal);
  }

  TERN_DEVICE std::uint32_t about() const {
    const std::uint32_t wanted = request_.wanted;
    if (wanted == 0) return 0;
    // Never 0: zeros are not worth sending.
    std::uint32_t key = at_least_one(sampled_threshold());
    std::uint32_t made = 0;
    bool settled = false;
    for (int tried = 0; tried < 3 && !settled; ++tried) {
      made = gather(key, request_.elements);
      const bool full = made == request_.limit && request_.limit < request_.elements;
      settled = !full && (10 * made >= 7 * wanted || key == 1);
      const float moved = std::bit_cast<float>(key) * (full ? 1.3f : 0.7f);
      if (!settled) key = at_least_one(magnitude_of(moved));
    }
    if (!settled) {
      key = at_least_one(bisect(all(), wanted, 0).key);
      made = gather(key, request_.elements);
      // So many are the same that larger ones behind them may have been left out.
      if (made == request_.limit && request_.limit < request_.elements) {
        made = gather(key, wanted - count(all(), key + 1));
      }
    }
    if (made == 0) {
      if (simt::thread() == 0) positions_.store(0, 0);
      simt::barrier();
      return 1;
    }
    return 10 * made > 13 * wanted ? reduce(made) : made;
  }

 private:
  static constexpr std::uint32_t kLine = 16;
  static constexpr std::uint32_t kMostSampled = 4096;
  static constexpr std::uint32_t kFewestSampled = 512;
  static constexpr std::uint32_t kSampledBeyond = 32;
  static constexpr int kLastSampledBit = 10;

  struct Threshold {
    std::uint32_t key;
    std::uint32_t reached;
  };

  // Which values a pass goes through: all, the lines of a sample, or those that were chosen.
  struct Source {
    enum class Kind : std::uint8_t { all, sample, chosen };
    Kind kind;
    std::uint32_t count;
  };

  TERN_DEVICE Source all() const { return {Source::Kind::all, request_.elements}; }
  static TERN_DEVICE std::uint32_t at_least_one(std::uint32_t key) { return key == 0 ? 1 : key; }

  TERN_DEVICE std::uint32_t key_at(const Source& source, std::uint32_t i) const {
    if (source.kind == Source::Kind::sample) {
      const std::uint32_t lines = request_.elements / kLine;
      const std::uint32_t sampled = source.count / kLine;
      i = i / kLine * lines / sampled * kLine + i % kLine;
    } else if (source.kind == Source::Kind::chosen) {
      i = positions_.load(i);
    }
    return magnitude_of(values_.load(i));
  }

  // How many of the source reach the key.
  TERN_DEVICE std::uint32_t count(const Source& source, std::uint32_t key) const {
    std::uint32_t found = 0;
    for (std::uint32_t i = simt::thread(); i < source.count; i += simt::threads()) {
      found += key_at(source, i) >= key ? 1 : 0;
    }
    return block_scan<Sum>(found, totals_).all;
  }

  TERN_DEVICE Threshold bisect(const Source& source, std::uint32_t wanted, int last_bit) const {
    Threshold found{0, source.count};
    for (int bit = 30; bit >= last_bit && found.reached != wanted; --bit) {
      const std::uint32_t candidate = found.key | 1u << bit;
      const std::uint32_t reached = count(source, candidate);
      if (reached >= wanted) found = {candidate, reached};
    }
    return found;
  }

  TERN_DEVICE std::uint32_t sampled_threshold() const {
    const std::uint32_t elements = request_.elements;
    const std::uint32_t wanted = request_.wanted;
    if (elements <= kMostSampled) return bisect(all(), wanted, kLastSampledBit).key;
    std::uint32_t sampled = kSampledBeyond * elements / wanted;
    sampled = sampled < elements / 100 ? elements / 100 : sampled;
    sampled = sampled < kFewestSampled ? kFewestSampled : sampled;
    sampled = (sampled > kMostSampled ? kMostSampled : sampled) / kLine * kLine;
    const std::uint64_t share = (std::uint64_t{wanted} * sampled + elements / 2) / elements;
    const auto least = static_cast<std::uint32_t>(share == 0 ? 1 : share);
    return bisect({Source::Kind::sample, sampled}, least, kLastSampledBit).key;
  }

  // The positions of what is above the key, and of the first `equal` values at it. Both are counted
  // in one scan, each in half a number. Returns how many, at most the limit.
  TERN_DEVICE std::uint32_t gather(std::uint32_t key, std::uint32_t equal) const {
    std::uint32_t above = 0;
    std::uint32_t at = 0;
    for (std::uint32_t begin = 0; begin < request_.elements; begin += 4 * simt::threads()) {
      const std::uint32_t first = begin + 4 * simt::thread();
      simt::Wide<float> four{};
      if (first < request_.elements) four = values_.load_wide(first);
      std::uint32_t own = 0;
      for (unsigned k = 0; k < 4 && first + k < request_.elements; ++k) {
        const std::uint32_t bits = magnitude_of(four.of[k]);
        own += bits > key ? 1u << 16 : bits == key ? 1u : 0u;
      }
      const Scanned place = block_scan<Sum>(own, totals_);
      std::uint32_t above_here = above + (place.before >> 16);
      std::uint32_t at_here = at + (place.before & 0xffffu);
      for (unsigned k = 0; k < 4 && first + k < request_.elements; ++k) {
        const std::uint32_t bits = magnitude_of(four.of[k]);
        const std::uint32_t to = above_here + (at_here < equal ? at_here : equal);
        const bool chosen = bits > key || (bits == key && at_here < equal);
        if (chosen && to < request_.limit) positions_.store(to, first + k);
        above_here += bits > key ? 1 : 0;
        at_here += bits == key ? 1 : 0;
      }
      above += place.all >> 16;
      at += place.all & 0xffffu;
    }
    simt::barrier();
    const std::uint32_t made = above + (at < equal ? at : equal);
    return made < request_.limit ? made : request_.limit;
  }

  // Keeps of those that were chosen the largest k, and those of the same magnitude.
  TERN_DEVICE std::uint32_t reduce(std::uint32_t made) const {
    const Source chosen{Source::Kind::chosen, made};
    const std::uint32_t key = bisect(chosen, request_.wanted, 0).key;
    std::uint32_t left = 0;
    for (std::uint32_t begin = 0; begin < made; begin += simt::threads()) {
      const std::uint32_t i = begin + simt::thread();
      std::uint32_t position = 0;
      if (i < made) position = positions_.load(i);
      const bool stays = i < made && magnitude_of(values_.load(position)) >= key;
      const Scanned place = block_scan<Sum>(stays ? 1 : 0, totals_);
      if (stays) positions_.store(left + place.before, position);
      left += place.all;
    }
    simt::barrier();
    return left;
  }

  Request request_;
  simt::Shared<float> values_;
  simt::Shared<std::uint32_t> totals_;
  simt::Shared<std::uint32_t> positions_;
};

}  // namespace tern::codec::device
