#pragma once

// All that the conductor may ask of a lane, and all that a lane may tell the conductor. Both are
// plain data on bounded rings; whoever frees an object behind a pointer is said beside it.

#include <boost/lockfree/spsc_queue.hpp>
#include <cstdint>
#include <memory>

#include "base/errc.h"
#include "base/fd.h"
#include "net/transport.h"
#include "shm/segment.h"
#include "tuner/error_guard.h"
#include "wire/frame.h"

namespace tern::daemon {

class LaneGroup;
struct StateMove;
struct TensorState;

// A connected process, as lanes see it. Made and freed by the conductor; a lane uses it between
// add_client and its client_dropped.
struct ClientMemory {
  std::uint64_t id = 0;
  shm::Segment segment;
  Fd notify;                 // the daemon's end of the pollable pair
  std::vector<Fd> eventfds;  // one per lane
};

enum class CommandKind : std::uint8_t {
  add_client,        // client
  drop_client,       // client; answered by client_dropped
  add_group,         // group: the lane opens its links, answers group_ready
  end_group,         // group, code, text: all its ops fail
  rank_left,         // group, number = local rank; answered by rank_released
  remove_group,      // group; answered by group_removed
  set_weight,        // group, number: of its job, from 1
  add_tensor,        // group, tensor
  drop_tensor,       // group, tensor; answered by tensor_dropped
  adopt_connection,  // incoming (the lane's now), hello
  fail_op,     // group, tensor_id, sequence, code, number = rank, text: failed on another lane
  move_state,  // group, move: copies a tensor's state; answered by state_moved
  goodbye,     // tell all peers that the daemon ends
};

struct Command {
  CommandKind kind{};
  Errc code = Errc::ok;
  std::uint64_t number = 0;
  ClientMemory* client = nullptr;
  LaneGroup* group = nullptr;
  TensorState* tensor = nullptr;
  StateMove* move = nullptr;
  net::Incoming* incoming = nullptr;
  wire::HelloBody hello{};
  std::uint64_t tensor_id = 0;
  std::uint64_t sequence = 0;
  char text[184] = {};
};

enum class EventKind : std::uint8_t {
  client_dropped,     // client
  client_misbehaved,  // client, text: its ring is corrupt
  entry_refused,      // client, text: for the log, at most one a second of each client
  peer_refused,       // peer, text: what another daemon sent; for the log
  carrier_changed,    // peer, text: what its frames travel on, and why; for the log
  group_ready,        // group: all its links are open
  group_removed,      // group
  rank_released,      // group, number = local rank: no op uses its memory any more
  tensor_dropped,     // group, tensor
  link_lost,          // group, number = node, code, text
  op_failed,          // group, tensor_id, sequence, code, number = rank, lanes, text
  state_moved,        // group, move, code, text
  op_record,          // record: for the flight recorder; dropped when the ring is nearly full
  choice_used,   // group, tensor_id, sequence, number = ChoiceUsed: how ops are sent from now on
  chunk_choice,  // group, tensor_id, sequence, number = leg << 40 | candidate << 32 | chunk
  state_reset,   // group, tensor_id, number: so many parts of its codec state are zero again
};

// How a lane sends an op: by a version of the tuner's choice, or all of it by one candidate,
// because the leading node does.
struct ChoiceUsed {
  static constexpr std::uint8_t kVersion = 0xff;
  std::uint32_t version = 0;
  std::uint8_t lead = kVersion;
  std::uint8_t probe_chunks = 0;

  std::uint64_t packed() const noexcept {
    return std::uint64_t{probe_chunks} << 40 | std::uint64_t{lead} << 32 | version;
  }
  static ChoiceUsed unpacked(std::uint64_t number) noexcept {
    return {static_cast<std::uint32_t>(number), static_cast<std::uint8_t>(number >> 32),
            static_cast<std::uint8_t>(number >> 40)};
  }
};

// One line of the flight recorder.
struct OpRecord {
  std::uint64_t tensor = 0, sequence = 0, count = 0, bytes_sent = 0;
  std::uint64_t submitted_ns = 0, started_ns = 0, ended_ns = 0;
  std::uint16_t kind = 0, lane = 0;
  std::uint8_t dtype = 0, reduction = 0, lossy = 0, eager = 0;
  // For the tuner, of ops whose recipe it chose.
  std::uint8_t tuned = 0;
  std::uint8_t mixed = 0;       // not all of it was sent by its choice
  std::uint8_t surprising = 0;  // it took another time than usual, or there is no usual yet
  std::uint8_t alike = 1;       // other nodes' results came by the same recipe
  std::uint8_t lead = kNone;    // the candidate that it was sent by because the leading node did
  std::uint8_t lead_is_trial = 0;
  static constexpr std::uint8_t kNone = 0xff;
  std::uint32_t choice = 0;  // its version
  std::uint64_t encode_ns = 0, encoded_bytes = 0;
  tuner::ErrorSample error;
};

struct Event {
  EventKind kind{};
  std::uint16_t lane = 0;
  Errc code = Errc::ok;
  std::uint32_t lanes = 0;  // bits
  std::uint64_t number = 0;
  ClientMemory* client = nullptr;
  LaneGroup* group = nullptr;
  TensorState* tensor = nullptr;
  StateMove* move = nullptr;
  wire::NodeId peer;
  std::uint64_t tensor_id = 0;
  std::uint64_t sequence = 0;
  OpRecord record;
  char text[184] = {};
};

using CommandRing = boost::lockfree::spsc_queue<Command, boost::lockfree::capacity<1024>>;
using EventRing = boost::lockfree::spsc_queue<Event, boost::lockfree::capacity<4096>>;

}  // namespace tern::daemon
