// Arenas: large ones, ones that go while they are full, ones with holes.

#include <sys/mman.h>
#include <unistd.h>

#include <stop_token>
#include <thread>

#include "tests/attack/attack.h"
#include "tests/attack/requests.h"

namespace tern::attack {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

void freed_arenas(Assault& assault) {
  while (assault.goes_on()) {
    HostileClient client(assault.target.socket);
    if (!client.hello(256 * kMiB, "attacker")) continue;
    const auto arena = client.segment().arena();
    ::madvise(arena.data(), arena.size(), MADV_POPULATE_WRITE);
  }
}

void untouched_arenas(Assault& assault) {
  while (assault.goes_on()) {
    HostileClient client(assault.target.socket);
    client.hello(std::uint64_t{1} << (30 + assault.below(20)), "attacker");
  }
}

// Pages that the client takes away again while a lane reads and writes them.
void arena_with_holes(Assault& assault) {
  constexpr std::uint64_t kBytes = 4 * kMiB;
  HostileClient client(assault.target.socket);
  if (!client.hello(2 * kBytes + kMiB, "attacker")) return;
  client.take_pages(2 * kBytes);
  const std::uint64_t group = join_alone(client);
  const auto arena = client.segment().arena();
  for (std::uint64_t use = 0; assault.goes_on();) {
    auto entry = HostileClient::good_entry(group, use);
    entry.count = kBytes / 4;
    entry.output_offset = kBytes;
    use += client.submit(entry) ? 1 : 0;
    ::madvise(arena.data(), 2 * kBytes, MADV_REMOVE);
    client.forget_completions();
  }
}

// Whoever comes to a page sleeps while a hole is punched around it, and the pages are many. Both
// before the daemon can have sealed the memory and after.
void punched_rings(Assault& assault) {
  constexpr std::uint64_t kBytes = 64 * kMiB;
  while (assault.goes_on()) {
    HostileClient client(assault.target.socket);
    if (!client.hello(kBytes, "attacker")) continue;
    const auto arena = client.segment().arena();
    auto* const all = static_cast<void*>(&client.segment().header());
    const std::size_t bytes = client.segment().segment_bytes();
    std::jthread punching([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        ::madvise(arena.data(), arena.size(), MADV_POPULATE_WRITE);
        ::madvise(all, bytes, MADV_REMOVE);
      }
    });
    const std::uint64_t group = join_alone(client);
    for (std::uint64_t use = 0; use < 100; ++use) {
      client.submit(HostileClient::good_entry(group, use));
      client.forget_completions();
    }
  }
}

// Of an arena none of whose pages are there the daemon is to find memory for 512 MiB.
void charged_memory(Assault& assault) {
  while (assault.goes_on()) {
    HostileClient client(assault.target.socket);
    if (!client.hello(512 * kMiB, "attacker")) continue;
    const std::uint64_t group = join_alone(client);
    auto entry = HostileClient::good_entry(group, 0);
    entry.count = 64 * kMiB;
    entry.output_offset = 256 * kMiB;
    client.submit(entry);
    client.is_thrown_out();
  }
}

// Where the kernel promises no more memory than it has (vm.overcommit_memory = 2): all that is left
// is promised to this process, and then the daemon is to touch pages of the arena that are not
// there yet.
void taken_memory(Assault& assault) {
  constexpr std::uint64_t kBytes = 16 * kMiB;
  HostileClient client(assault.target.socket);
  if (!client.hello(2 * kBytes + kMiB, "attacker")) return;
  const std::uint64_t group = join_alone(client);
  const auto arena = client.segment().arena();
  // This process writes to its rings, and a page of them that it cannot have would end it.
  ::madvise(static_cast<void*>(&client.segment().header()),
            client.segment().segment_bytes() - arena.size(), MADV_POPULATE_WRITE);
  for (std::size_t bytes = std::size_t{1} << 40; bytes >= 4096;) {
    void* const taken =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (taken == MAP_FAILED) bytes /= 2;
  }
  for (std::uint64_t use = 0; assault.goes_on();) {
    auto entry = HostileClient::good_entry(group, use);
    entry.count = kBytes / 4;
    entry.output_offset = kBytes;
    use += client.submit(entry) ? 1 : 0;
    ::madvise(arena.data(), arena.size(), MADV_REMOVE);
    client.forget_completions();
  }
}

constexpr Attack kAttacks[] = {
    {"freed_arenas", "memory of clients that go is freed where nobody waits", freed_arenas},
    {"untouched_arenas", "arenas of one user have a bound", untouched_arenas},
    {"arena_with_holes", "a hole in an arena reads as zeros", arena_with_holes},
    {"punched_rings", "no hole in a client's memory puts the daemon to sleep", punched_rings},
    {"taken_memory", "a page that cannot be had ends its owner's job and not the daemon",
     taken_memory, Stage::plain, Standing::alone},
    {"charged_memory", "who uses memory pays for it", charged_memory},
};

}  // namespace

std::span<const Attack> memory_attacks() { return kAttacks; }

}  // namespace tern::attack
