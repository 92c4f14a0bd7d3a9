#pragma once

// All that the conductor may ask of a lane, and all that a lane may tell the conductor. Both are
// plain data on bounded rings; whoever frees an object behind a pointer is said beside it.

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/lockfree/spsc_queue.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <variant>

#include "base/errc.h"
#include "base/fd.h"
#include "net/transport.h"
#include "shm/segment.h"
#include "tuner/candidate.h"
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
  std::vector<Fd> watched;   // the same again, for the lane's loop, which takes its own
  // When a lane last saw that the client had copied anything. It copies what it has submitted one
  // after the other, for whichever lane.
  std::atomic<std::uint64_t> copied_ns{0};
};

// Memory beside a client's arena, as lanes see it. Made and freed by the conductor; a lane uses it
// between AddRegion and its RegionDropped, or the ClientDropped of its client.
struct RegionMemory {
  std::uint32_t id = 0;
  shm::Segment segment;  // without lanes
};

// A text that travels by value; what does not fit is cut.
class Sentence {
 public:
  Sentence() = default;
  explicit Sentence(std::string_view text) noexcept {
    std::memcpy(text_.data(), text.data(), std::min(text.size(), text_.size() - 1));
  }
  const char* c_str() const noexcept { return text_.data(); }

 private:
  std::array<char, 184> text_{};
};

// ---- What the conductor asks of a lane ----------------------------------------------------------

namespace command {

struct AddClient {
  ClientMemory* client = nullptr;
};
struct DropClient {  // answered by event::ClientDropped
  ClientMemory* client = nullptr;
};
struct AddRegion {
  std::uint64_t client = 0;
  RegionMemory* region = nullptr;
};
struct DropRegion {  // answered by event::RegionDropped when no op uses it
  std::uint64_t client = 0;
  std::uint32_t region = 0;
};
struct AddGroup {  // the lane opens its links, answers event::GroupReady
  LaneGroup* group = nullptr;
};
struct EndGroup {  // all its ops fail
  LaneGroup* group = nullptr;
  Errc code = Errc::ok;
  Sentence text;
};
struct RankLeft {  // answered by event::RankReleased
  LaneGroup* group = nullptr;
  std::uint32_t local_rank = 0;
};
struct RemoveGroup {  // answered by event::GroupRemoved
  LaneGroup* group = nullptr;
};
struct SetWeight {  // of the group's job, from 1
  LaneGroup* group = nullptr;
  std::uint32_t weight = 1;
};
struct AddTensor {  // also of one that is being dropped: it stays
  LaneGroup* group = nullptr;
  TensorState* tensor = nullptr;
};
struct DropTensor {  // answered by event::TensorDropped, unless AddTensor comes first
  LaneGroup* group = nullptr;
  TensorState* tensor = nullptr;
  std::uint32_t release = 0;
};
struct AdoptConnection {
  net::Incoming* incoming = nullptr;  // the lane's now
  wire::HelloBody hello{};
};
struct FailOp {  // it failed on another lane
  LaneGroup* group = nullptr;
  std::uint64_t tensor = 0;
  std::uint64_t sequence = 0;
  Errc code = Errc::ok;
  std::uint32_t about_rank = 0;
  Sentence text;
};
struct MoveState {  // copies a tensor's state; answered by event::StateMoved
  LaneGroup* group = nullptr;
  StateMove* move = nullptr;
};
struct Goodbye {};  // tell all peers that the daemon ends

}  // namespace command

using Command =
    std::variant<command::AddClient, command::DropClient, command::AddRegion, command::DropRegion,
                 command::AddGroup, command::EndGroup, command::RankLeft, command::RemoveGroup,
                 command::SetWeight, command::AddTensor, command::DropTensor,
                 command::AdoptConnection, command::FailOp, command::MoveState, command::Goodbye>;

// ---- What a lane tells the conductor ------------------------------------------------------------

