#pragma once

// Pages of shared memory that no process has touched yet. Whoever is the first to touch one has the
// kernel find memory for it, which is charged to that process's control group.

#include <cstddef>
#include <span>

#include "base/result.h"

namespace tern::shm {

// Whether this process may leave pages absent. The first call opens a descriptor, which stays open.
// Thread: any. unsupported: the kernel (before Linux 4.14, or without userfaultfd) or a filter of
// system calls does not allow it.
Status can_leave_absent();

// From now on this process finds no memory for pages of this part of its mapping. To touch one that
// is absent is answered as if the kernel had none: SIGBUS (shm/page_guard.h), or EFAULT of a system
// call. Pages that are there, or swapped out, are used as ever. Costs nothing at a page that is
// there. Ends with the mapping; other mappings of the same memory are as they were.
//
// Thread: any. unsupported: as above, or this memory is none for it; nothing has changed.
// Of a part that does not begin and end at a page of this machine, the whole pages within.
Status leave_absent(std::span<std::byte> part);

}  // namespace tern::shm
