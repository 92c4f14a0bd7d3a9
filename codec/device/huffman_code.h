#pragma once

#include <cstdint>

#include "codec/device/simt.h"

// The prefix code of a histogram of bytes, with the lengths of codec/entropy/code_lengths.cc: by
// Huffman's method, and by package-merge where that has a code beyond 11 bits. Symbols are sorted
// by all threads; the rest, some thousand steps, is the work of one.
namespace tern::codec::device {

inline constexpr std::uint32_t kByteValues = 256;
inline constexpr std::uint32_t kMostCodeBits = 11;

class HuffmanCode {
 public:
  // `counts` of the 256 symbols, written before the last barrier.
  TERN_DEVICE HuffmanCode(const simt::Shared<std::uint32_t>& counts, simt::Arena& arena)
      : counts_(counts),
        weights_(arena.take<std::uint32_t>(kByteValues)),
        symbols_(arena.take<std::uint8_t>(kByteValues)),
        depths_(arena.take<std::uint8_t>(std::size_t{2} * kByteValues)),
        parents_(arena.take<std::uint16_t>(std::size_t{2} * kByteValues)),
        list_(arena.take<std::uint32_t>(std::size_t{2} * kByteValues)),
        next_(arena.take<std::uint32_t>(std::size_t{2} * kByteValues)),
        is_leaf_(arena.take<std::uint8_t>(std::size_t{2} * kByteValues * kMostCodeBits)),
        lengths_(arena.take<std::uint8_t>(kByteValues)),
        codes_(arena.take<std::uint16_t>(kByteValues)) {}

  // The first thread can read lengths and codes then, all others after the next barrier. Returns how
  // many symbols occur.
  TERN_DEVICE std::uint32_t build() const {
    const std::uint32_t symbols = sort();
    simt::barrier();
    if (simt::thread() == 0) {
      if (symbols == 1) depths_.store(0, 1);
      if (symbols > 1 && huffman_depths(symbols) > kMostCodeBits) package_merge(symbols);
      for (std::uint32_t i = 0; i < symbols; ++i) lengths_.store(symbols_.load(i), depths_.load(i));
      make_codes();
    }
    return symbols;
  }

  TERN_DEVICE std::uint32_t length(std::uint32_t symbol) const { return lengths_.load(symbol); }
  TERN_DEVICE std::uint32_t code(std::uint32_t symbol) const { return codes_.load(symbol); }
  TERN_DEVICE std::uint32_t count(std::uint32_t symbol) const { return counts_.load(symbol); }

 private:
  // The symbols that occur, rarest first, of equal ones the smaller first: a thread finds the place
  // of its symbol.
  TERN_DEVICE std::uint32_t sort() const {
    std::uint32_t symbols = 0;
    const std::uint32_t own = simt::thread();
    std::uint32_t own_count = 0;
    if (own < kByteValues) own_count = counts_.load(own);
    std::uint32_t place = 0;
    for (std::uint32_t other = 0; other < kByteValues; ++other) {
      const std::uint32_t count = counts_.load(other);
      if (count == 0) continue;
      ++symbols;
      place += count < own_count || (count == own_count && other < own) ? 1 : 0;
    }
    if (own < kByteValues) lengths_.store(own, 0);
    if (own_count != 0) {
      weights_.store(place, own_count);
      symbols_.store(place, static_cast<std::uint8_t>(own));
    }
    return symbols;
  }

  // The deepest leaf. Two queues: leaves, and inner nodes, which come out ascending.
  TERN_DEVICE std::uint32_t huffman_depths(std::uint32_t count) const {
    std::uint32_t leaf = 0;
    std::uint32_t inner = 0;
    for (std::uint32_t made = 0; made + 1 < count; ++made) {
      std::uint32_t weight = 0;
      for (int child = 0; child < 2; ++child) {
        const bool take_leaf =
            leaf < count && (inner >= made || weights_.load(leaf) <= list_.load(inner));
        weight += take_leaf ? weights_.load(leaf) : list_.load(inner);
        parents_.store(take_leaf ? leaf : count + inner, static_cast<std::uint16_t>(count + made));
        leaf += take_leaf ? 1 : 0;
        inner += take_leaf ? 0 : 1;
      }
      list_.store(made, weight);
    }
    depths_.store(2 * count - 2, 0);
    std::uint32_t deepest = 0;
    for (std::uint32_t node = 2 * count - 2; node-- > 0;) {
      const std::uint32_t depth = depths_.load(parents_.load(node)) + 1u;
      depths_.store(node, static_cast<std::uint8_t>(depth));
      if (node < count && deepest < depth) deepest = depth;
    }
    return deepest;
  }