// How a lane sends an op: by a version of the tuner's choice, or as the leading node does, all
// results by one candidate and all contributions by one.
struct ChoiceUsed {
  static constexpr std::uint8_t kVersion = 0xff;
  std::uint32_t version = 0;
  std::uint8_t lead = kVersion;  // of results
  std::uint8_t lead_contributions = kVersion;
  std::uint8_t probe_chunks = 0;

  std::uint64_t packed() const noexcept {
    return std::uint64_t{probe_chunks} << 48 | std::uint64_t{lead_contributions} << 40 |
           std::uint64_t{lead} << 32 | version;
  }
};

// For the tuner: how an op was sent whose recipe it has chosen, and what that took.
struct TunedRecord {
  std::uint32_t choice = 0;  // its version
  bool mixed = false;        // not all of it was sent by its choice
  bool surprising = false;   // it took another time than usual, or there is no usual yet
  bool alike = true;         // other nodes' results came by the same recipe
  // The candidates that it was sent by where the leading node or the client has a say, and not
  // `choice` alone: results, and contributions.
  std::uint8_t lead = tuner::kNoCandidate;
  std::uint8_t lead_contributions = tuner::kNoCandidate;
  bool lead_is_trial = false;
  bool led = false;               // `lead` is what the leading node has chosen
  std::uint8_t probe_chunks = 0;  // so many contributions to each owner went raw for a look
  // A candidate that the node's client does not encode by.
  std::uint8_t unheeded = tuner::kNoCandidate;
  bool announced = false;  // contributions were sent before the op began
  bool one_sided = false;  // this node had nothing to wait for: the op's time is not its own
  std::uint64_t encode_ns = 0, encoded_bytes = 0;
  std::uint64_t client_ns = 0;  // before it was submitted: the client has encoded
  tuner::ErrorSample error;
};

// One line of the flight recorder.
struct OpRecord {
  std::uint64_t tensor = 0, sequence = 0, count = 0, bytes_sent = 0;
  std::uint64_t submitted_ns = 0, started_ns = 0, ended_ns = 0;
  std::uint16_t kind = 0, lane = 0;
  std::uint32_t peer = 0xffffffff;  // of a send or recv: the other rank, if it is known
  std::uint8_t dtype = 0, reduction = 0;
  bool lossy = false, eager = false;
  std::optional<TunedRecord> tuned;  // none: the tuner has not chosen its recipe
};

