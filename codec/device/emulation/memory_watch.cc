#include "codec/device/emulation/memory_watch.h"

#include "codec/device/emulation/finding.h"

namespace tern::codec::device::emulation {
namespace {

constexpr std::uint32_t kManyBlocks = 0xffffffff;

std::string who(const Moment& moment) {
  return "thread " + std::to_string(moment.warp * 32u + moment.lane) + " of block " +
         std::to_string(moment.block);
}

// Epochs begin at 1; 0 is nobody.
bool is_of_this_launch(const Moment& earlier, std::uint32_t first_epoch) noexcept {
  return earlier.block_epoch != 0 && earlier.block_epoch >= first_epoch;
}

bool same_thread(const Moment& a, const Moment& b) noexcept {
  return a.block == b.block && a.warp == b.warp && a.lane == b.lane;
}

// Whether no barrier lies between two accesses of one launch.
bool concurrent(const Moment& earlier, const Moment& now) noexcept {
  if (earlier.block != now.block) return true;
  if (earlier.block_epoch < now.block_epoch) return false;
  if (earlier.warp != now.warp) return true;
  return earlier.warp_epoch >= now.warp_epoch && !same_thread(earlier, now);
}

}  // namespace

void MemoryWatch::note(const Access& access, const Span& elements) {
  if (elements.begin > cells_.size() || elements.count > cells_.size() - elements.begin) {
    report("out of bounds: element " + std::to_string(elements.begin) + " of " +
               std::to_string(cells_.size()) + ", by " + who(access.moment),
           access.site);
  }
  for (std::size_t i = elements.begin; i < elements.begin + elements.count; ++i) {
    Cell& cell = cells_[i];
    if (access.touch != Touch::write && !cell.is_written) {
      report("reads element " + std::to_string(i) + ", which nobody wrote", access.site);
    }
    if (access.touch == Touch::read) {
      note_read(cell, access);
    } else {
      note_write(cell, access);
    }
  }
}

void MemoryWatch::note_read(Cell& cell, const Access& access) {
  const Moment& now = access.moment;
  if (is_of_this_launch(cell.write, access.first_epoch) && concurrent(cell.write, now)) {
    report("race: " + who(now) + " reads what " + who(cell.write) + " writes", access.site);
  }
  Moment& read = cell.read;
  if (!is_of_this_launch(read, access.first_epoch) || !concurrent(read, now)) {
    read = now;
    return;
  }
  if (read.block != now.block) {
    read.block = kManyBlocks;
  } else if (read.warp != now.warp) {
    read.warp = kMany;
  } else {
    read.lane = kMany;
  }
}

void MemoryWatch::note_write(Cell& cell, const Access& access) {
  const Moment& now = access.moment;
  const bool both_atomic = access.touch == Touch::atomic && cell.is_atomic;
  if (!both_atomic && is_of_this_launch(cell.write, access.first_epoch) &&
      concurrent(cell.write, now)) {
    report("race: " + who(now) + " writes what " + who(cell.write) + " writes", access.site);
  }
  if (is_of_this_launch(cell.read, access.first_epoch) && concurrent(cell.read, now)) {
    report("race: " + who(now) + " writes what is read meanwhile", access.site);
  }
  cell.write = now;
  cell.is_written = true;
  cell.is_atomic = access.touch == Touch::atomic;
}

}  // namespace tern::codec::device::emulation
