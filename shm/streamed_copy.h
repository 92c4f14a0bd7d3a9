#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tern::shm {

// From so many bytes on the parts of a copy go past the caches, which all of it would only empty: a
// line that is written whole need not be read before. Copies of less are read from the caches soon.
inline constexpr std::uint64_t kStreamedBytes = 2 << 20;

// As memcpy, of a part of a copy of `whole` bytes. The part is there for every thread that hears of
// it by a release and an acquire, as after memcpy. On processors without SSE2 it is memcpy.
inline void copy_part(std::byte* to, const std::byte* from, std::size_t bytes,
                      std::uint64_t whole) noexcept {
#if defined(__SSE2__)
  constexpr std::size_t kLine = 64;
  if (whole >= kStreamedBytes && bytes >= 2 * kLine) {
    const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
    std::memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
      __m128i line[kLine / sizeof(__m128i)];
      std::memcpy(line, from, kLine);
      for (std::size_t i = 0; i < kLine / sizeof(__m128i); ++i) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, line[i]);
      }
    }
    // Such stores keep no order with those after them, of which one tells others of the part.
    _mm_sfence();
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace tern::shm
