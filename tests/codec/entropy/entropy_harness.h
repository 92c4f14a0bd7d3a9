#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "../codec_harness.h"
#include "codec/entropy/codebook.h"
#include "codec/entropy/entropy.h"

namespace tern::codec::entropy {

using ByteVector = std::vector<std::byte>;

inline ByteVector bytes_of(std::initializer_list<int> values) {
  ByteVector bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

inline const char* const kDistributions[] = {"constant",  "two",    "gaussian", "uniform",
                                             "fibonacci", "sparse", "rare",     "blocks"};

inline ByteVector draw(std::string_view distribution, std::size_t count, std::uint64_t seed = 1) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(0, 1);
  const auto below = [&](std::uint64_t limit) { return engine() % limit; };
  ByteVector bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t value = 0;
    if (distribution == "constant") value = 77;
    if (distribution == "two") value = below(10) == 0 ? 255 : 3;
    if (distribution == "gaussian") {
      value = static_cast<std::uint64_t>(std::clamp(std::lround(8 + 2 * normal(engine)), 0l, 15l));
    }
    if (distribution == "uniform") value = below(256);
    // Each symbol is about 1.6 times as likely as the next: code lengths 1, 2, 3 and so on.
    if (distribution == "fibonacci") {
      while (value < 30 && below(1000) < 618) ++value;
    }
    if (distribution == "sparse") value = below(20) == 0 ? below(243) : 121;
    // One occurrence of most symbols, which no sample sees.
    if (distribution == "rare") value = below(count + 1) < 200 ? below(256) : below(4);
    if (distribution == "blocks") value = (i / 1000) % 3 == 0 ? below(16) : 9;
    bytes[i] = static_cast<std::byte>(value);
  }
  return bytes;
}

// Bytes between guards, `shift` further on than they would be if they were aligned.
struct Room {
  Room(std::size_t count, std::size_t by = 0) : bytes(count), shift(by) {}
  std::size_t bytes;
  std::size_t shift;
};

// Encodes between guards into a room.
inline ByteVector encoded(const Params& params, const ByteVector& in, const Room& to,
                          Scratch& scratch) {
  const auto [room, shift] = to;
  Guarded<std::byte> from(in.size(), shift);
  std::copy(in.begin(), in.end(), from.data());
  Guarded<std::byte> out(room, shift, std::byte{0xa5});
  const std::size_t bytes = encode(params, from.span(), out.span(), scratch);
  EXPECT_TRUE(out.intact());
  EXPECT_LE(bytes, room);
  return {out.data(), out.data() + std::min(bytes, room)};
}

inline ByteVector encoded(const Params& params, const ByteVector& in, Scratch& scratch,
                          std::size_t shift = 0) {
  return encoded(params, in, {in.empty() ? 0 : in.size() - 1, shift}, scratch);
}

struct Decoded {
  Status status;
  ByteVector bytes;
};

// From exactly the coded bytes (a read past them is seen by AddressSanitizer), between guards.
inline Decoded decoded(Kind kind, const ByteVector& in, const Room& room, Scratch& scratch) {
  const auto [count, shift] = room;
  Guarded<std::byte> out(count, shift, std::byte{0x5a});
  const Status status = decode(kind, in, out.span(), scratch);
  EXPECT_TRUE(out.intact());
  return {status, {out.data(), out.data() + count}};
}

inline Params static_params(std::string_view book) {
  Params params{Kind::huffman_static, {}};
  std::copy(book.begin(), book.end(), params.book.begin());
  return params;
}

// A book for each distribution, named like it.
inline void install_test_books() {
  std::vector<Codebook> books;
  for (const char* name : kDistributions) {
    std::array<std::uint64_t, 256> histogram{};
    for (const std::byte byte : draw(name, 20000, 99))
      ++histogram[std::to_integer<std::size_t>(byte)];
    books.push_back(train_codebook(name, histogram));
  }
  ASSERT_TRUE(install_codebooks(std::move(books)).has_value());
}

inline const Kind kKinds[] = {Kind::huffman, Kind::huffman_static, Kind::zrun,
                              Kind::gzip,    Kind::zstd,           Kind::lz4};

}  // namespace tern::codec::entropy
