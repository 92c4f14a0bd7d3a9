#include "shm/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

#include "base/free_slice.h"

namespace tern::shm {
namespace {

Fd duplicate(const Segment& segment) { return Fd(::fcntl(segment.fd(), F_DUPFD_CLOEXEC, 0)); }

// The code with which map() answers after change has been made to a good header.
Errc map_after(const std::function<void(SegmentHeader&)>& change) {
  Result<Segment> made = Segment::create(2, 10000, 0);
  if (!made) return made.error().code;
  change(made->header());
  const Result<Segment> mapped = Segment::map(duplicate(*made), made->segment_bytes());
  return mapped ? Errc::ok : mapped.error().code;
}

TEST(Segment, BothSidesSeeTheSameMemory) {
  Result<Segment> made = Segment::create(3, 10000, 700);
  ASSERT_TRUE(made) << made.error().text;
  Result<Segment> mapped = Segment::map(duplicate(*made), made->segment_bytes());
  ASSERT_TRUE(mapped) << mapped.error().text;
  EXPECT_EQ(mapped->lane_count(), 3u);
  EXPECT_EQ(mapped->spin_ns(), 700u);
  made->set_cores_are_few(true);
  EXPECT_EQ(mapped->spin_ns(), 0u);
  made->set_cores_are_few(false);
  EXPECT_EQ(mapped->spin_ns(), 700u);
  EXPECT_EQ(mapped->arena_bytes(), 12288u);
  EXPECT_EQ(made->segment_bytes(), Segment::bytes_for(3, 10000));

  RingProducer<SubmitEntry> producer(mapped->submit_ring(2));
  RingConsumer<SubmitEntry> consumer(made->submit_ring(2));
  SubmitEntry entry{};
  entry.ticket = 77;
  ASSERT_EQ(producer.try_push(entry), RingResult::ok);
  SubmitEntry got{};
  ASSERT_EQ(consumer.try_pop(got), RingResult::ok);
  EXPECT_EQ(got.ticket, 77u);
  std::memset(mapped->arena().data(), 0x5a, mapped->arena().size());
  EXPECT_EQ(made->arena().back(), std::byte{0x5a});
}

// What others do with the mappings of the process must not wait long.
TEST(Segment, IsUnmappedInParts) {
  Result<Segment> made = Segment::create(1, 5 * kFreeSliceBytes, 0);
  ASSERT_TRUE(made) << made.error().text;
  auto* const begin = reinterpret_cast<std::byte*>(&made->header());
  const auto is_mapped = [begin](std::uint64_t at) {
    unsigned char resident = 0;
    return ::mincore(begin + at / 4096 * 4096, 1, &resident) == 0;
  };
  std::uint64_t bytes = made->segment_bytes();
  EXPECT_TRUE(is_mapped(bytes - 1));
  int parts = 1;
  for (; made->unmap_some(); ++parts) {
    const std::uint64_t left = without_last_slice(begin, bytes);
    EXPECT_FALSE(is_mapped(left));
    EXPECT_FALSE(is_mapped(bytes - 1));
    EXPECT_TRUE(is_mapped(left - 1));
    EXPECT_TRUE(is_mapped(0));
    bytes = left;
  }
  EXPECT_GE(parts, 5);
  EXPECT_LE(bytes, kFreeSliceBytes);
  EXPECT_FALSE(is_mapped(0));
  EXPECT_FALSE(made->unmap_some());
}

TEST(Segment, PartsDoNotOverlapAndFillTheFile) {
  Result<Segment> made = Segment::create(kMaxLanes, 4096, 0);
  ASSERT_TRUE(made) << made.error().text;
  const auto* base = reinterpret_cast<const std::byte*>(&made->header());
  const std::byte* end = base + sizeof(SegmentHeader);
  for (std::uint32_t lane = 0; lane < kMaxLanes; ++lane) {
    const auto entries = std::as_bytes(made->submit_ring(lane).entries);
    EXPECT_GE(entries.data(), end);
    end = entries.data() + entries.size();
  }
  for (std::uint32_t lane = 0; lane < kMaxLanes; ++lane) {
    const auto entries = std::as_bytes(made->completion_ring(lane).entries);
    EXPECT_GE(entries.data(), end);
    end = entries.data() + entries.size();
  }
  EXPECT_GE(made->arena().data(), end);
  EXPECT_EQ(made->arena().data() + made->arena().size(), base + made->segment_bytes());
}

TEST(Segment, CreateRefusesSizesOutOfRange) {
  EXPECT_EQ(Segment::create(0, 4096, 0).error().code, Errc::invalid_argument);
  EXPECT_EQ(Segment::create(kMaxLanes + 1, 4096, 0).error().code, Errc::invalid_argument);
  EXPECT_EQ(Segment::create(1, 0, 0).error().code, Errc::invalid_argument);
  EXPECT_EQ(Segment::create(1, kMaxArenaBytes + 1, 0).error().code, Errc::invalid_argument);
}

TEST(Segment, ItsSizeCannotBeChanged) {
  Result<Segment> made = Segment::create(1, 4096, 0);
  ASSERT_TRUE(made) << made.error().text;
  EXPECT_NE(::ftruncate(made->fd(), 0), 0);
  EXPECT_NE(::ftruncate(made->fd(), static_cast<off_t>(made->segment_bytes() * 2)), 0);
  EXPECT_NE(::fcntl(made->fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(Segment, OnceSealedTakesNoHolesFromThoseWhoHaveMappedIt) {
  Result<Segment> made = Segment::create(1, 1 << 20, 0);
  ASSERT_TRUE(made) << made.error().text;
  Result<Segment> mapped = Segment::map(duplicate(*made), made->segment_bytes());
  ASSERT_TRUE(mapped) << mapped.error().text;
  const std::span<std::byte> arena = mapped->arena();
  arena[0] = std::byte{1};
  const Fd descriptor = duplicate(*made);
  ASSERT_TRUE(seal(descriptor));
  EXPECT_TRUE(seal(descriptor)) << "it is sealed already";

  const auto bytes = static_cast<off_t>(made->segment_bytes());
  EXPECT_NE(::fallocate(mapped->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes), 0);
  EXPECT_NE(::madvise(arena.data(), arena.size(), MADV_REMOVE), 0);
  EXPECT_EQ(made->arena()[0], std::byte{1});
  arena[arena.size() - 1] = std::byte{2};  // a page that nobody has touched
  EXPECT_EQ(made->arena()[arena.size() - 1], std::byte{2});
  EXPECT_TRUE(populate(arena));
  EXPECT_FALSE(Segment::map(duplicate(*made), made->segment_bytes())) << "mapped anew";
}

TEST(Segment, ThatItsClientKeepsFromBeingSealedIsRefused) {
  Result<Segment> made = Segment::create(1, 4096, 0);
  ASSERT_TRUE(made) << made.error().text;
  ASSERT_EQ(::fcntl(made->fd(), F_ADD_SEALS, F_SEAL_SEAL), 0);
  const Status sealed = seal(duplicate(*made));
  ASSERT_FALSE(sealed);
  EXPECT_EQ(sealed.error().code, Errc::permission_denied);
}

TEST(Segment, AnOverwrittenHeaderChangesNothingForItsMaker) {
  Result<Segment> made = Segment::create(2, 4096, 0);
  ASSERT_TRUE(made) << made.error().text;
  const std::byte* arena = made->arena().data();
  std::memset(static_cast<void*>(&made->header()), 0xff, sizeof(SegmentHeader));
  EXPECT_EQ(made->lane_count(), 2u);
  EXPECT_EQ(made->arena().data(), arena);
  EXPECT_EQ(made->arena().size(), 4096u);
  RingConsumer<SubmitEntry> consumer(made->submit_ring(1));
  SubmitEntry got{};
  EXPECT_EQ(consumer.try_pop(got), RingResult::corrupt);
}

// Which has an effect where the operator lets shared memory have them (`ternctl doctor`).
TEST(Segment, AsksForHugePagesWhereTheKernelHasThem) {
  Result<Segment> made = Segment::create(1, 4 << 20, 0);
  ASSERT_TRUE(made) << made.error().text;
  char address[32];
  std::snprintf(address, sizeof(address), "%" PRIxPTR "-",
                reinterpret_cast<std::uintptr_t>(&made->header()));
  std::ifstream maps("/proc/self/smaps");
  std::string line, flags;
  for (bool found = false; flags.empty() && std::getline(maps, line);) {
    found = found || line.rfind(address, 0) == 0;
    if (found && line.rfind("VmFlags:", 0) == 0) flags = line + ' ';
  }
  ASSERT_NE(flags, "");
  const bool has_them = ::access("/sys/kernel/mm/transparent_hugepage/shmem_enabled", F_OK) == 0;
  EXPECT_EQ(flags.find(" hg ") != std::string::npos, has_them) << flags;
}

TEST(SegmentMap, AcceptsAGoodHeader) {
  EXPECT_EQ(map_after([](SegmentHeader&) {}), Errc::ok);
}

TEST(SegmentMap, TellsNotReadyFromWrongVersionFromWrongContent) {
  EXPECT_EQ(map_after([](SegmentHeader& h) { h.abi = 0; }), Errc::would_block);
  EXPECT_EQ(map_after([](SegmentHeader& h) { h.abi = 2; }), Errc::version_mismatch);
  EXPECT_EQ(map_after([](SegmentHeader& h) { h.magic ^= 1; }), Errc::protocol_error);
}

TEST(SegmentMap, RefusesSizesAndOffsetsThatDoNotFit) {
  const std::function<void(SegmentHeader&)> changes[] = {
      [](SegmentHeader& h) { h.lane_count = 0; },
      [](SegmentHeader& h) { h.lane_count = 3; },
      [](SegmentHeader& h) { h.lane_count = 65535; },
      [](SegmentHeader& h) { h.segment_bytes += 4096; },
      [](SegmentHeader& h) { h.submit_entries_offset = 0; },
      [](SegmentHeader& h) { h.submit_entries_offset = ~std::uint64_t{0}; },
      [](SegmentHeader& h) { h.completion_entries_offset = h.segment_bytes; },
      [](SegmentHeader& h) { h.arena_offset = h.segment_bytes + 4096; },
      [](SegmentHeader& h) { h.arena_bytes = 0; },
      [](SegmentHeader& h) { h.arena_bytes += 4096; },
      [](SegmentHeader& h) { h.arena_bytes = ~std::uint64_t{0}; },
  };
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    EXPECT_EQ(map_after(changes[i]), Errc::protocol_error) << i;
  }
}

TEST(SegmentRegion, IsAnArenaWithoutLanes) {
  Result<Segment> made = Segment::create_region(5000);
  ASSERT_TRUE(made) << made.error().text;
  EXPECT_EQ(made->arena_bytes(), 8192u);
  EXPECT_EQ(made->lane_count(), 0u);
  Result<Segment> mapped = Segment::map_region(duplicate(*made), made->segment_bytes());
  ASSERT_TRUE(mapped) << mapped.error().text;
  made->arena()[8191] = std::byte{7};
  EXPECT_EQ(mapped->arena()[8191], std::byte{7});
  EXPECT_EQ(Segment::map(duplicate(*made), made->segment_bytes()).error().code,
            Errc::protocol_error)
      << "no client's segment";
  Result<Segment> arena = Segment::create(1, 4096, 0);
  EXPECT_EQ(Segment::map_region(duplicate(*arena), arena->segment_bytes()).error().code,
            Errc::protocol_error);
  EXPECT_EQ(Segment::create_region(0).error().code, Errc::invalid_argument);
}

TEST(SegmentMap, RefusesAFileOfAnotherSize) {
  Result<Segment> made = Segment::create(1, 4096, 0);
  ASSERT_TRUE(made) << made.error().text;
  EXPECT_EQ(Segment::map(duplicate(*made), made->segment_bytes() - 4096).error().code,
            Errc::protocol_error);
  Fd tiny(::memfd_create("tiny", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(tiny.get(), 100), 0);
  EXPECT_EQ(Segment::map(std::move(tiny), 100).error().code, Errc::protocol_error);
  EXPECT_EQ(Segment::map(Fd(), 4096).error().code, Errc::io_error);
}

TEST(SegmentMap, AForkedChildHasNoMapping) {
  Result<Segment> made = Segment::create(1, 4096, 0);
  ASSERT_TRUE(made) << made.error().text;
  Result<Segment> mapped = Segment::map(duplicate(*made), made->segment_bytes());
  ASSERT_TRUE(mapped) << mapped.error().text;
  const pid_t child = ::fork();
  if (child == 0) {
    // mincore says ENOMEM for addresses that are not mapped.
    unsigned char resident = 0;
    ::_exit(::mincore(&mapped->header(), 4096, &resident) != 0 && errno == ENOMEM ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tern::shm
