#pragma once

// The memory that one client and its daemon share (docs/shm-layout.md): a header, two rings per
// lane, the arena. The daemon makes it and passes its descriptor; the client maps it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/fd.h"
#include "base/result.h"
#include "shm/layout.h"
#include "shm/page_guard.h"
#include "shm/spsc_ring.h"

namespace tern::shm {

inline constexpr std::uint64_t kMaxArenaBytes = std::uint64_t{1} << 44;

// Has the kernel find memory for the pages of this part of a segment, so that the first use of none
// of them can fail, and so that they are charged to the control group of this process. Takes a
// fifth of a second for each GiB that had none. out_of_memory: there is none; what was found stays.
// Before Linux 5.14 a page that cannot be had is answered by SIGBUS.
Status populate(std::span<std::byte> memory);

// Daemon side, once the client has mapped the segment of this descriptor: from then on nobody maps
// it for writing or punches a hole into it. While a hole is punched, the kernel puts everybody to
// sleep who comes to a page within it. Waits for the holes that are being punched.
// permission_denied: the client has kept others from sealing it. Before Linux 5.1 holes cannot be
// ruled out.
Status seal(const Fd& segment);

// Owns the descriptor and the mapping. All that it answers comes from private copies taken when it
// was made, but for one flag: the other side may overwrite the header at any time.
class Segment {
 public:
  // Daemon side. A memfd of fixed size (sealed against shrinking and growing, so that no client can
  // make the daemon fault), zeros apart from the header; seal() it once the client has mapped
  // it. arena_bytes is rounded up to whole pages; pages cost memory once touched. Its pages are
  // guarded (shm/page_guard.h): what the client can do with them ends nobody else.
  // REQUIRES: lane_count 1..kMaxLanes, arena_bytes 1..kMaxArenaBytes; else invalid_argument.
  static Result<Segment> create(std::uint32_t lane_count, std::uint64_t arena_bytes,
                                std::uint32_t spin_ns);

  // The same without lanes: an arena, and no rings. For a region.
  static Result<Segment> create_region(std::uint64_t bytes);

  // Client side. Refuses what is not a whole segment of this version: would_block for a header that
  // is not published yet, version_mismatch for another abi, protocol_error for a wrong magic, size
  // or offset. A child made by fork does not inherit the mapping.
  static Result<Segment> map(Fd fd, std::uint64_t expected_bytes);
  // The same of a region, which has no lanes.
  static Result<Segment> map_region(Fd fd, std::uint64_t expected_bytes);

  // The size of a segment, for quotas. REQUIRES: as create.
  static std::uint64_t bytes_for(std::uint32_t lane_count, std::uint64_t arena_bytes) noexcept;

  Segment() noexcept = default;
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  // Shared memory: use only through std::atomic_ref (wakeup.h), and believe nothing in it.
  SegmentHeader& header() const noexcept { return *header_; }
  // REQUIRES: lane < lane_count().
  LaneRings& lane_rings(std::uint32_t lane) const noexcept { return header_->lanes[lane]; }
  RingMemory<SubmitEntry> submit_ring(std::uint32_t lane) const noexcept;
  RingMemory<CompletionEntry> completion_ring(std::uint32_t lane) const noexcept;

  std::span<std::byte> arena() const noexcept {
    return {base_ + shape_.arena_offset, arena_bytes()};
  }
  std::size_t arena_bytes() const noexcept { return shape_.arena_bytes; }
  std::size_t segment_bytes() const noexcept { return shape_.segment_bytes; }
  std::uint32_t lane_count() const noexcept { return shape_.lane_count; }
  // How long a client may spin at present; 0 while cores are few.
  std::uint32_t spin_ns() const noexcept;
  // Daemon side, at any time.
  void set_cores_are_few(bool few) noexcept;
  int fd() const noexcept { return fd_.get(); }
  // Daemon side, before the descriptor is passed on: pages of the arena that the client has not
  // touched are not this process's to find memory for (shm/absent_pages.h). To use one here loses
  // it. unsupported: they are charged to this process.
  Status leave_absent_pages();
  // Daemon side, any thread: the kernel had no memory for a page that was used here, or it was left
  // absent. From then on what is read here means nothing.
  bool has_lost_pages() const noexcept { return guard_.has_replaced(); }

  // Forgets the mapping without touching it: in a forked child the addresses may be somebody
  // else's.
  void abandon() noexcept;
  // Unmaps a part that takes less than a millisecond. True: something is left. Nothing of the
  // segment may be used any more.
  bool unmap_some() noexcept;
  // The mapping does not need it.
  void close_fd() noexcept { fd_.reset(); }
  Fd take_fd() noexcept { return std::move(fd_); }

 private:
  struct Shape {
    std::uint64_t segment_bytes = 0;
    std::uint64_t submit_offset = 0;
    std::uint64_t completion_offset = 0;
    std::uint64_t arena_offset = 0;
    std::uint64_t arena_bytes = 0;
    std::uint32_t lane_count = 0;
    std::uint32_t spin_ns = 0;
  };

  static Shape shape_for(std::uint32_t lane_count, std::uint64_t arena_bytes) noexcept;
  static Result<Segment> make(const Shape& shape);
  // Lanes that a header may say.
  struct Lanes {
    std::uint32_t least, most;
  };
  static Result<Segment> map_with(Fd fd, std::uint64_t expected_bytes, const Lanes& lanes);
  Status map_memory();
  Status read_header(const Lanes& lanes);
  void unmap() noexcept;

  Fd fd_;
  std::byte* base_ = nullptr;
  SegmentHeader* header_ = nullptr;
  Shape shape_;
  PageGuard guard_;  // of the daemon's side
};

}  // namespace tern::shm
