#pragma once

// What libtern does about an op whose memory lies outside the arena, step by step: a piece of the
// input at a time comes to the arena, and what lanes have delivered is taken. Until its bytes come,
// the input there is nonsense.

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shm/copy_progress.h"

namespace tern::sim {

class Copier {
 public:
  struct Memory {
    std::span<std::byte> input, output;  // in the arena; the input holds its values
    // Offset and bytes of the input's parts, in the order in which they come; empty: as they lie.
    std::vector<std::pair<std::size_t, std::size_t>> order;
  };
  // Takes the input's values out of the arena.
  Copier(const shm::CopyProgress& progress, const Memory& memory, std::uint64_t seed);

  // True: something has moved.
  bool step();
  bool is_filled() const { return filled_ == values_.size(); }
  // By itself it copies no more of the input.
  void stop() { stopped_ = true; }
  void fill(std::size_t end);
  // A watermark, true or not.
  void say(std::uint64_t bytes) { progress_.raise_input(bytes); }
  // How much of the output lanes have listed.
  std::uint64_t taken_bytes() const { return taken_bytes_; }
  // When the op has succeeded: empty, or what lanes have listed that was not so.
  std::string wrong_in_lists() const;

 private:
  struct Taken {
    shm::DeliveredRecord record;
    std::vector<std::byte> bytes;
  };

  bool take();

  shm::CopyProgress progress_;
  Memory memory_;
  std::mt19937_64 random_;
  std::vector<std::byte> values_;
  std::size_t filled_ = 0;
  bool stopped_ = false;
  std::vector<std::uint64_t> next_;  // record, by lane
  std::vector<Taken> taken_;
  std::uint64_t taken_bytes_ = 0;
};

}  // namespace tern::sim
