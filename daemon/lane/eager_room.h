#pragma once

// Where values wait that come before this node asks for them: with announcements of small ops, and
// with offers of small sends. How many there may be is a promise to the other nodes: a link whose
// frame finds no place is lost. So all of it is mapped when an epoch begins, and the group's
// account pays for all of it, touched or not (docs/adr/0065-promised-room-is-paid-for.md).

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "collective/group_shape.h"
#include "daemon/lane/mapping.h"
#include "daemon/lane/slab_pool.h"

namespace tern::daemon {

// Of one group on one lane, a pool for each node: none takes another's room.
class EagerRoom {
 public:
  // out_of_memory: the kernel maps no more for this process; the text has the remedy.
  static Result<EagerRoom> make(const collective::GroupShape& shape);
  // What it takes when all of it has been touched.
  static std::uint64_t bytes_for(const collective::GroupShape& shape) noexcept;

  EagerRoom() noexcept = default;  // none: nothing comes early

  // By node. They stay where they are when the room is moved.
  std::span<SlabPool> announced() noexcept { return announced_; }
  std::span<SlabPool> offered() noexcept { return offered_; }

  // Of the pool with this number, if nobody uses it. False: there is no such pool.
  bool drop_pages(std::size_t pool) noexcept;
  // As Mapping's.
  bool unmap_some() noexcept { return memory_.unmap_some(); }

 private:
  Mapping memory_;
  std::vector<SlabPool> announced_;
  std::vector<SlabPool> offered_;
};

}  // namespace tern::daemon
