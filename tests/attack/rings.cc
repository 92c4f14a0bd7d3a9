// The memory that the daemon shares with a client: rings, doorbells, and an arena under change.

#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "shm/copy_progress.h"
#include "tests/attack/attack.h"
#include "tests/attack/requests.h"
#include "tests/attack/sockets.h"

namespace tern::attack {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

void store(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref<std::uint64_t>(word).store(value);
}

void scribbled_rings(Assault& assault) {
  while (assault.goes_on()) {
    HostileClient client(assault.target.socket);
    if (!enter(client) || join_alone(client) == 0) continue;
    auto& rings = client.segment().lane_rings(0);
    switch (assault.below(5)) {
      case 0:
        store(rings.submit.tail, assault.random());
        break;
      case 1: {
        const auto ring = client.segment().submit_ring(0);
        for (auto& entry : ring.entries) {
          const auto noise = assault.noise(sizeof entry);
          std::memcpy(static_cast<void*>(&entry), noise.data(), noise.size());
        }
        store(rings.submit.tail, shm::kRingEntries);
        break;
      }
      case 2:
        store(rings.completion.head, assault.random());
        client.submit(HostileClient::good_entry(1, 0));
        break;
      case 3: {
        auto* words = static_cast<std::uint64_t*>(static_cast<void*>(&client.segment().header()));
        for (std::size_t i = 0; i < sizeof(shm::SegmentHeader) / 8; ++i) {
          store(words[i], assault.random());
        }
        break;
      }
      default:
        store(rings.submit.head, assault.random());
    }
    client.wake();
    client.drain();
  }
}

// One field after another is wrong, with entries between that are right.
void bad_entries(Assault& assault) {
  HostileClient client(assault.target.socket);
  if (!enter(client)) return;
  client.take_pages(kMiB);
  const std::uint64_t group = join_alone(client);
  for (std::uint64_t use = 0; assault.goes_on();) {
    auto entry = HostileClient::good_entry(group, use);
    if (assault.below(8) != 0) {
      const std::size_t at = 8 + assault.below(sizeof entry - 16);
      const std::uint64_t value = assault.random();
      std::memcpy(static_cast<char*>(static_cast<void*>(&entry)) + at, &value, sizeof value);
    } else {
      ++use;
    }
    client.submit(entry);
    client.forget_completions();
  }
}

void full_completions(Assault& assault) {
  while (true) {
    HostileClient client(assault.target.socket);
    if (!enter(client)) continue;
    const std::uint64_t group = join_alone(client);
    for (std::uint64_t use = 0; client.drain(); use += 1) {
      assault.goes_on();
      client.submit(HostileClient::good_entry(group, use));
    }
  }
}

// Work that is real, of the attacker alone, and as much as he can have.
void own_operations(Assault& assault, std::uint64_t bytes) {
  HostileClient client(assault.target.socket);
  if (!client.hello(2 * bytes + kMiB, "attacker")) return;
  client.take_pages(2 * bytes);
  const std::uint64_t group = join_alone(client);
  for (std::uint64_t use = 0; assault.goes_on(); ++use) {
    auto entry = HostileClient::good_entry(group, use);
    entry.count = bytes / 4;
    entry.output_offset = bytes;
    while (!client.submit(entry)) client.completion(std::chrono::milliseconds(5));
    client.forget_completions();
  }
}
void small_operations(Assault& assault) { own_operations(assault, 64); }
void large_operations(Assault& assault) { own_operations(assault, 64 * kMiB); }

// Inputs change while they are encoded.
void changing_arena(Assault& assault) {
  constexpr std::uint64_t kBytes = 4 * kMiB;
  HostileClient client(assault.target.socket);
  if (!client.hello(2 * kBytes + kMiB, "attacker")) return;
  client.take_pages(2 * kBytes);
  const std::uint64_t group = join_alone(client);
  const std::uint64_t tensor = declare(client, {group, kBytes / 4, "tensor", "ef(3lc:s=1)"});
  const auto arena = client.segment().arena();
  for (std::uint64_t use = 0; assault.goes_on();) {
    auto entry = HostileClient::good_entry(group, use);
    entry.tensor = tensor;
    entry.role = 1;
    entry.count = kBytes / 4;
    entry.output_offset = kBytes;
    use += client.submit(entry) ? 1 : 0;
    for (int i = 0; i < 20'000; ++i) {
      const auto value = static_cast<std::byte>(assault.random());
      std::atomic_ref(arena[assault.below(2 * kBytes)]).store(value, std::memory_order_relaxed);
    }
    client.forget_completions();
  }
}

// Of memory that is copied while lanes work: watermarks that rise, fall, lie and stand still.
void lying_watermarks(Assault& assault) {
  constexpr std::uint64_t kSlots = 64, kSlotBytes = 4096;
  HostileClient client(assault.target.socket);
  if (!client.hello(4 * kMiB, "attacker")) return;
  client.take_pages(4 * kMiB);
  const std::uint64_t group = join_alone(client);
  const auto arena = client.segment().arena();
  const shm::CopyProgress::Shape shape{1, 8};
  const auto block = [&](std::uint64_t slot) { return 2 * kMiB + slot * kSlotBytes; };
  for (std::uint64_t use = 0; assault.goes_on();) {
    auto entry = HostileClient::good_entry(group, use);
    entry.count = kMiB / 4;
    entry.output_offset = kMiB;
    entry.flags = shm::kEntryHasProgress;
    entry.progress_offset = block(use % kSlots);
    entry.progress_records = shape.records;
    std::memset(&arena[entry.progress_offset], 0, shape.bytes());
    use += client.submit(entry) ? 1 : 0;
    for (int i = 0; i < 100; ++i) {
      shm::CopyProgress progress(&arena[block(assault.below(kSlots))], shape);
      const bool lies = assault.below(10) == 0;
      progress.raise_input(lies ? assault.random() : assault.below(kMiB + 1));
      client.wake();
    }
    client.forget_completions();
  }
}

void cancels(Assault& assault) {
  HostileClient client(assault.target.socket);
  if (!enter(client)) return;
  const std::uint64_t group = join_alone(client);
  for (std::uint64_t use = 0; assault.goes_on(); ++use) {
    auto entry = HostileClient::good_entry(group, use);
    client.submit(entry);
    entry.kind = static_cast<std::uint16_t>(shm::OpKind::cancel);
    entry.ticket = 1 + assault.below(use + 2);
    client.submit(entry);
    client.forget_completions();
  }
}

// Ops that the second rank never submits, in as many groups as are given.
void unmatched_operations(Assault& assault) {
  std::vector<std::unique_ptr<HostileClient>> idle;
  HostileClient client(assault.target.socket);
  if (!enter(client)) return;
  std::vector<std::uint64_t> groups;
  for (int i = 0; i < 60; ++i) {
    auto other = std::make_unique<HostileClient>(assault.target.socket);
    if (!enter(*other)) break;
    const std::uint64_t group = join_two(client, *other);
    if (group == 0) break;
    groups.push_back(group);
    idle.push_back(std::move(other));
  }
  for (std::uint64_t use = 0; assault.goes_on() && !groups.empty(); ++use) {
    client.submit(HostileClient::good_entry(groups[use % groups.size()], use / groups.size()));
    client.forget_completions();
  }
}

// The doorbell, and the descriptor that is to be made readable, which nobody drains.
void wakes(Assault& assault) {
  HostileClient client(assault.target.socket);
  if (!enter(client)) return;
  const std::uint64_t group = join_alone(client);
  auto& header = client.segment().header();
  for (std::uint64_t use = 0; assault.goes_on(); ++use) {
    std::atomic_ref(header.sleepers).store(static_cast<std::uint32_t>(assault.random()));
    std::atomic_ref(header.fd_armed).store(1);
    std::atomic_ref(client.segment().lane_rings(0).lane_sleeps).store(1);
    client.wake();
    if (use % 64 == 0) client.submit(HostileClient::good_entry(group, use / 64));
    const char byte = 'x';
    if (::send(client.notify_fd(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EPIPE) {
      return;
    }
    client.forget_completions();
  }
}

constexpr Attack kAttacks[] = {
    {"scribbled_rings", "no index or entry of a ring makes the daemon read or write elsewhere",
     scribbled_rings},
    {"bad_entries", "entries that are refused take no more than their job's share", bad_entries},
    {"full_completions", "no lane waits for room in a completion ring", full_completions},
    {"small_operations", "a flood of small operations takes no more than its share",
     small_operations},
    {"large_operations", "a flood of large operations takes no more than its share",
     large_operations},
    {"changing_arena", "an encoder stays in its span whatever its input becomes", changing_arena},
    {"lying_watermarks", "a watermark that lies or stands still fails its own operation",
     lying_watermarks},
    {"cancels", "cancelling what is not there costs nobody else", cancels},
    {"unmatched_operations", "operations that never begin hold only their user's window",
     unmatched_operations},
    {"wakes", "waking a lane without end costs others nothing", wakes},
};

}  // namespace

std::span<const Attack> ring_attacks() { return kAttacks; }

}  // namespace tern::attack