  TERN_DEVICE void package_merge(std::uint32_t count) const {
    simt::Shared<std::uint32_t> list = list_;
    simt::Shared<std::uint32_t> next = next_;
    for (std::uint32_t i = 0; i < count; ++i) {
      list.store(i, weights_.load(i));
      is_leaf_.store(i, 1);
    }
    std::uint32_t size = count;
    for (std::uint32_t level = 1; level < kMostCodeBits; ++level) {
      size = merge_level(list, next, {level, count, size / 2});
      const simt::Shared<std::uint32_t> other = list;
      list = next;
      next = other;
    }
    take_leaves(count);
  }

  // The leaves and the packages of the level below, ascending; of equal ones leaves first.
  struct Level {
    std::uint32_t number;
    std::uint32_t leaves;
    std::uint32_t packages;
  };
  TERN_DEVICE std::uint32_t merge_level(const simt::Shared<std::uint32_t>& list,
                                        const simt::Shared<std::uint32_t>& next,
                                        const Level& level) const {
    std::uint32_t leaf = 0;
    std::uint32_t package = 0;
    const std::uint32_t size = level.leaves + level.packages;
    for (std::uint32_t i = 0; i < size; ++i) {
      std::uint32_t pair = 0xffffffffu;
      if (package < level.packages) {
        pair = list.load(std::size_t{2} * package);
        pair += list.load(2 * package + 1);
      }
      const bool take_leaf = leaf < level.leaves && weights_.load(leaf) <= pair;
      is_leaf_.store(std::size_t{2} * kByteValues * level.number + i, take_leaf ? 1 : 0);
      next.store(i, take_leaf ? weights_.load(leaf) : pair);
      leaf += take_leaf ? 1 : 0;
      package += take_leaf ? 0 : 1;
    }
    return size;
  }

  // Every leaf that is taken, on any level, makes its symbol's code one bit longer.
  TERN_DEVICE void take_leaves(std::uint32_t count) const {
    for (std::uint32_t i = 0; i < count; ++i) depths_.store(i, 0);
    std::uint32_t taken = 2 * count - 2;
    for (std::uint32_t level = kMostCodeBits; level-- > 0;) {
      std::uint32_t own = 0;
      for (std::uint32_t i = 0; i < taken; ++i) {
        own += is_leaf_.load(std::size_t{2} * kByteValues * level + i);
      }
      for (std::uint32_t i = 0; i < own; ++i) {
        depths_.store(i, static_cast<std::uint8_t>(depths_.load(i) + 1));
      }
      taken = 2 * (taken - own);
    }
  }

  // Canonical: they count up over the symbols ordered by length, then by value.
  TERN_DEVICE void make_codes() const {
    std::uint32_t code = 0;
    for (std::uint32_t length = 1; length <= kMostCodeBits; ++length) {
      for (std::uint32_t symbol = 0; symbol < kByteValues; ++symbol) {
        if (lengths_.load(symbol) != length) continue;
        codes_.store(symbol, static_cast<std::uint16_t>(code));
        ++code;
      }
      code *= 2;
    }
  }

  simt::Shared<std::uint32_t> counts_;
  simt::Shared<std::uint32_t> weights_;
  simt::Shared<std::uint8_t> symbols_;
  simt::Shared<std::uint8_t> depths_;
  simt::Shared<std::uint16_t> parents_;
  simt::Shared<std::uint32_t> list_;
  simt::Shared<std::uint32_t> next_;
  simt::Shared<std::uint8_t> is_leaf_;
  simt::Shared<std::uint8_t> lengths_;
  simt::Shared<std::uint16_t> codes_;
};

}  // namespace tern::codec::device