// `kHandler`: what a message of a long turn of the conductor calls the step.
namespace event {

struct ClientDropped {
  static constexpr const char* kHandler = "on_client_dropped";
  ClientMemory* client = nullptr;
};
struct RegionDropped {
  static constexpr const char* kHandler = "on_region_dropped";
  std::uint64_t client = 0;
  std::uint32_t region = 0;
};
struct ClientMisbehaved {  // its ring is corrupt
  static constexpr const char* kHandler = "on_client_misbehaved";
  ClientMemory* client = nullptr;
  Sentence text;
};
struct EntryRefused {  // for the log, at most one a second of each client
  static constexpr const char* kHandler = "on_entry_refused";
  ClientMemory* client = nullptr;
  Errc code = Errc::ok;
  Sentence text;
};
struct PeerRefused {  // what another daemon sent; for the log
  static constexpr const char* kHandler = "on_peer_refused";
  wire::NodeId peer;
  Sentence text;
};
struct CarrierChanged {  // what a peer's frames travel on, and why; for the log
  static constexpr const char* kHandler = "on_carrier_changed";
  wire::NodeId peer;
  Sentence text;
};
struct GroupReady {  // all its links are open
  static constexpr const char* kHandler = "on_group_ready";
  LaneGroup* group = nullptr;
};
struct GroupRemoved {
  static constexpr const char* kHandler = "on_group_removed";
  LaneGroup* group = nullptr;
};
struct RankReleased {  // no op uses its memory any more
  static constexpr const char* kHandler = "on_rank_released";
  LaneGroup* group = nullptr;
  std::uint32_t local_rank = 0;
};
struct TensorDropped {
  static constexpr const char* kHandler = "on_tensor_dropped";
  LaneGroup* group = nullptr;
  TensorState* tensor = nullptr;
  std::uint32_t release = 0;  // of the command
};
struct LinkLost {
  static constexpr const char* kHandler = "on_link_lost";
  LaneGroup* group = nullptr;
  std::uint32_t node = 0;
  Errc code = Errc::ok;
  Sentence text;
};
struct OpFailed {
  static constexpr const char* kHandler = "on_op_failed";
  LaneGroup* group = nullptr;
  std::uint64_t tensor = 0;
  std::uint64_t sequence = 0;
  Errc code = Errc::ok;
  std::uint32_t about_rank = 0;
  std::uint32_t lanes = 0;  // that know of the op, as bits
  Sentence text;
};
struct StateMoved {
  static constexpr const char* kHandler = "on_state_moved";
  LaneGroup* group = nullptr;
  StateMove* move = nullptr;
  Errc code = Errc::ok;
  Sentence text;
  bool begun = true;  // the lane has moved something
};
struct OpEnded {  // for the flight recorder and the tuner; dropped when the ring is nearly full
  static constexpr const char* kHandler = "on_op_ended";
  LaneGroup* group = nullptr;
  OpRecord record;
  Errc code = Errc::ok;
  Sentence text;
};
struct ChoiceInUse {  // how ops of the tensor are sent from this use on
  static constexpr const char* kHandler = "on_choice_in_use";
  LaneGroup* group = nullptr;
  std::uint64_t tensor = 0;
  std::uint64_t use = 0;
  ChoiceUsed choice;
};
struct ChunkChoice {  // one block of an op was sent otherwise
  static constexpr const char* kHandler = "on_chunk_choice";
  LaneGroup* group = nullptr;
  std::uint64_t tensor = 0;
  std::uint64_t use = 0;
  std::uint32_t chunk = 0;
  wire::Leg leg = wire::Leg::none;
  std::uint8_t candidate = 0;
};
struct StateReset {  // so many parts of the tensor's codec state are zero again
  static constexpr const char* kHandler = "on_state_reset";
  LaneGroup* group = nullptr;
  std::uint64_t tensor = 0;
  std::uint64_t resets = 0;
};

}  // namespace event

struct Event {
  std::uint16_t lane = 0;
  std::variant<event::ClientDropped, event::RegionDropped, event::ClientMisbehaved,
               event::EntryRefused, event::PeerRefused, event::CarrierChanged, event::GroupReady,
               event::GroupRemoved, event::RankReleased, event::TensorDropped, event::LinkLost,
               event::OpFailed, event::StateMoved, event::OpEnded, event::ChoiceInUse,
               event::ChunkChoice, event::StateReset>
      what;
};

using CommandRing = boost::lockfree::spsc_queue<Command, boost::lockfree::capacity<1024>>;
using EventRing = boost::lockfree::spsc_queue<Event, boost::lockfree::capacity<4096>>;

// With all its memory touched. Else the daemon would grow for as long as it takes to go round once,
// and the lane would wait for the kernel each time that an entry begins a page.
template <typename Ring>
std::unique_ptr<Ring> make_resident_ring() {
  constexpr std::size_t kPageBytes = 4096;  // the smallest there is
  auto ring = std::make_unique<Ring>();
  auto* const bytes = static_cast<volatile char*>(static_cast<void*>(ring.get()));
  for (std::size_t at = 0; at < sizeof(Ring); at += kPageBytes) bytes[at] = bytes[at];
  bytes[sizeof(Ring) - 1] = bytes[sizeof(Ring) - 1];  // it need not begin with a page
  return ring;
}

}  // namespace tern::daemon
