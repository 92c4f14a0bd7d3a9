#pragma once

// What only the daemon needs of an op's plan, and what nodes must agree on.

#include <cstdint>
#include <span>

#include "collective/group_shape.h"
#include "collective/op.h"

namespace tern::collective {

// Why an announcement fails whose kind has no plan.
inline constexpr const char* kUnknownKind = "unknown kind of operation";

// The op is what this announcement says. REQUIRES: the kind has a plan; dtype and root are sound.
void describe(Op& op, const wire::AnnounceBody& body, const GroupShape& shape);
// The op's chunks. `counts`: as a rank of this node gives them, whose table the op has; null: none
// are given.
void cut(Op& op, const GroupShape& shape, const std::uint64_t* counts);

// The op as its plan sees it, for one rank of the group.
plan::Shape shape_for(const Op& op, std::uint32_t rank, const GroupShape& shape) noexcept;

// A node does not want it to be eager: it takes the two legs, unless it has started, or nobody may
// want them.
void decline_eager(Op& op, const GroupShape& shape) noexcept;

// Whether what a node contributes with its announcement may be a block: then it travels so, however
// it is compressed, and nobody declines.
bool may_bring_block(const Op& op, const GroupShape& shape) noexcept;

// Whether this node wants the two legs for an op that would fit in its announcements, and must say
// so: of an op that gives all nodes values the others see it by their absence.
bool declines(const Op& op, const GroupShape& shape) noexcept;

// How many bytes of values `from` sends to `to` with its announcement.
std::uint64_t eager_bytes_of(const Op& op, std::uint32_t from, std::uint32_t to,
                             const GroupShape& shape) noexcept;

// Whether the values that came with an announcement of `node` are those that it should bring: none,
// or all, or a block. A node that declines brings none. What announces chunks brings a block to
// their owners, also of elements as they are.
bool eager_bytes_agree(Op& op, std::uint32_t node, const wire::AnnounceBody& body,
                       const GroupShape& shape) noexcept;

// Flags of an announcement that each node says of itself alone.
inline constexpr std::uint8_t kOwnFlags =
    wire::kAnnounceDeclines | wire::kAnnounceBlock | wire::kAnnounceClientBlocks;

// Whether two announcements may be of one op.
bool same_op(const wire::AnnounceBody& a, const wire::AnnounceBody& b) noexcept;
// Who says what, for people.
void write_mismatch(const wire::AnnounceBody& first, const wire::AnnounceBody& other,
                    std::span<char> out) noexcept;

}  // namespace tern::collective
