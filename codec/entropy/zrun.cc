// Runs of one byte value. A block is that value, then tokens: c < 128 is followed by c + 1 literal
// bytes; c >= 128 is a run of c - 127 of the value.
//
// Runs of fewer than three between literals stay literals: cutting there costs two bytes. So every
// run that is cut out saves at least the token of the literals after it, and no output is longer
// than 1 + n + ceil(n / 128) bytes.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "codec/entropy/entropy_kernels.h"
#include "codec/entropy/stages.h"

namespace tern::codec::entropy {
namespace {

constexpr std::size_t kMostPerToken = 128;
constexpr std::uint8_t kRunToken = 128;

// The most frequent byte of a sample: 0 for most codes, 121 for five ternary zeros, the middle code
// for quantizers that have one; no need to know which.
std::uint8_t choose_value(Bytes in) noexcept {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kSampleLines = 64;
  const std::size_t stride = kLine * std::max<std::size_t>(1, in.size() / (kLine * kSampleLines));
  std::array<std::uint32_t, kSymbols> counts{};
  for (std::size_t line = 0; line < in.size(); line += stride) {
    const std::size_t end = std::min(line + kLine, in.size());
    for (std::size_t i = line; i < end; ++i) ++counts[in[i]];
  }
  return static_cast<std::uint8_t>(std::max_element(counts.begin(), counts.end()) - counts.begin());
}

class TokenWriter {
 public:
  TokenWriter(MutableBytes out, const std::uint8_t* in_end) : out_(out), in_end_(in_end) {}

  bool literals(const std::uint8_t* in, std::size_t count) noexcept {
    while (count != 0) {
      const std::size_t piece = std::min(count, kMostPerToken);
      if (out_.size() - used_ < piece + 1) return false;
      out_[used_] = static_cast<std::uint8_t>(piece - 1);
      copy(in, piece);
      used_ += piece + 1;
      in += piece;
      count -= piece;
    }
    return true;
  }
  bool run(std::size_t count) noexcept {
    const std::size_t tokens = (count + kMostPerToken - 1) / kMostPerToken;
    if (out_.size() - used_ < tokens) return false;
    for (std::size_t i = 0; i < tokens; ++i) {
      const std::size_t piece = std::min(count, kMostPerToken);
      out_[used_++] = static_cast<std::uint8_t>(kRunToken + piece - 1);
      count -= piece;
    }
    return true;
  }
  std::size_t used() const noexcept { return used_; }

 private:
  // Most pieces are short: a copy of fixed size, where there is room on both sides, is cheaper.
  void copy(const std::uint8_t* in, std::size_t piece) noexcept {
    constexpr std::size_t kShort = 16;
    const auto readable = static_cast<std::size_t>(in_end_ - in);
    std::uint8_t* const to = out_.data() + used_ + 1;
    if (piece <= kShort && readable >= kShort && out_.size() - used_ > kShort) {
      std::memcpy(to, in, kShort);
    } else {
      std::memcpy(to, in, piece);
    }
  }

  MutableBytes out_;
  const std::uint8_t* in_end_;
  std::size_t used_ = 0;
};

// The bytes of runs that are cut out, as a mask of 64 bytes, given the masks before and after.
std::uint64_t long_runs(std::uint64_t before, std::uint64_t mask, std::uint64_t after) noexcept {
  // Bit i: a run of three begins at i.
  const auto begins = [](std::uint64_t m, std::uint64_t next) {
    return m & (m >> 1 | next << 63) & (m >> 2 | next << 62);
  };
  const std::uint64_t here = begins(mask, after);
  const std::uint64_t last = begins(before, mask);
  return here | (here << 1 | last >> 63) | (here << 2 | last >> 62);
}

}  // namespace

std::size_t zrun_encode(Bytes in, MutableBytes out) noexcept {
  if (out.empty()) return 0;
  const std::uint8_t value = choose_value(in);
  out[0] = value;
  TokenWriter writer(out.subspan(1), in.data() + in.size());
  // One word of masks before and after the ones in hand; what is past the end is not `value`.
  constexpr std::size_t kWords = 64;
  std::array<std::uint64_t, kWords + 2> masks{};
  std::size_t begin = 0;  // of the literals or the run in hand
  bool in_run = false;
  const auto mask_of_part = [&](std::size_t from) {
    std::uint64_t mask = 0;
    for (std::size_t i = from; i < std::min(from + 64, in.size()); ++i) {
      mask |= std::uint64_t{in[i] == value} << (i - from);
    }
    return mask;
  };
  for (std::size_t at = 0; at < in.size(); at += kWords * 64) {
    const std::size_t whole = std::min(kWords, (in.size() - at) / 64);
    entropy_kernels().equal_masks(in.data() + at, whole, value, masks.data() + 1);
    std::size_t words = whole;
    if (whole < kWords && in.size() > at + whole * 64) {
      masks[1 + words++] = mask_of_part(at + whole * 64);
    }
    masks[1 + words] = mask_of_part(at + words * 64);
    for (std::size_t word = 0; word < words; ++word) {
      const std::uint64_t runs = long_runs(masks[word], masks[word + 1], masks[word + 2]);
      std::uint64_t edges = runs ^ (runs << 1 | std::uint64_t{in_run});
      for (; edges != 0; edges &= edges - 1) {
        const std::size_t edge = at + 64 * word + static_cast<unsigned>(std::countr_zero(edges));
        const bool fits =
            in_run ? writer.run(edge - begin) : writer.literals(in.data() + begin, edge - begin);
        if (!fits) return 0;
        begin = edge;
        in_run = !in_run;
      }
    }
    masks[0] = masks[words];
  }
  // A part of a word ends its runs itself; only a whole last word leaves one open.
  const bool fits = in_run ? writer.run(in.size() - begin)
                           : writer.literals(in.data() + begin, in.size() - begin);
  return fits ? 1 + writer.used() : 0;
}

Status zrun_decode(Bytes in, MutableBytes out) noexcept {
  constexpr std::size_t kShort = 32;
  const std::uint8_t value = in[0];
  std::size_t read = 1;
  std::size_t written = 0;
  while (read < in.size()) {
    const std::uint8_t token = in[read++];
    const bool is_run = token >= kRunToken;
    const std::size_t count = static_cast<std::size_t>(token & 127) + 1;
    const std::size_t room = out.size() - written;
    if (count > room) return Status::corrupt;
    std::uint8_t* const to = out.data() + written;
    written += count;
    // Most pieces are short: a store of fixed size is cheaper, where there is room for it.
    if (is_run) {
      std::memset(to, value, count <= kShort && room >= kShort ? kShort : count);
      continue;
    }
    const std::size_t left = in.size() - read;
    if (count > left) return Status::corrupt;
    if (count <= kShort && room >= kShort && left >= kShort) {
      std::memcpy(to, in.data() + read, kShort);
    } else {
      std::memcpy(to, in.data() + read, count);
    }
    read += count;
  }
  return written == out.size() ? Status::ok : Status::corrupt;
}

}  // namespace tern::codec::entropy
