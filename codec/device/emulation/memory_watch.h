#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/device/emulation/site.h"

// Who touched what, and when: races are found on any schedule, because two accesses are compared by
// the barriers between them and not by their order in time.
//
// An epoch counts barriers: a block's and, within a warp, the warp's. Two accesses of one block are
// ordered if a barrier of the block lies between them, or if one warp made both and a barrier of
// the warp does. Nothing orders two blocks of a launch; launches are ordered.
namespace tern::codec::device::emulation {

// A thread of a launch at one moment.
struct Moment {
  std::uint32_t block;
  std::uint16_t warp;
  std::uint16_t lane;
  std::uint32_t block_epoch;
  std::uint32_t warp_epoch;
};

// How memory is touched. Atomic accesses do not race with each other.
enum class Touch : std::uint8_t { read, write, atomic };

struct Span {
  std::size_t begin;
  std::size_t count;
};

// An array's history, a cell for each element.
class MemoryWatch {
 public:
  MemoryWatch(std::size_t elements, bool written) : cells_(elements) {
    for (Cell& cell : cells_) cell.is_written = written;
  }

  std::size_t elements() const noexcept { return cells_.size(); }

  // Notes the access. Throws a Finding for bounds, unwritten memory and races.
  // `first_epoch`: what lies before it belongs to earlier launches.
  struct Access {
    Touch touch;
    const Moment& moment;
    std::uint32_t first_epoch;
    const Site& site;
  };
  void note(const Access& access, const Span& elements);

 private:
  static constexpr std::uint16_t kMany = 0xffff;

  struct Cell {
    Moment write{};
    Moment read{};  // of several: the latest epoch, with kMany for what differs
    bool is_written = false;
    bool is_atomic = false;
  };

  void note_read(Cell& cell, const Access& access);
  void note_write(Cell& cell, const Access& access);

  std::vector<Cell> cells_;
};

}  // namespace tern::codec::device::emulation
