#pragma once

// The lock that says whether a counters file has a daemon: an open file description lock for
// writing (fcntl(2)), which takes a descriptor that may write. Whoever may only read the file
// cannot hold a lock that looks like it, as he could with flock(2), and keep a daemon from starting
// after another has died.

namespace tern::counters {

// Held until the last copy of the descriptor is closed. False, with errno, if another has it.
bool lock_as_writer(int fd) noexcept;
// Whether some other descriptor of the file has that lock. The descriptor need only read.
bool is_written(int fd) noexcept;

}  // namespace tern::counters
