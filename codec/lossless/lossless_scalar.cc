// The reference.
#include <cstring>

#include "codec/lossless/lossless_kernels.h"

namespace tern::codec::lossless {
namespace {

template <typename Word>
void split(const std::uint8_t* in, std::size_t count, std::uint8_t* low,
           std::uint8_t* high) noexcept {
  constexpr unsigned kBits = 8 * sizeof(Word);
  for (std::size_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, in + i * sizeof(word), sizeof(word));
    word = static_cast<Word>(word << 1 | word >> (kBits - 1));
    std::memcpy(low + i * (sizeof(word) - 1), &word, sizeof(word) - 1);
    high[i] = static_cast<std::uint8_t>(word >> (kBits - 8));
  }
}

template <typename Word>
void join(const std::uint8_t* low, const std::uint8_t* high, std::size_t count,
          std::uint8_t* out) noexcept {
  constexpr unsigned kBits = 8 * sizeof(Word);
  for (std::size_t i = 0; i < count; ++i) {
    Word word = 0;
    std::memcpy(&word, low + i * (sizeof(word) - 1), sizeof(word) - 1);
    word = static_cast<Word>(word | static_cast<Word>(high[i]) << (kBits - 8));
    word = static_cast<Word>(word >> 1 | word << (kBits - 1));
    std::memcpy(out + i * sizeof(word), &word, sizeof(word));
  }
}

void exclusive_or(const std::uint8_t* a, const std::uint8_t* b, std::size_t bytes,
                  std::uint8_t* out) noexcept {
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::uint8_t>(a[i] ^ b[i]);
}

template <typename Word>
void changes(const std::uint8_t* a, const std::uint8_t* b, std::size_t words,
             std::uint64_t* masks) noexcept {
  for (std::size_t word = 0; word < words; ++word) {
    std::uint64_t mask = 0;
    for (std::size_t bit = 0; bit < 64; ++bit) {
      const std::size_t at = (64 * word + bit) * sizeof(Word);
      mask |= std::uint64_t{std::memcmp(a + at, b + at, sizeof(Word)) != 0} << bit;
    }
    masks[word] = mask;
  }
}

}  // namespace

const LosslessKernels kScalarLossless = {
    split<std::uint16_t>, split<std::uint32_t>,   join<std::uint16_t>,   join<std::uint32_t>,
    exclusive_or,         changes<std::uint16_t>, changes<std::uint32_t>};

}  // namespace tern::codec::lossless
