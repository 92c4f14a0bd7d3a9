#include "codec/entropy/code_lengths.h"

#include <algorithm>
#include <cstddef>

// Huffman's method (1952) with two queues gives the lengths of the best code. When one is above the
// limit, package-merge (Larmore and Hirschberg, "A fast algorithm for optimal length-limited
// Huffman codes", 1990) gives those of the best code within it. The first is several times cheaper.
namespace tern::codec::entropy {
namespace {

constexpr unsigned kMostLevels = 20;

// The symbols that occur, rarest first.
struct Leaves {
  std::array<std::uint64_t, kSymbols> weight;
  std::array<std::uint8_t, kSymbols> symbol;
  std::size_t count = 0;
};

void sort_leaves(const Histogram& counts, Leaves& leaves) noexcept {
  std::array<std::uint64_t, kSymbols> keys;
  for (std::size_t symbol = 0; symbol < kSymbols; ++symbol) {
    if (counts[symbol] != 0) keys[leaves.count++] = counts[symbol] << 8 | symbol;
  }
  std::sort(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(leaves.count));
  for (std::size_t i = 0; i < leaves.count; ++i) {
    leaves.weight[i] = keys[i] >> 8;
    leaves.symbol[i] = static_cast<std::uint8_t>(keys[i] & 0xff);
  }
}

// depth[i] is the length of leaf i. Returns the greatest.
unsigned huffman_depths(const Leaves& leaves, std::array<std::uint8_t, kSymbols>& depth) noexcept {
  const std::size_t count = leaves.count;
  std::array<std::uint64_t, kSymbols> merged;  // weights of inner nodes, which come out ascending
  std::array<std::uint16_t, 2 * kSymbols> parent;  // leaves first, then inner nodes
  std::size_t leaf = 0;
  std::size_t inner = 0;
  for (std::size_t made = 0; made + 1 < count; ++made) {
    std::uint64_t weight = 0;
    for (int child = 0; child < 2; ++child) {
      const bool take_leaf =
          leaf < count && (inner >= made || leaves.weight[leaf] <= merged[inner]);
      weight += take_leaf ? leaves.weight[leaf] : merged[inner];
      parent[take_leaf ? leaf++ : count + inner++] = static_cast<std::uint16_t>(count + made);
    }
    merged[made] = weight;
  }
  std::array<std::uint8_t, 2 * kSymbols> depths;
  depths[2 * count - 2] = 0;
  unsigned deepest = 0;
  for (std::size_t node = 2 * count - 2; node-- > 0;) {
    depths[node] = static_cast<std::uint8_t>(depths[parent[node]] + 1);
    if (node < count) deepest = std::max<unsigned>(deepest, depths[node]);
  }
  std::copy_n(depths.begin(), count, depth.begin());
  return deepest;
}

void package_merge(const Leaves& leaves, unsigned limit,
                   std::array<std::uint8_t, kSymbols>& depth) noexcept {
  const std::size_t count = leaves.count;
  std::array<std::array<bool, 2 * kSymbols>, kMostLevels> is_leaf;
  std::array<std::uint64_t, 2 * kSymbols> list = {};
  std::array<std::uint64_t, 2 * kSymbols> next = {};
  std::copy_n(leaves.weight.begin(), count, list.begin());
  std::fill_n(is_leaf[0].begin(), count, true);
  std::size_t size = count;
  for (unsigned level = 1; level < limit; ++level) {
    const std::size_t packages = size / 2;
    std::size_t leaf = 0;
    std::size_t package = 0;
    size = count + packages;
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint64_t pair =
          package < packages ? list[2 * package] + list[2 * package + 1] : ~std::uint64_t{0};
      const bool take_leaf = leaf < count && leaves.weight[leaf] <= pair;
      is_leaf[level][i] = take_leaf;
      next[i] = take_leaf ? leaves.weight[leaf] : pair;
      leaf += take_leaf ? 1 : 0;
      package += take_leaf ? 0 : 1;
    }
    std::swap(list, next);
  }
  // Every leaf that is taken, on any level, makes its symbol's code one bit longer.
  std::fill_n(depth.begin(), count, std::uint8_t{0});
  std::size_t taken = 2 * count - 2;
  for (unsigned level = limit; level-- > 0;) {
    const auto begin = is_leaf[level].begin();
    const auto own = static_cast<std::size_t>(
        std::count(begin, begin + static_cast<std::ptrdiff_t>(taken), true));
    for (std::size_t i = 0; i < own; ++i) ++depth[i];
    taken = 2 * (taken - own);
  }
}

}  // namespace

CodeLengths code_lengths(const Histogram& counts, unsigned limit) noexcept {
  CodeLengths lengths{};
  Leaves leaves;
  sort_leaves(counts, leaves);
  if (leaves.count == 0) return lengths;
  std::array<std::uint8_t, kSymbols> depth;
  depth[0] = 1;
  if (leaves.count > 1 && huffman_depths(leaves, depth) > limit) {
    package_merge(leaves, limit, depth);
  }
  for (std::size_t i = 0; i < leaves.count; ++i) lengths[leaves.symbol[i]] = depth[i];
  return lengths;
}

std::uint32_t kraft_sum(const CodeLengths& lengths) noexcept {
  std::uint32_t sum = 0;
  for (const std::uint8_t length : lengths) {
    if (length > kMaxCodeBits) return ~0u;
    if (length != 0) sum += kKraftOne >> length;
  }
  return sum;
}

Codes canonical_codes(const CodeLengths& lengths) noexcept {
  std::array<std::uint32_t, kMaxCodeBits + 2> next{};
  for (const std::uint8_t length : lengths) {
    if (length != 0) ++next[length + 1u];
  }
  // next[l] holds the count of length l - 1 and becomes the first code of length l.
  std::uint32_t code = 0;
  for (unsigned length = 1; length <= kMaxCodeBits; ++length) {
    code = (code + next[length]) << 1;
    next[length] = code;
  }
  Codes codes{};
  for (std::size_t symbol = 0; symbol < kSymbols; ++symbol) {
    if (lengths[symbol] != 0) codes[symbol] = static_cast<std::uint16_t>(next[lengths[symbol]]++);
  }
  return codes;
}

}  // namespace tern::codec::entropy
