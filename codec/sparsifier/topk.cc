// The k largest magnitudes, or about as many.
//
// The threshold is found by bisecting the bits of magnitudes: count what is at least this large,
// and go on in one half. Counting is the fastest pass there is, so that even the exact threshold
// of a whole chunk costs some twenty passes through cache instead of a partial sort.
//
// About k: the threshold is that of a sample of whole cache lines. What it lets through may miss k
// by more than 30 %; then it is moved, as in Deep Gradient Compression (Lin, Han, Mao, Wang and
// Dally, ICLR 2018), but with what was gathered already where that was too much.

#include <algorithm>
#include <cstring>

#include "codec/sparsifier/implementation.h"
#include "codec/sparsifier/positions.h"
#include "codec/sparsifier/topk_kernels.h"

namespace tern::codec::sparsifier {
namespace {

constexpr std::size_t kLine = 16;  // floats of a cache line
// 16 KiB of stack.
constexpr std::size_t kMostSampled = 4096;
constexpr std::size_t kFewestSampled = 512;
// So many of the sample are to lie beyond the threshold: its error is then about 18 %.
constexpr std::size_t kSampledBeyond = 32;
constexpr int kTries = 3;

std::size_t kept_limit(const Params& params, std::size_t elements) noexcept {
  const std::size_t count = count_of(params, elements);
  return params.exact ? count : std::min(elements, 2 * count + 64);
}

std::size_t section_limit(const Params& params, std::size_t elements) noexcept {
  return position_bytes_bound(kept_limit(params, elements), elements);
}

struct Threshold {
  std::uint32_t key;
  std::size_t reached;  // how many values reach it
};

// The largest key that at least `wanted` values reach, down to `last_bit`; 0 if fewer values than
// that are there.
Threshold bisect(const TopkKernels& kernels, std::span<const float> values, std::size_t wanted,
                 int last_bit = 0) noexcept {
  Threshold found{0, values.size()};
  for (int bit = 30; bit >= last_bit && found.reached != wanted; --bit) {
    const std::uint32_t candidate = found.key | 1u << bit;
    const std::size_t reached = kernels.count(values.data(), values.size(), candidate);
    if (reached >= wanted) found = {candidate, reached};
  }
  return found;
}

std::uint32_t sampled_threshold(const TopkKernels& kernels, std::span<const float> values,
                                std::size_t wanted) noexcept {
  // A relative step of 2^-13 is finer than any sample is exact.
  constexpr int kLastBit = 10;
  if (values.size() <= kMostSampled) return bisect(kernels, values, wanted, kLastBit).key;
  const std::size_t lines = values.size() / kLine;
  const std::size_t sampled =
      std::clamp(std::max(values.size() / 100, kSampledBeyond * values.size() / wanted),
                 kFewestSampled, kMostSampled) /
      kLine;
  alignas(64) float sample[kMostSampled];
  for (std::size_t i = 0; i < sampled; ++i) {
    std::memcpy(sample + i * kLine, values.data() + i * lines / sampled * kLine,
                kLine * sizeof(float));
  }
  const std::size_t share = (wanted * sampled * kLine + values.size() / 2) / values.size();
  return bisect(kernels, {sample, sampled * kLine}, std::max<std::size_t>(share, 1), kLastBit).key;
}

void take(const float* values, const std::uint32_t* positions, std::size_t count,
          float* kept) noexcept {
  for (std::size_t i = 0; i < count; ++i) kept[i] = values[positions[i]];
}

// Drops of the `count` that were kept what is below the key that `wanted` of them reach. Returns
// how many are left.
std::size_t reduce(const TopkKernels& kernels, const Request& request, std::size_t count,
                   std::size_t wanted) noexcept {
  float* const kept = request.kept;
  std::uint32_t* const positions = request.positions;
  const std::uint32_t key = bisect(kernels, {kept, count}, wanted).key;
  std::size_t left = 0;
  for (std::size_t i = 0; i < count; ++i) {
    kept[left] = kept[i];
    positions[left] = positions[i];
    left += key_of(kept[left]) >= key ? 1 : 0;
  }
  return left;
}

// The wanted largest, where more have the magnitude of the last than are wanted of them: those at
// lower positions.
std::size_t lowest_of_equals(const Request& request, std::uint32_t key,
                             std::size_t wanted) noexcept {
  const float* const values = request.values.data();
  const std::size_t elements = request.values.size();
  std::size_t equal = wanted - topk_kernels().count(values, elements, key + 1);
  std::size_t made = 0;
  for (std::size_t i = 0; i < elements && made < wanted; ++i) {
    const std::uint32_t own = key_of(values[i]);
    if (own < key || (own == key && equal == 0)) continue;
    equal -= own == key ? 1 : 0;
    request.positions[made++] = static_cast<std::uint32_t>(i);
  }
  return made;
}

float scaled(std::uint32_t key, float factor) noexcept {
  return std::bit_cast<float>(key) * factor;
}

std::size_t about(const Request& request, std::size_t wanted) noexcept {
  const TopkKernels& kernels = topk_kernels();
  const float* const values = request.values.data();
  const std::size_t limit = kept_limit(request.params, request.values.size());
  // Never 0: zeros are not worth sending, and would push out what is larger and lies behind them.
  std::uint32_t key = std::max(sampled_threshold(kernels, request.values, wanted), 1u);
  std::size_t made = 0;
  bool settled = false;
  for (int tried = 0; tried < kTries && !settled; ++tried) {
    made = kernels.gather(request.values, key, {request.positions, limit});
    const bool full = made == limit && limit < request.values.size();
    settled = !full && (10 * made >= 7 * wanted || key == 1);
    if (!settled) key = std::max(key_of(scaled(key, full ? 1.3f : 0.7f)), 1u);
  }
  if (!settled) {
    // The sample missed what matters, or many magnitudes are the same: then of all values.
    key = std::max(bisect(kernels, request.values, wanted).key, 1u);
    made = kernels.gather(request.values, key, {request.positions, limit});
    // So many are the same that larger ones behind them may have been left out.
    if (made == limit && limit < request.values.size()) {
      made = lowest_of_equals(request, key, wanted);
    }
  }
  if (made == 0) {
    // Nothing but zeros.
    request.positions[0] = 0;
    made = 1;
  }
  take(values, request.positions, made, request.kept);
  if (10 * made > 13 * wanted) {
    made = reduce(kernels, request, made, wanted);
  }
  return made;
}

std::size_t exactly(const Request& request, std::size_t wanted) noexcept {
  const TopkKernels& kernels = topk_kernels();
  const auto [key, reached] = bisect(kernels, request.values, wanted);
  std::size_t made = 0;
  if (reached == wanted) {
    made = kernels.gather(request.values, key, {request.positions, wanted});
  } else {
    made = lowest_of_equals(request, key, wanted);
  }
  take(request.values.data(), request.positions, made, request.kept);
  return made;
}

Selection select_largest(const Request& request) noexcept {
  const std::size_t elements = request.values.size();
  const std::size_t wanted = count_of(request.params, elements);
  std::size_t kept = 0;
  if (wanted != 0) kept = request.params.exact ? exactly(request, wanted) : about(request, wanted);
  return {kept, write_positions({request.positions, kept}, elements, request.section)};
}

bool read_largest(const SectionView& view, std::uint32_t* positions,
                  Selection& selection) noexcept {
  PositionsRead read;
  if (!read_positions(view.payload, view.elements, positions, read)) return false;
  selection = {read.count, read.bytes};
  return true;
}

double biased(const Params&, std::size_t) noexcept { return -1.0; }

}  // namespace

const Implementation kTopk = {section_limit, kept_limit, select_largest, read_largest, biased};

}  // namespace tern::codec::sparsifier
