#pragma once

// The memory that a lane sends from, as its device knows it: told beforehand, registered when the
// first frame leaves from there, piece by piece, and within a limit.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rdma/device.h"
#include "wire/rdma.h"

namespace tern::rdma {

// Thread: the lane's.
class LaneMemory {
 public:
  explicit LaneMemory(std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  void remember(std::span<const std::byte> memory);
  void forget(std::span<const std::byte> memory);
  // Registered memory is that of one device; with another one everything is registered anew. Null:
  // no device. REQUIRES: no queue pair of the old device is left.
  void use(std::shared_ptr<Device> device);

  // To register memory takes long, and so does to let it go: in a turn of the lane about one piece.
  void begin_turn() noexcept { turn_bytes_ = kPieceBytes + kOverlapBytes; }
  // Lets go of what was forgotten, as far as the turn allows. Returns how many regions that were.
  int let_go();
  bool is_letting_go() const noexcept { return !forgotten_.empty(); }

  // The local key of a region that holds these bytes. None: they must be copied to memory that is
  // registered, because nobody told of them, or they are beyond the limit; or it comes in a later
  // turn.
  struct Key {
    std::optional<std::uint32_t> value{};
    bool comes_later = false;
  };
  Key key_of(std::span<const std::byte> bytes);

  // Why frames from memory that is known are copied; empty: none has to be. Another revision: it
  // has changed.
  const std::string& trouble() const noexcept { return trouble_; }
  std::uint64_t trouble_revision() const noexcept { return trouble_revision_; }

 private:
  // Pieces overlap by as much as the largest message, so that one of them holds any message. To
  // register one is short, and does not hold up the lane as a whole arena would.
  static constexpr std::size_t kPieceBytes = 64 << 20;
  static constexpr std::size_t kOverlapBytes = wire::kMaxRdmaSlotBytes;
  // Of a piece with pages that are absent the device takes those units alone in which a message
  // lies: a client's library gives out whole ones, with all of their pages. Runs of units overlap
  // where messages do not begin with a unit, and count as often. A piece stays in units until its
  // memory is forgotten: to try it again would pin what is there, for nothing.
  static constexpr std::size_t kUnitBytes = 256 << 10;
  static constexpr std::size_t kLongestRun = wire::kMaxRdmaSlotBytes / kUnitBytes + 1;
  struct UnitRun {
    std::span<const std::byte> memory;
    MemoryRegion region;
  };
  struct Known {
    Known(std::span<const std::byte> piece, std::span<const std::byte> all)
        : memory(piece), whole(all) {}
    std::span<const std::byte> memory;
    std::span<const std::byte> whole;  // that it is a piece of
    MemoryRegion region;
    bool refused = false;  // by the device or the limit: not tried again
    bool has_absent_pages = false;
    std::multimap<std::size_t, UnitRun> units;  // by the first unit's number
  };
  // It is a region still, and counts as one.
  struct Forgotten {
    std::shared_ptr<Device> device;
    MemoryRegion region;
    std::size_t bytes = 0;
  };
  // What a small one takes of a turn, too.
  static constexpr std::size_t kLeastTurnBytes = 1 << 20;
  static bool holds(std::span<const std::byte> memory, std::span<const std::byte> bytes) noexcept {
    return bytes.data() >= memory.data() &&
           bytes.data() + bytes.size() <= memory.data() + memory.size();
  }
  void forget_regions(Known& known);
  bool comes_later(std::size_t bytes) const noexcept;
  bool is_within_limit(std::size_t bytes) const noexcept {
    return bytes <= limit_bytes_ - std::min(limit_bytes_, registered_bytes_);
  }
  void take_of_turn(std::size_t bytes) noexcept {
    turn_bytes_ -= std::min(turn_bytes_, std::max(bytes, kLeastTurnBytes));
  }
  Result<MemoryRegion> register_now(std::span<const std::byte> memory);
  void register_piece(Known& known);
  Key key_of_units(Known& known, std::span<const std::byte> bytes);
  void set_trouble(std::string text);

  std::uint64_t limit_bytes_;
  std::uint64_t registered_bytes_ = 0;
  std::size_t turn_bytes_ = kPieceBytes + kOverlapBytes;  // that are left of it
  std::shared_ptr<Device> device_;
  std::vector<Known> known_;
  std::vector<Forgotten> forgotten_;
  std::size_t last_ = 0;  // where the last bytes were found
  std::string trouble_;
  std::uint64_t trouble_revision_ = 0;
};

}  // namespace tern::rdma
