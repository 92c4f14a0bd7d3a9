// The two Huffman stages: what is in a block besides the four streams.
#include <algorithm>
#include <cstring>

#include "codec/entropy/entropy_kernels.h"
#include "codec/entropy/stages.h"

namespace tern::codec::entropy {
namespace {

// First byte of a block of the dynamic stage: how the code lengths follow. Every other value is the
// count of symbols in a list.
constexpr std::uint8_t kDenseLengths = 0;  // 256 halves of a byte
constexpr std::uint8_t kOneSymbol = 1;     // no lengths and no streams, just the symbol
constexpr std::size_t kDenseBytes = kSymbols / 2;
constexpr std::size_t kMostListed = 84;  // a longer list is no shorter than all lengths
constexpr std::size_t kSizesBytes = (kStreams - 1) * sizeof(std::uint32_t);
// So that the sizes of streams fit.
constexpr std::size_t kMostSymbols = std::size_t{1} << 30;

constexpr std::size_t list_bytes(std::size_t symbols) noexcept {
  return symbols + (symbols + 1) / 2;
}
static_assert(list_bytes(kMostListed) < kDenseBytes);
static_assert(list_bytes(kMostListed + 1) >= kDenseBytes);

// Segment k of `size` symbols begins here; the first three are equally long.
std::size_t segment_begin(std::size_t size, std::size_t k) noexcept {
  return std::min(size, k * ((size + kStreams - 1) / kStreams));
}

// Sizes and streams.
std::size_t encode_streams(Bytes in, const EncodeTable& table, MutableBytes out) noexcept {
  if (out.size() < kSizesBytes || in.size() > kMostSymbols) return 0;
  const EntropyKernels& kernels = entropy_kernels();
  std::uint8_t* const end = out.data() + out.size();
  std::uint8_t* to = out.data() + kSizesBytes;
  for (std::size_t k = 0; k < kStreams; ++k) {
    const std::size_t begin = segment_begin(in.size(), k);
    std::uint8_t* const stream = to;
    to = kernels.encode_stream(in.subspan(begin, segment_begin(in.size(), k + 1) - begin), table,
                               {stream, end});
    if (to == nullptr) return 0;
    if (k + 1 == kStreams) break;
    const auto bytes = static_cast<std::uint32_t>(to - stream);
    std::memcpy(out.data() + k * sizeof(bytes), &bytes, sizeof(bytes));
  }
  return static_cast<std::size_t>(to - out.data());
}

bool decode_streams(Bytes in, const DecodeTable& table, MutableBytes out) noexcept {
  if (in.size() < kSizesBytes || out.size() > kMostSymbols) return false;
  Streams streams;
  std::size_t at = kSizesBytes;
  for (std::size_t k = 0; k < kStreams; ++k) {
    std::size_t bytes = in.size() - at;
    if (k + 1 < kStreams) {
      std::uint32_t stated = 0;
      std::memcpy(&stated, in.data() + k * sizeof(stated), sizeof(stated));
      if (stated > bytes) return false;
      bytes = stated;
    }
    const std::size_t begin = segment_begin(out.size(), k);
    streams[k] = {in.data() + at, bytes, out.data() + begin,
                  segment_begin(out.size(), k + 1) - begin};
    at += bytes;
  }
  return entropy_kernels().decode_streams(streams, in.data() + in.size(), table);
}

// Counts a part of a large block, in whole cache lines: 16K symbols tell the lengths well enough
// (within 0.3 % of the best size), and a full count would cost as much as the coding.
void sample_histogram(Bytes in, Histogram& histogram) noexcept {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kSample = std::size_t{1} << 14;
  const std::size_t stride = kLine * std::max<std::size_t>(1, in.size() / kSample);
  // Four tables, because counting the same symbol twice in a row waits for the first store.
  std::array<std::array<std::uint32_t, kSymbols>, 4> counts{};
  for (std::size_t line = 0; line < in.size(); line += stride) {
    const std::size_t end = std::min(line + kLine, in.size());
    std::size_t i = line;
    for (; i + 4 <= end; i += 4) {
      ++counts[0][in[i]];
      ++counts[1][in[i + 1]];
      ++counts[2][in[i + 2]];
      ++counts[3][in[i + 3]];
    }
    for (; i < end; ++i) ++counts[0][in[i]];
  }
  for (std::size_t symbol = 0; symbol < kSymbols; ++symbol) {
    histogram[symbol] = std::uint64_t{counts[0][symbol]} + counts[1][symbol] + counts[2][symbol] +
                        counts[3][symbol];
  }
}

// Every symbol of `in` has a count afterwards.
Histogram block_histogram(Bytes in) noexcept {
  Histogram histogram;
  sample_histogram(in, histogram);
  Presence presence;
  for (std::size_t symbol = 0; symbol < kSymbols; ++symbol) {
    if (histogram[symbol] != 0) presence.add(static_cast<std::uint8_t>(symbol));
  }
  entropy_kernels().add_unseen(in.data(), in.size(), presence, histogram);
  return histogram;
}

// Whether coding is worth trying: false only where it is clear that the streams do not fit.
bool may_fit(const Histogram& histogram, const CodeLengths& lengths, std::size_t symbols,
             std::size_t room) noexcept {
  double counted = 0;
  double bits = 0;
  for (std::size_t symbol = 0; symbol < kSymbols; ++symbol) {
    counted += static_cast<double>(histogram[symbol]);
    bits += static_cast<double>(histogram[symbol]) * lengths[symbol];
  }
  constexpr double kSampleError = 1.02;
  return bits / counted * static_cast<double>(symbols) / 8 <
         static_cast<double>(room) * kSampleError;
}

// Returns the bytes written, or 0.
std::size_t write_lengths(const CodeLengths& lengths, MutableBytes out) noexcept {
  const auto symbols =
      kSymbols - static_cast<std::size_t>(std::count(lengths.begin(), lengths.end(), 0));
  const bool dense = symbols > kMostListed;
  const std::size_t bytes = 1 + (dense ? kDenseBytes : list_bytes(symbols));
  if (out.size() < bytes) return 0;
  std::fill_n(out.begin(), bytes, std::uint8_t{0});
  out[0] = dense ? kDenseLengths : static_cast<std::uint8_t>(symbols);
  std::uint8_t* const halves = out.data() + 1 + (dense ? 0 : symbols);
  std::size_t listed = 0;
  for (std::size_t symbol = 0; symbol < kSymbols; ++symbol) {
    if (!dense && lengths[symbol] == 0) continue;
    if (!dense) out[1 + listed] = static_cast<std::uint8_t>(symbol);
    halves[listed / 2] =
        static_cast<std::uint8_t>(halves[listed / 2] | lengths[symbol] << (listed % 2 * 4));
    ++listed;
  }
  return bytes;
}

// Returns the bytes read, or 0: these are no lengths. The first byte is not kOneSymbol.
std::size_t read_lengths(Bytes in, CodeLengths& lengths) noexcept {
  const std::size_t listed = in[0];
  const bool dense = listed == kDenseLengths;
  if (listed > kMostListed) return 0;
  const std::size_t bytes = 1 + (dense ? kDenseBytes : list_bytes(listed));
  if (in.size() < bytes) return 0;
  lengths = {};
  const Bytes halves = in.subspan(1 + (dense ? 0 : listed));
  for (std::size_t i = 0; i < (dense ? kSymbols : listed); ++i) {
    const std::size_t symbol = dense ? i : in[1 + i];
    // Ascending, so that no symbol comes twice.
    if (!dense && i != 0 && in[1 + i] <= in[i]) return 0;
    lengths[symbol] = static_cast<std::uint8_t>(halves[i / 2] >> (i % 2 * 4) & 15);
    if (!dense && lengths[symbol] == 0) return 0;
  }
  if (listed % 2 != 0 && halves[listed / 2] >> 4 != 0) return 0;
  return kraft_sum(lengths) == kKraftOne ? bytes : 0;
}

}  // namespace

std::size_t huffman_encode(Bytes in, MutableBytes out, HuffmanScratch& scratch) noexcept {
  const Histogram histogram = block_histogram(in);
  const auto symbols =
      kSymbols - static_cast<std::size_t>(std::count(histogram.begin(), histogram.end(), 0));
  if (symbols == 1) {
    if (out.size() < 2) return 0;
    out[0] = kOneSymbol;
    out[1] = in[0];
    return 2;
  }
  const CodeLengths lengths = code_lengths(histogram);
  if (!may_fit(histogram, lengths, in.size(), out.size())) return 0;
  const std::size_t header = write_lengths(lengths, out);
  if (header == 0) return 0;
  scratch.encode = make_encode_table(lengths);
  const std::size_t coded = encode_streams(in, scratch.encode, out.subspan(header));
  return coded == 0 ? 0 : header + coded;
}

Status huffman_decode(Bytes in, MutableBytes out, HuffmanScratch& scratch) noexcept {
  if (in[0] == kOneSymbol) {
    if (in.size() != 2) return Status::corrupt;
    std::fill(out.begin(), out.end(), in[1]);
    return Status::ok;
  }
  CodeLengths lengths;
  const std::size_t header = read_lengths(in, lengths);
  if (header == 0) return Status::corrupt;
  make_decode_table(lengths, scratch.smaller, scratch.decode);
  return decode_streams(in.subspan(header), scratch.decode, out) ? Status::ok : Status::corrupt;
}

std::size_t huffman_static_encode(const InstalledBook& book, Bytes in, MutableBytes out) noexcept {
  if (out.size() < sizeof(book.hash)) return 0;
  std::memcpy(out.data(), &book.hash, sizeof(book.hash));
  const std::size_t coded = encode_streams(in, book.encode, out.subspan(sizeof(book.hash)));
  return coded == 0 ? 0 : sizeof(book.hash) + coded;
}

Status huffman_static_decode(Bytes in, MutableBytes out) noexcept {
  std::uint64_t hash = 0;
  if (in.size() < sizeof(hash)) return Status::corrupt;
  std::memcpy(&hash, in.data(), sizeof(hash));
  const InstalledBook* const book = find_codebook(hash);
  if (book == nullptr) return Status::unknown_book;
  return decode_streams(in.subspan(sizeof(hash)), book->decode, out) ? Status::ok : Status::corrupt;
}

}  // namespace tern::codec::entropy
