#pragma once

// The link of one group, over all its epochs, to one of its nodes: jobs that shared a link would
// wait for each other's frames.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "collective/mailbox.h"
#include "collective/slots.h"
#include "daemon/lane/slab_pool.h"
#include "daemon/service/shared_places.h"
#include "net/link.h"
#include "wire/frame.h"

namespace tern::daemon {

class LaneGroup;

// Room for blocks of the broadcast leg, until they are delivered. There are as many as were ever
// being delivered at once: one, where that happens within the frame.
class ResultBuffers {
 public:
  explicit ResultBuffers(std::size_t bytes) : bytes_(bytes) {}

  std::size_t bytes() const noexcept { return bytes_; }
  std::uint32_t take() {
    if (free_.empty()) {
      buffers_.push_back(std::make_unique<Buffer>());
      buffers_.back()->bytes.resize(bytes_);
      buffers_.back()->region = {buffers_.back()->bytes.data(), bytes_};
      free_.reserve(buffers_.size());
      return static_cast<std::uint32_t>(buffers_.size() - 1);
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    return index;
  }
  void give(std::uint32_t index) noexcept { free_.push_back(index); }
  Operand operand(std::uint32_t index) const noexcept {
    return {&buffers_[index]->region, 0, bytes_};
  }

 private:
  struct Buffer {
    std::vector<std::byte> bytes;
    Region region;
  };

  std::size_t bytes_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::uint32_t> free_;
};

// What a link is filling at the moment, and what whoever placed it there holds for it until the
// frame has come whole or is given up.
namespace filling {

struct ReceiveSlab {  // the chunk's: ReduceLeg
  collective::ChunkId chunk;
  std::uint32_t slab;
};
struct Orphan {  // the same after its chunk has ended: given back with the frame
  std::uint32_t slab;
};
struct ResultBuffer {   // of the peer's: ResultLeg
  collective::OpId op;  // pinned until the block is delivered
  std::uint32_t buffer;
};
struct EagerSlab {  // of the node's pool: Announcements
  std::uint32_t slab;
};
struct OfferSlab {  // of the node's pool: PointToPoint
  std::uint32_t slab;
};
struct Piece {  // of a send: PassPieces
  collective::Mailbox::Place place;
  std::uint32_t buffer = SlabPool::kNone;  // of the peer's, where the piece is a block
};
// std::monostate: small payloads of the link, or a payload that nobody wants.
using Anything =
    std::variant<std::monostate, ReceiveSlab, Orphan, ResultBuffer, EagerSlab, OfferSlab, Piece>;

}  // namespace filling

struct Receiving {
  LaneGroup* group = nullptr;
  bool refused = false;  // the header broke the protocol; the link ends with the frame
  filling::Anything fills;
};

// What a link's carrier has counted, look by look.
class CarriedByLink {
 public:
  struct Count {
    std::uint64_t bytes = 0, busy_ns = 0;
  };
  // Since forget_new(), or since the connection is there.
  Count look(const net::DeliveryRate& rate) noexcept {
    seen_ = {rate.acked_bytes, rate.busy_ns};
    if (seen_.bytes < known_.bytes || seen_.busy_ns < known_.busy_ns) known_ = {};
    return {seen_.bytes - known_.bytes, seen_.busy_ns - known_.busy_ns};
  }
  void forget_new() noexcept { known_ = seen_; }

 private:
  Count seen_, known_;
};

struct LanePeer {
  explicit LanePeer(std::size_t block_bytes) : results(block_bytes) {}

  wire::NodeId id;
  std::uint64_t group = 0;  // GroupSetup::link
  std::unique_ptr<net::Link> link;
  std::uint32_t groups = 0;  // epochs that use it
  // Memory that the link may hold for frames that the peer has not acknowledged: at least for what
  // is said of many ops that fail at once.
  static constexpr std::uint64_t kMayHold = 16 << 20;
  std::uint64_t may_hold_bytes = kMayHold;
  std::uint32_t account = 0;    // GroupSetup::account
  std::uint64_t unused_ns = 0;  // since when none does
  Receiving receiving;
  std::vector<std::byte> small;  // payloads of frames that carry no block
  // False: the payload has not so many bytes.
  bool place_small(const wire::FrameHeader& header, std::size_t bytes, net::PayloadPlace& where) {
    if (header.payload_bytes != bytes) return false;
    where.body = std::span(small).first(bytes);
    return true;
  }
  ResultBuffers results;
  // For the comparison of its speed with ours: what it was sent and has added of us, what we have
  // added of it, in bytes of elements; and the same at the last look.
  struct Work {
    std::uint64_t sent_bytes = 0, peer_ns = 0;
    std::uint64_t added_bytes = 0, added_ns = 0;
  };
  Work work, work_seen;
  // The link's count of bytes at the last look at its rate, and when that was.
  std::uint64_t rate_bytes = 0, rate_ns = 0;
  // At the last look at what links share: its round trip, and what its carrier had counted.
  std::uint64_t round_trip_ns = 0;
  CarriedByLink carried;
  std::string told_carrier;  // what the log has said of it
  enum class Phase : std::uint8_t {
    unused,    // no epoch has used it, as far as LaneLinks::settle() has seen
    stranger,  // the same: the node connected without being expected, and its address is unknown
    used,
    lost,  // no epoch may begin to use it
  };
  Phase phase = Phase::unused;
  bool is_reported = false;  // to speak of groups that are not known, though none has used it
  std::optional<SharedPlaces::Held> place;  // none since a group has used it

  // Whether epochs may use it: until LaneLinks has heard that it is lost.
  bool can_serve() const { return phase != Phase::lost; }
  // Whether it cannot be sent to any more, which the link knows first.
  bool is_lost() const { return link->state() == net::LinkState::lost; }
};

}  // namespace tern::daemon
