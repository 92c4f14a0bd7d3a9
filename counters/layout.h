#pragma once

// The bytes of the counters file: docs/counters-file.md says them in words. One file for each
// daemon, written by its threads as they count and read by anybody whom its mode lets, at any time
// and after the daemon's death.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "wire/versions.h"

namespace tern::counters {

inline constexpr std::uint64_t kMagic = 0x52544e434e524554;  // "TERNCNTR"
inline constexpr std::uint32_t kVersion = wire::kCountersFile;
// What a reader takes at most: several times the largest file of any daemon.
inline constexpr std::uint64_t kMaxFileBytes = 4 << 20;
inline constexpr std::uint32_t kMaxCounters = 4096;
inline constexpr std::uint32_t kMaxInstances = 1024;

// At offset 0. Texts end with a zero; reserved bytes are zero.
struct FileHeader {
  std::uint64_t magic;
  // Written last, with release: a reader that sees it sees all that does not count.
  std::uint32_t version;
  std::uint32_t header_bytes;  // where descriptors of a later version may begin
  std::uint64_t file_bytes;
  std::uint64_t pid;
  std::uint64_t started_ns;  // the daemon, on the clock of the calendar (CLOCK_REALTIME)
  std::uint64_t written_ns;  // the same clock; once a second while the daemon lives
  std::uint32_t counter_count;
  std::uint32_t descriptor_bytes;  // from one descriptor to the next
  std::uint64_t descriptors_offset;
  char node_id[40];
  char software[24];  // version of the daemon
  std::uint8_t reserved[64];
};

enum class Kind : std::uint8_t {
  counter = 0,  // only grows
  gauge = 1,    // goes up and down
};

// What one counter is and where its values are: `instances` of them, `stride` bytes apart. Each is
// an aligned 64-bit number with one writer; the counter's value is their sum.
struct Descriptor {
  char name[48];
  char unit[16];
  char help[160];
  std::uint64_t offset;  // of the first value, from the beginning of the file
  std::uint64_t stride;
  std::uint32_t instances;
  std::uint8_t kind;
  std::uint8_t reserved[11];
};

static_assert(std::has_unique_object_representations_v<FileHeader> && sizeof(FileHeader) == 192);
static_assert(std::has_unique_object_representations_v<Descriptor> && sizeof(Descriptor) == 256);

}  // namespace tern::counters
