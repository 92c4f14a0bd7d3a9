#pragma once

// A stream's bytes that one side has written and the other has not read. Places are counted from
// the beginning of the stream.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace tern::sim {

class ByteRing {
 public:
  std::uint64_t begin() const noexcept { return begin_; }
  std::uint64_t end() const noexcept { return end_; }

  void write(std::span<const std::byte> bytes) {
    reserve(end_ - begin_ + bytes.size());
    while (!bytes.empty()) {
      const auto place = piece(end_, bytes.size());
      std::memcpy(place.data(), bytes.data(), place.size());
      end_ += place.size();
      bytes = bytes.subspan(place.size());
    }
  }
  // So many bytes from `at`, in one or two pieces. REQUIRES: they are there.
  std::array<std::span<const std::byte>, 2> read(std::uint64_t at, std::size_t count) noexcept {
    if (count == 0) return {};
    const auto first = piece(at, count);
    const auto second = count > first.size() ? piece(at + first.size(), count - first.size())
                                             : std::span<std::byte>{};
    return {first, second};
  }
  void drop_to(std::uint64_t begin) noexcept { begin_ = begin; }
  // Nobody will read.
  void free() noexcept {
    begin_ = end_;
    std::vector<std::byte>().swap(bytes_);
  }

 private:
  static constexpr std::size_t kLeastBytes = 4096;

  std::span<std::byte> piece(std::uint64_t at, std::size_t count) noexcept {
    const std::size_t place = at & (bytes_.size() - 1);
    return std::span(bytes_).subspan(place, std::min(count, bytes_.size() - place));
  }
  void reserve(std::size_t count) {
    if (count <= bytes_.size()) return;
    ByteRing larger;
    larger.bytes_.resize(std::bit_ceil(std::max(count, kLeastBytes)));
    larger.begin_ = larger.end_ = begin_;
    for (const auto part : read(begin_, end_ - begin_)) larger.write(part);
    *this = std::move(larger);
  }

  std::vector<std::byte> bytes_;  // size is a power of two; byte n at n modulo size
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

}  // namespace tern::sim
