#pragma once

// How many descriptors the daemon may need, as its settings say, and how many it may have.

#include <cstdint>
#include <string>

#include "daemon/config/config.h"

namespace tern::daemon {

struct DescriptorBudget {
  // Of one client: each holds a descriptor until the daemon has sealed it. Of threads that make
  // regions at once so many find room.
  static constexpr std::uint64_t kRegionsNotOpen = 8;

  std::uint64_t limit = 0;       // what the process may have; 0: as many as there are
  std::uint64_t per_client = 0;  // of one that has said hello
  // What the settings allow: clients and connections without a hello, links of lanes, all else.
  std::uint64_t clients = 0, links = 0, rest = 0;

  std::uint64_t needed() const noexcept { return clients + links + rest; }
  // Clients may not take the last ones: without them nobody could ask what is wrong.
  std::uint64_t reserve() const noexcept;
  // With so many taken there is no room for another client.
  bool is_full(std::uint64_t taken) const noexcept;
};

// Of this process, now; 0: as many as there are.
std::uint64_t descriptor_limit();

// Makes the kernel's table of the process' descriptors as large as it will ever be needed. When the
// table of a process with several threads grows, the kernel waits until no processor reads the old
// one, and each thread that wants a descriptor meanwhile waits too: some hundred milliseconds on a
// busy machine. Before there is a second thread.
void make_room_for_descriptors(const DescriptorBudget& budget);

DescriptorBudget descriptor_budget(const Config& config, std::uint64_t limit);

// A sentence with its remedy. Empty: the limit suffices for all that the settings allow.
std::string descriptor_trouble(const Config& config, const DescriptorBudget& budget);

// Whether an operator has asked for so many: what nobody has set is as much as the limit allows.
bool asks_for_descriptors(const Config& config);

}  // namespace tern::daemon
