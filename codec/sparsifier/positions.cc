#include "codec/sparsifier/positions.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tern::codec::sparsifier {
namespace {

constexpr std::size_t kHeaderBytes = 5;
constexpr std::uint8_t kBitmap = 0;
constexpr std::uint8_t kEliasFano = 1;

struct EliasFano {
  std::size_t count = 0;
  std::size_t elements = 0;
  std::uint32_t low_bits = 0;  // of each position
  std::size_t low_bytes = 0;
  std::size_t high_bits = 0;  // of all positions
  std::size_t bytes = 0;
};

// Requires: 0 < count <= elements.
EliasFano elias_fano(std::size_t count, std::size_t elements) noexcept {
  EliasFano form;
  form.count = count;
  form.elements = elements;
  form.low_bits = static_cast<std::uint32_t>(std::bit_width(elements / count)) - 1;
  form.low_bytes = (count * form.low_bits + 7) / 8;
  form.high_bits = count + ((elements - 1) >> form.low_bits);
  form.bytes = form.low_bytes + (form.high_bits + 7) / 8;
  return form;
}

std::size_t bitmap_bytes(std::size_t elements) noexcept { return (elements + 7) / 8; }

void set_bit(std::byte* bits, std::size_t i) noexcept {
  bits[i / 8] |= std::byte{1} << static_cast<int>(i % 8);
}

// Up to eight bytes as a number, zero beyond the end.
std::uint64_t load_word(const std::byte* bytes, std::size_t count) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, std::min<std::size_t>(count, 8));
  return word;
}

void write_low_bits(std::span<const std::uint32_t> positions, std::uint32_t low_bits,
                    std::byte* out) noexcept {
  const std::uint32_t mask = (1u << low_bits) - 1;
  std::uint64_t pending = 0;
  std::uint32_t pending_bits = 0;
  for (const std::uint32_t position : positions) {
    pending |= static_cast<std::uint64_t>(position & mask) << pending_bits;
    pending_bits += low_bits;
    for (; pending_bits >= 8; pending_bits -= 8, pending >>= 8) {
      *out++ = static_cast<std::byte>(pending);
    }
  }
  if (pending_bits != 0) *out = static_cast<std::byte>(pending);
}

// Calls `found(i)` for every bit i of `bits`, ascending; there are at least `count` bytes. Stops
// and returns false as soon as `found` does.
template <typename Found>
bool for_each_bit(const std::byte* bytes, std::size_t count, const Found& found) noexcept {
  for (std::size_t at = 0; at < count; at += 8) {
    for (std::uint64_t word = load_word(bytes + at, count - at); word != 0; word &= word - 1) {
      if (!found(8 * at + static_cast<std::size_t>(std::countr_zero(word)))) return false;
    }
  }
  return true;
}

bool read_bitmap(const std::byte* bytes, std::size_t count, std::size_t elements,
                 std::uint32_t* positions) noexcept {
  std::size_t made = 0;
  const bool fits = for_each_bit(bytes, bitmap_bytes(elements), [&](std::size_t bit) noexcept {
    if (made == count || bit >= elements) return false;
    positions[made++] = static_cast<std::uint32_t>(bit);
    return true;
  });
  return fits && made == count;
}

bool read_elias_fano(const std::byte* bytes, const EliasFano& form,
                     std::uint32_t* positions) noexcept {
  const std::uint64_t mask = (std::uint64_t{1} << form.low_bits) - 1;
  std::size_t made = 0;
  std::size_t low_bit = 0;
  std::size_t next = 0;  // the least that the next position may be
  const auto found = [&](std::size_t bit) noexcept {
    if (made == form.count) return false;
    // A position has 20 bits at most, so that eight bytes from its first byte hold all of them.
    const std::size_t byte = low_bit / 8;
    const std::uint64_t low = load_word(bytes + byte, form.low_bytes - byte) >> (low_bit % 8);
    const std::size_t position = ((bit - made) << form.low_bits) | (low & mask);
    if (position < next || position >= form.elements) return false;
    positions[made++] = static_cast<std::uint32_t>(position);
    next = position + 1;
    low_bit += form.low_bits;
    return true;
  };
  return for_each_bit(bytes + form.low_bytes, form.bytes - form.low_bytes, found) &&
         made == form.count;
}

}  // namespace

std::size_t position_bytes(std::size_t count, std::size_t elements) noexcept {
  if (count == 0) return kHeaderBytes;
  return kHeaderBytes + std::min(bitmap_bytes(elements), elias_fano(count, elements).bytes);
}

std::size_t position_bytes_bound(std::size_t count, std::size_t elements) noexcept {
  // The length grows with the count, but for the rounding of l and of the two parts.
  constexpr std::size_t kRounding = 3;
  if (count == 0) return kHeaderBytes;
  return kHeaderBytes +
         std::min(bitmap_bytes(elements), elias_fano(count, elements).bytes + kRounding);
}

std::size_t write_positions(std::span<const std::uint32_t> positions, std::size_t elements,
                            std::byte* out) noexcept {
  const auto count = static_cast<std::uint32_t>(positions.size());
  std::memcpy(out, &count, sizeof(count));
  const std::size_t bytes = position_bytes(count, elements);
  out[4] = std::byte{kBitmap};
  if (count == 0) return bytes;
  const EliasFano form = elias_fano(count, elements);
  std::byte* const body = out + kHeaderBytes;
  std::memset(body, 0, bytes - kHeaderBytes);
  if (bitmap_bytes(elements) <= form.bytes) {
    for (const std::uint32_t position : positions) set_bit(body, position);
    return bytes;
  }
  out[4] = std::byte{kEliasFano};
  write_low_bits(positions, form.low_bits, body);
  for (std::size_t i = 0; i < count; ++i) {
    set_bit(body + form.low_bytes, (positions[i] >> form.low_bits) + i);
  }
  return bytes;
}

bool read_positions(std::span<const std::byte> payload, std::size_t elements,
                    std::uint32_t* positions, PositionsRead& read) noexcept {
  if (payload.size() < kHeaderBytes) return false;
  std::uint32_t count = 0;
  std::memcpy(&count, payload.data(), sizeof(count));
  const auto form_byte = std::to_integer<std::uint8_t>(payload[4]);
  if (count > elements || (count == 0) != (elements == 0)) return false;
  read = {count, kHeaderBytes};
  if (count == 0) return form_byte == kBitmap;
  const EliasFano form = elias_fano(count, elements);
  // One form for one set of positions, so that a block has one encoding.
  const bool bitmap = bitmap_bytes(elements) <= form.bytes;
  if (form_byte != (bitmap ? kBitmap : kEliasFano)) return false;
  read.bytes = position_bytes(count, elements);
  if (payload.size() < read.bytes) return false;
  const std::byte* const body = payload.data() + kHeaderBytes;
  return bitmap ? read_bitmap(body, count, elements, positions)
                : read_elias_fano(body, form, positions);
}

}  // namespace tern::codec::sparsifier
