#include "shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

#include "base/free_slice.h"
#include "shm/absent_pages.h"

namespace tern::shm {
namespace {

// Of the format, whatever the machine's own page is: offsets must not differ between builds.
constexpr std::uint64_t kPageBytes = 4096;

constexpr std::uint64_t round_up(std::uint64_t bytes) noexcept {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

std::atomic_ref<std::uint16_t> abi_of(SegmentHeader& header) noexcept {
  return std::atomic_ref<std::uint16_t>(header.abi);
}

// Of shared memory a page is found when it is read, too.
void read_each_page(std::span<const std::byte> memory) noexcept {
  const auto read = [&](std::size_t at) {
    (void)*static_cast<const volatile std::byte*>(memory.data() + at);
  };
  for (std::size_t at = 0; at < memory.size(); at += kPageBytes) read(at);
  if (!memory.empty()) read(memory.size() - 1);
}

}  // namespace

Status populate(std::span<std::byte> memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uint64_t before = address % kPageBytes;
  const std::uint64_t bytes = round_up(before + memory.size());
  // EFAULT: a first use would be answered by SIGBUS, as where memory must not be overcommitted.
  while (::madvise(memory.data() - before, bytes, MADV_POPULATE_WRITE) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno == EINVAL) {  // an older kernel
      read_each_page(memory);
      return {};
    }
    return fail(Errc::out_of_memory, "this machine, or this process's control group, has no " +
                                         std::to_string(memory.size()) + " bytes of memory left");
  }
  return {};
}

Status seal(const Fd& segment) {
  if (::fcntl(segment.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0) return {};
  if (errno == EINVAL) {  // an older kernel
    if (::fcntl(segment.get(), F_ADD_SEALS, F_SEAL_SEAL) == 0) return {};
  }
  // The client may have done it itself.
  const int seals = ::fcntl(segment.get(), F_GET_SEALS);
  if (seals >= 0 && (seals & F_SEAL_FUTURE_WRITE) != 0) return {};
  return fail(Errc::permission_denied, "the client has kept its memory from being sealed");
}

Segment::Shape Segment::shape_for(std::uint32_t lane_count, std::uint64_t arena_bytes) noexcept {
  Shape shape;
  shape.lane_count = lane_count;
  shape.submit_offset = round_up(sizeof(SegmentHeader));
  shape.completion_offset =
      shape.submit_offset + std::uint64_t{lane_count} * kRingEntries * sizeof(SubmitEntry);
  shape.arena_offset = round_up(shape.completion_offset +
                                std::uint64_t{lane_count} * kRingEntries * sizeof(CompletionEntry));
  shape.arena_bytes = round_up(arena_bytes);
  shape.segment_bytes = shape.arena_offset + shape.arena_bytes;
  return shape;
}

std::uint64_t Segment::bytes_for(std::uint32_t lane_count, std::uint64_t arena_bytes) noexcept {
  return shape_for(lane_count, arena_bytes).segment_bytes;
}

Result<Segment> Segment::create(std::uint32_t lane_count, std::uint64_t arena_bytes,
                                std::uint32_t spin_ns) {
  if (lane_count < 1 || lane_count > kMaxLanes) {
    return fail(Errc::invalid_argument,
                "a segment has 1 to " + std::to_string(kMaxLanes) + " lanes");
  }
  if (arena_bytes < 1 || arena_bytes > kMaxArenaBytes) {
    return fail(Errc::invalid_argument, "the arena's size is 0 or above 16 TiB");
  }
  Shape shape = shape_for(lane_count, arena_bytes);
  shape.spin_ns = spin_ns;
  return make(shape);
}

Result<Segment> Segment::create_region(std::uint64_t bytes) {
  if (bytes < 1 || bytes > kMaxArenaBytes) {
    return fail(Errc::invalid_argument, "the region's size is 0 or above 16 TiB");
  }
  return make(shape_for(0, bytes));
}

Result<Segment> Segment::make(const Shape& shape) {
  Segment segment;
  segment.shape_ = shape;
  segment.fd_.reset(::memfd_create("tern-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!segment.fd_) return fail_errno(Errc::io_error, "cannot make the shared memory", errno);
  if (::ftruncate(segment.fd(), static_cast<off_t>(segment.shape_.segment_bytes)) != 0 ||
      ::fcntl(segment.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return fail_errno(Errc::io_error, "cannot size and seal the shared memory", errno);
  }
  if (Status mapped = segment.map_memory(); !mapped) return tl::unexpected(mapped.error());
  auto guard = PageGuard::over({segment.base_, segment.segment_bytes()});
  if (!guard) return tl::unexpected(guard.error());
  segment.guard_ = std::move(*guard);

  SegmentHeader& header = *segment.header_;
  header.magic = kSegmentMagic;
  header.lane_count = static_cast<std::uint16_t>(shape.lane_count);
  header.segment_bytes = segment.shape_.segment_bytes;
  header.submit_entries_offset = segment.shape_.submit_offset;
  header.completion_entries_offset = segment.shape_.completion_offset;
  header.arena_offset = segment.shape_.arena_offset;
  header.arena_bytes = segment.shape_.arena_bytes;
  header.spin_ns = shape.spin_ns;
  abi_of(header).store(wire::kShmAbi, std::memory_order_release);
  if (segment.has_lost_pages()) {
    return fail(Errc::out_of_memory, "the daemon's machine has no memory left for a client");
  }
  return segment;
}

Result<Segment> Segment::map(Fd fd, std::uint64_t expected_bytes) {
  return map_with(std::move(fd), expected_bytes, {1, kMaxLanes});
}

Result<Segment> Segment::map_region(Fd fd, std::uint64_t expected_bytes) {
  return map_with(std::move(fd), expected_bytes, {0, 0});
}

Result<Segment> Segment::map_with(Fd fd, std::uint64_t expected_bytes, const Lanes& lanes) {
  struct stat file {};
  if (::fstat(fd.get(), &file) != 0) {
    return fail_errno(Errc::io_error, "cannot look at the shared memory", errno);
  }
  const auto file_bytes = static_cast<std::uint64_t>(file.st_size);
  if (file_bytes != expected_bytes || file_bytes < round_up(sizeof(SegmentHeader))) {
    return fail(Errc::protocol_error, "the shared memory has " + std::to_string(file_bytes) +
                                          " bytes where " + std::to_string(expected_bytes) +
                                          " were announced");
  }
  Segment segment;
  segment.fd_ = std::move(fd);
  segment.shape_.segment_bytes = file_bytes;
  if (Status mapped = segment.map_memory(); !mapped) return tl::unexpected(mapped.error());
  if (::madvise(segment.base_, file_bytes, MADV_DONTFORK) != 0) {
    return fail_errno(Errc::io_error, "cannot keep the shared memory from forked children", errno);
  }
  if (Status read = segment.read_header(lanes); !read) return tl::unexpected(read.error());
  return segment;
}

Status Segment::map_memory() {
  void* memory =
      ::mmap(nullptr, shape_.segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) {
    return fail_errno(Errc::out_of_memory, "cannot map the shared memory", errno);
  }
  // A wish, granted where the operator allows huge pages for shared memory that asks for them.
  (void)::madvise(memory, shape_.segment_bytes, MADV_HUGEPAGE);
  base_ = static_cast<std::byte*>(memory);
  header_ = static_cast<SegmentHeader*>(memory);
  return {};
}

// The offsets follow from lane count and arena size alone, so that equality is the whole check.
Status Segment::read_header(const Lanes& lanes) {
  const std::uint16_t abi = abi_of(*header_).load(std::memory_order_acquire);
  if (abi == 0) return fail(Errc::would_block, "the shared memory's header is not published yet");
  if (header_->magic != kSegmentMagic) {
    return fail(Errc::protocol_error, "the shared memory is not a Tern segment");
  }
  if (abi != wire::kShmAbi) {
    return fail(Errc::version_mismatch, "the shared memory has version " + std::to_string(abi) +
                                            ", this program speaks " +
                                            std::to_string(wire::kShmAbi));
  }
  const std::uint32_t lane_count = header_->lane_count;
  const std::uint64_t arena_bytes = header_->arena_bytes;
  if (lane_count < lanes.least || lane_count > lanes.most || arena_bytes < 1 ||
      arena_bytes > kMaxArenaBytes) {
    return fail(Errc::protocol_error, "the shared memory's header has sizes out of range");
  }
  const Shape shape = shape_for(lane_count, arena_bytes);
  if (shape.segment_bytes != shape_.segment_bytes ||
      shape.segment_bytes != header_->segment_bytes ||
      shape.submit_offset != header_->submit_entries_offset ||
      shape.completion_offset != header_->completion_entries_offset ||
      shape.arena_offset != header_->arena_offset || shape.arena_bytes != arena_bytes) {
    return fail(Errc::protocol_error, "the shared memory's header does not fit its size");
  }
  shape_ = shape;
  shape_.spin_ns = header_->spin_ns;
  return {};
}

Status Segment::leave_absent_pages() { return leave_absent(arena()); }

std::uint32_t Segment::spin_ns() const noexcept {
  const std::atomic_ref<std::uint32_t> few(header_->cores_are_few);
  return few.load(std::memory_order_relaxed) != 0 ? 0 : shape_.spin_ns;
}

void Segment::set_cores_are_few(bool few) noexcept {
  std::atomic_ref<std::uint32_t>(header_->cores_are_few)
      .store(few ? 1 : 0, std::memory_order_relaxed);
}

RingMemory<SubmitEntry> Segment::submit_ring(std::uint32_t lane) const noexcept {
  auto* entries = reinterpret_cast<SubmitEntry*>(base_ + shape_.submit_offset);
  return {&header_->lanes[lane].submit, {entries + std::size_t{lane} * kRingEntries, kRingEntries}};
}

RingMemory<CompletionEntry> Segment::completion_ring(std::uint32_t lane) const noexcept {
  auto* entries = reinterpret_cast<CompletionEntry*>(base_ + shape_.completion_offset);
  return {&header_->lanes[lane].completion,
          {entries + std::size_t{lane} * kRingEntries, kRingEntries}};
}

Segment::Segment(Segment&& other) noexcept
    : fd_(std::move(other.fd_)),
      base_(std::exchange(other.base_, nullptr)),
      header_(std::exchange(other.header_, nullptr)),
      shape_(std::exchange(other.shape_, {})),
      guard_(std::move(other.guard_)) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  fd_ = std::move(other.fd_);
  base_ = std::exchange(other.base_, nullptr);
  header_ = std::exchange(other.header_, nullptr);
  shape_ = std::exchange(other.shape_, {});
  guard_ = std::move(other.guard_);
  return *this;
}

Segment::~Segment() { unmap(); }

// From the end, so that what is left stays one mapping.
bool Segment::unmap_some() noexcept {
  if (base_ == nullptr) return false;
  const std::uint64_t left = without_last_slice(base_, shape_.segment_bytes);
  if (left == 0) {
    unmap();
    return false;
  }
  guard_.shrink(left);
  ::munmap(base_ + left, shape_.segment_bytes - left);
  shape_.segment_bytes = left;
  return true;
}

void Segment::unmap() noexcept {
  guard_ = {};
  if (base_ != nullptr) ::munmap(base_, shape_.segment_bytes);
  abandon();
}

void Segment::abandon() noexcept {
  base_ = nullptr;
  header_ = nullptr;
}

}  // namespace tern::shm
