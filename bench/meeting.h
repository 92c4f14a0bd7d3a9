#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tern::bench {

// Where the ranks of one benchmark meet: a file that all of them map, so that all are on one
// machine (in network namespaces of their own, maybe). Meeting costs nothing on the network that is
// measured and is the same for all contestants.
//
// Throws std::runtime_error when another rank has given up or has not come within a minute.
class Meeting {
 public:
  static constexpr std::uint32_t kMaxRanks = 64;
  static constexpr std::size_t kSamples = 16;

  // What a rank shows to the others. A rank writes its own between two meetings, the others read it
  // after the second.
  struct Slot {
    double seconds;
    std::uint64_t segments, sent_again;  // of TCP, in the meantime
    std::uint64_t processor_ns;          // that its processes used
    float samples[kSamples];
  };

  // Requires: size <= kMaxRanks. The first one that comes creates the file.
  Meeting(const std::string& path, std::uint32_t rank, std::uint32_t size);

  // Returns when all ranks have called it. Waits asleep: a rank that is early takes no time from
  // those that still work.
  void meet();

  // Meets, and then once more awake, so that all ranks return within microseconds of each other.
  void align();

  // Says to the others that this rank will not come any more.
  void give_up();

  // Rank 0's decision, which every rank learns at its next meet().
  void set_verdict(bool go_on);
  bool verdict() const;

  Slot& mine();
  std::span<const Slot> slots() const;

 private:
  struct Page;
  void wait_asleep(std::uint32_t round);
  void check_failed() const;

  std::uint32_t rank_;
  std::uint32_t size_;
  std::uint32_t rounds_ = 0;
  std::uint32_t alignments_ = 0;
  std::unique_ptr<Page, void (*)(Page*)> page_;
};

}  // namespace tern::bench
