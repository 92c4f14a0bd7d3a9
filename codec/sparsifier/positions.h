#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// The section of topk: which elements were kept, in the shorter of two forms. Private to
// codec/sparsifier/.
//
//   u32 count, u8 form, then
//   form 0: one bit per element, least significant first;
//   form 1: Elias-Fano. With l = floor(log2(elements / count)): the low l bits of every position,
//   packed; then a string of count + ((elements - 1) >> l) bits, in which bit (position >> l) + i
//   stands for position number i. Both parts are whole bytes.
//
// Elias-Fano costs l + 1 + elements / (count 2^l) bits per position: 8.6 at one in a hundred, where
// byte-aligned gaps cost 10.2 and gaps packed in the bits of the largest cost about 10, and more
// wherever the kept elements come in clusters. Its length is a function of the two counts alone, so
// a reader knows it before it reads, and clusters and hostile bytes change nothing about it.
namespace tern::codec::sparsifier {

std::size_t position_bytes(std::size_t count, std::size_t elements) noexcept;

// Upper limit of position_bytes for any count up to this.
std::size_t position_bytes_bound(std::size_t count, std::size_t elements) noexcept;

// Requires: `positions` ascending and below `elements`; not empty unless elements is 0. Returns
// position_bytes().
std::size_t write_positions(std::span<const std::uint32_t> positions, std::size_t elements,
                            std::byte* out) noexcept;

struct PositionsRead {
  std::size_t count = 0;
  std::size_t bytes = 0;
};
// `positions` has room for `elements`. False: foreign bytes that write_positions cannot have made;
// what was written to `positions` means nothing.
bool read_positions(std::span<const std::byte> payload, std::size_t elements,
                    std::uint32_t* positions, PositionsRead& read) noexcept;

}  // namespace tern::codec::sparsifier
