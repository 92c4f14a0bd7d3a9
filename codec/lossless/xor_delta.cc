// A block of differences to the last values is one byte, its form, and
//   sparse  u32 count of changed elements, their differences, then one byte for each gap: the
//           unchanged elements before a changed one, 255 for 255 unchanged ones and no changed one
//   dense   a split block of all differences: the first block of a stream, where all has changed
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "codec/lossless/lossless.h"
#include "codec/lossless/lossless_kernels.h"
#include "codec/target/highway_table.h"

namespace tern::codec::lossless {
namespace {

constexpr std::byte kSparse{0};
constexpr std::byte kDense{1};
constexpr std::size_t kSparseHeader = 1 + sizeof(std::uint32_t);
constexpr std::size_t kLongGap = 255;

std::uint8_t* raw(std::span<std::byte> bytes) noexcept {
  return reinterpret_cast<std::uint8_t*>(bytes.data());
}

const std::uint8_t* raw(std::span<const std::byte> bytes) noexcept {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

const LosslessKernels& active_kernels() noexcept {
  return target::choose(lossless_highway, kScalarLossless);
}

bool are_elements(DType dtype, std::size_t bytes) noexcept {
  return supports(dtype) && bytes % (dtype == DType::f32 ? 4 : 2) == 0;
}

// Whether an array of so many bytes is one of the stream's.
bool fits(const Stream& stream, std::size_t bytes, const Work& work) noexcept {
  return are_elements(stream.dtype, bytes) && stream.last.size() == bytes &&
         work.bytes.size() >= work_bytes(stream.dtype, bytes);
}

// Adds the differences of a block whose gaps are known to lie in the array.
template <typename Word>
void apply(std::span<const std::byte> differences, std::span<const std::byte> gaps,
           std::span<std::byte> last) noexcept {
  std::size_t at = 0;
  const std::byte* difference = differences.data();
  for (const std::byte gap : gaps) {
    at += std::to_integer<std::size_t>(gap);
    if (std::to_integer<std::size_t>(gap) == kLongGap) continue;
    Word word;
    Word change;
    std::memcpy(&word, last.data() + at * sizeof(Word), sizeof(Word));
    std::memcpy(&change, difference, sizeof(Word));
    word = static_cast<Word>(word ^ change);
    std::memcpy(last.data() + at * sizeof(Word), &word, sizeof(Word));
    difference += sizeof(Word);
    ++at;
  }
}

// `last` changes only at the end, by what was written: whatever happens to `in` meanwhile, both
// ends agree. A difference of zero, from an element that changed back before it was read again,
// does no harm.
template <typename Word>
std::size_t sparse_encode(std::span<const std::byte> in, std::span<std::byte> last,
                          std::span<std::byte> out, std::span<std::byte> work) noexcept {
  constexpr std::size_t kWidth = sizeof(Word);
  if (out.size() < kSparseHeader) return 0;
  const LosslessKernels& kernels = active_kernels();
  const auto find_changes = kWidth == 2 ? kernels.changes16 : kernels.changes32;
  // Differences fill `out` from the front while gaps, of one byte each, fill `work`; at most one
  // gap byte comes with an element, so `work` is long enough.
  std::byte* to = out.data() + kSparseHeader;
  const std::byte* const end = out.data() + out.size();
  std::byte* gap = work.data();
  std::size_t next = 0;  // the element after the last one that a gap byte tells of
  std::uint32_t changed = 0;
  const auto room = [&] {
    return end - to >= static_cast<std::ptrdiff_t>(kWidth) + (gap - work.data());
  };
  const auto put = [&](std::size_t element) {
    Word now;
    Word before;
    std::memcpy(&now, in.data() + element * kWidth, kWidth);
    std::memcpy(&before, last.data() + element * kWidth, kWidth);
    for (; element - next >= kLongGap; next += kLongGap) *gap++ = std::byte{kLongGap};
    *gap++ = static_cast<std::byte>(element - next);
    if (!room()) return false;
    const auto difference = static_cast<Word>(now ^ before);
    std::memcpy(to, &difference, kWidth);
    to += kWidth;
    next = element + 1;
    ++changed;
    return true;
  };
  const std::size_t elements = in.size() / kWidth;
  std::array<std::uint64_t, 16> masks;
  std::size_t element = 0;
  while (element + 64 <= elements) {
    const std::size_t words = std::min(masks.size(), (elements - element) / 64);
    find_changes(raw(in) + element * kWidth, raw(last) + element * kWidth, words, masks.data());
    for (std::size_t word = 0; word < words; ++word, element += 64) {
      for (std::uint64_t mask = masks[word]; mask != 0; mask &= mask - 1) {
        if (!put(element + static_cast<std::size_t>(std::countr_zero(mask)))) return 0;
      }
    }
  }
  for (; element < elements; ++element) {
    const std::size_t at = element * kWidth;
    if (std::memcmp(in.data() + at, last.data() + at, kWidth) != 0 && !put(element)) return 0;
  }
  const auto gap_bytes = static_cast<std::size_t>(gap - work.data());
  if (static_cast<std::size_t>(end - to) < gap_bytes) return 0;
  out[0] = kSparse;
  std::memcpy(out.data() + 1, &changed, sizeof(changed));
  if (gap_bytes != 0) std::memcpy(to, work.data(), gap_bytes);
  apply<Word>(out.subspan(kSparseHeader), std::span<const std::byte>(work).first(gap_bytes), last);
  return kSparseHeader + changed * kWidth + gap_bytes;
}

template <typename Word>
bool sparse_decode(std::span<const std::byte> in, std::span<std::byte> last) noexcept {
  std::uint32_t changed = 0;
  if (in.size() < kSparseHeader) return false;
  std::memcpy(&changed, in.data() + 1, sizeof(changed));
  const auto body = in.subspan(kSparseHeader);
  if (changed > body.size() / sizeof(Word)) return false;
  const auto gaps = body.subspan(changed * sizeof(Word));
  std::size_t reach = 0;
  std::size_t elements = 0;
  for (const std::byte gap : gaps) {
    const bool is_long = std::to_integer<std::size_t>(gap) == kLongGap;
    reach += std::to_integer<std::size_t>(gap) + (is_long ? 0 : 1);
    elements += is_long ? 0 : 1;
  }
  if (elements != changed || reach > last.size() / sizeof(Word)) return false;
  apply<Word>(body, gaps, last);
  return true;
}

}  // namespace

std::size_t xor_encode(const Stream& stream, std::span<const std::byte> in,
                       std::span<std::byte> out, const Work& work) noexcept {
  const auto& [dtype, last] = stream;
  if (!fits(stream, in.size(), work)) return 0;
  const std::size_t bytes = in.size();
  const std::size_t sparse = dtype == DType::f32
                                 ? sparse_encode<std::uint32_t>(in, last, out, work.bytes)
                                 : sparse_encode<std::uint16_t>(in, last, out, work.bytes);
  if (sparse != 0 || out.empty()) return sparse;
  const std::span<std::byte> differences = work.bytes.first(bytes);
  active_kernels().exclusive_or(raw(in), raw(last), bytes, raw(differences));
  const std::size_t dense =
      split_encode(dtype, differences, out.subspan(1), {work.bytes.subspan(bytes), work.entropy});
  if (dense == 0) return 0;
  out[0] = kDense;
  active_kernels().exclusive_or(raw(differences), raw(last), bytes, raw(last));
  return 1 + dense;
}

bool xor_decode(const Stream& stream, std::span<const std::byte> in, std::span<std::byte> out,
                const Work& work) noexcept {
  const auto& [dtype, last] = stream;
  if (!fits(stream, out.size(), work) || in.empty()) return false;
  const std::size_t bytes = out.size();
  if (in[0] == kSparse) {
    const bool good = dtype == DType::f32 ? sparse_decode<std::uint32_t>(in, last)
                                          : sparse_decode<std::uint16_t>(in, last);
    if (!good) return false;
  } else {
    const std::span<std::byte> differences = work.bytes.first(bytes);
    const Work rest{work.bytes.subspan(bytes), work.entropy};
    if (in[0] != kDense) return false;
    if (!split_decode(dtype, in.subspan(1), differences, rest)) {
      return false;
    }
    active_kernels().exclusive_or(raw(differences), raw(last), bytes, raw(last));
  }
  if (bytes != 0) std::memcpy(out.data(), last.data(), bytes);
  return true;
}

}  // namespace tern::codec::lossless
