#pragma once

// Why sends and recvs fail, in words. Texts lie where the caller says, and live as long.

#include "collective/passing.h"

namespace tern::collective {

using PassText = char[184];

// That of what has been sent all is there.
inline constexpr Failure kDelivered{};

// What has happened to the group or to a rank, as this pass sees it: "send to rank 3, tag 7: ...".
Failure failure_of(const Pass& pass, const Failure& why, PassText& text);

// Its other side has not come.
Failure timeout_of(const Pass& pass, std::uint64_t timeout_ns, PassText& text);

// It has met its other side, and nothing moves.
Failure stall_of(const Pass& pass, std::uint64_t timeout_ns, PassText& text);

// Errc::ok: what is sent fits a recv with this room.
Failure disagreement(const Envelope& sent, const Envelope& room, PassText& text);

// A frame of the node's has come damaged.
Failure damage_by(std::uint32_t node, PassText& text);

}  // namespace tern::collective
