// Random sparsification without indices. The m units of a chunk (elements, or blocks of them) are
// cut into k strata of equal length, give or take one, and one unit of each is drawn by a function
// of a key, which is all that travels. Every unit has the probability 1 / L of its stratum, as with
// k units drawn freely, but exactly k are kept, they come out ascending, and nothing is sorted or
// looked up: the cost is that of what is kept.
//
// The strata are independent of each other, so scaling by L gives an unbiased estimate whose
// variance is the sum of (L - 1) x^2: at most that of a free draw with ceil(m / k) for m / k.

#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "codec/sparsifier/implementation.h"

namespace tern::codec::sparsifier {
namespace {

struct Section {
  std::uint64_t key = 0;
  std::uint32_t count = 0;
  std::uint32_t block = 0;
};
constexpr std::size_t kSectionBytes = 16;
static_assert(sizeof(Section) == kSectionBytes);

std::size_t block_of(const Params& params) noexcept {
  return params.kind == Kind::blocksparse ? std::max(params.block, 1u) : 1;
}

std::size_t unit_count(std::size_t elements, std::size_t block) noexcept {
  return elements == 0 ? 0 : (elements - 1) / block + 1;
}

// Walks the strata: number j is [floor(j m / k), floor((j + 1) m / k)), without a division for
// each.
class Strata {
 public:
  // Requires: 0 < count <= units.
  Strata(std::size_t units, std::size_t count, std::uint64_t key) noexcept
      : count_(count), length_(units / count), remainder_(units % count), key_(key) {}

  struct Drawn {
    std::size_t unit;
    std::size_t length;  // of the stratum
  };
  Drawn next() noexcept {
    carry_ += remainder_;
    const std::size_t longer = carry_ >= count_ ? 1 : 0;
    carry_ -= longer * count_;
    const std::size_t length = length_ + longer;
    const std::uint64_t random = random_u32(key_, index_++);
    const std::size_t unit = begin_ + ((random * length) >> 32);
    begin_ += length;
    return {unit, length};
  }

 private:
  std::size_t count_;
  std::size_t length_;
  std::size_t remainder_;
  std::uint64_t key_;
  std::size_t begin_ = 0;
  std::size_t carry_ = 0;
  std::uint32_t index_ = 0;
};

std::size_t section_limit(const Params&, std::size_t) noexcept { return kSectionBytes; }

std::size_t kept_limit(const Params& params, std::size_t elements) noexcept {
  const std::size_t block = block_of(params);
  return std::min(elements, count_of(params, unit_count(elements, block)) * block);
}

Selection select_drawn(const Request& request) noexcept {
  const std::size_t elements = request.values.size();
  const std::size_t block = block_of(request.params);
  const std::size_t units = unit_count(elements, block);
  const std::size_t count = count_of(request.params, units);
  const Section section = {request.key, static_cast<std::uint32_t>(count),
                           static_cast<std::uint32_t>(block)};
  std::memcpy(request.section, &section, kSectionBytes);
  if (count == 0) return {0, kSectionBytes};
  Strata strata(units, count, request.key);
  const float* const values = request.values.data();
  std::size_t kept = 0;
  for (std::size_t j = 0; j < count; ++j) {
    const Strata::Drawn drawn = strata.next();
    const float factor =
        request.unbiased ? static_cast<float>(static_cast<std::int32_t>(drawn.length)) : 1.0f;
    const std::size_t begin = drawn.unit * block;
    const std::size_t length = std::min(block, elements - begin);
    for (std::size_t i = 0; i < length; ++i) {
      request.kept[kept + i] = values[begin + i] * factor;
    }
    kept += length;
  }
  return {kept, kSectionBytes};
}

bool read_drawn(const SectionView& view, std::uint32_t* positions, Selection& selection) noexcept {
  const auto& [kind, payload, elements] = view;
  if (payload.size() < kSectionBytes) return false;
  Section section;
  std::memcpy(&section, payload.data(), kSectionBytes);
  if (section.block == 0 || (kind == Kind::randk && section.block != 1)) return false;
  const std::size_t units = unit_count(elements, section.block);
  if (section.count > units || (section.count == 0) != (units == 0)) return false;
  selection = {0, kSectionBytes};
  if (units == 0) return true;
  Strata strata(units, section.count, section.key);
  std::size_t kept = 0;
  for (std::size_t j = 0; j < section.count; ++j) {
    const std::size_t begin = strata.next().unit * section.block;
    const std::size_t length = std::min<std::size_t>(section.block, elements - begin);
    for (std::size_t i = 0; i < length; ++i) {
      positions[kept + i] = static_cast<std::uint32_t>(begin + i);
    }
    kept += length;
  }
  selection.kept = kept;
  return true;
}

// The longest stratum, of ceil(units / count), decides.
double variance(const Params& params, std::size_t elements) noexcept {
  const std::size_t units = unit_count(elements, block_of(params));
  if (units == 0) return 0.0;
  const std::size_t count = count_of(params, units);
  const std::size_t others = (units - 1) / count;
  return static_cast<double>(others);
}

}  // namespace

const Implementation kStrata = {section_limit, kept_limit, select_drawn, read_drawn, variance};

}  // namespace tern::codec::sparsifier
