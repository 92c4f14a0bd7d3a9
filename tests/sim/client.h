#pragma once

// A client process in the simulation: speaks the packets of shm/layout.h with its daemon's
// conductor by calls, and with its lanes through the real rings in the real segment, as libtern
// does.

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "arena_places.h"
#include "base/dtype.h"
#include "base/errc.h"
#include "copier.h"
#include "plan/plan.h"
#include "shm/encoded_by.h"
#include "shm/packet_socket.h"
#include "shm/segment.h"
#include "shm/sharding.h"
#include "tuner/error_guard.h"

namespace tern::sim {

class World;

struct JoinOptions {
  bool verify = false;
  std::int64_t timeout_ms = 0;
  std::int64_t op_timeout_ms = 0;
  std::uint64_t completed_ops = 0;
};

struct TensorSpec {
  std::string name;
  std::uint64_t count = 0;
  DType dtype = DType::f32;
  Role role = Role::exact;
  bool exempt = false;
  std::string recipe;
  bool client_blocks = false;
  std::uint8_t blocks_form = shm::kBlocksByTuner;  // TensorDeclarePacket::client_blocks, if not 0
};

struct Tensor {
  TensorSpec spec;
  std::uint64_t id = 0;
  std::uint64_t next_use = 0;
  bool one_lane = false;
};

struct OpRequest {
  plan::Shape shape_for(std::uint32_t rank, std::uint32_t ranks) const;

  shm::OpKind kind = shm::OpKind::all_reduce;
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
  std::uint64_t count = 0;
  std::uint64_t input = 0;  // offsets in the arena, or in these regions
  std::uint64_t output = 0;
  std::uint32_t input_region = 0;
  std::uint32_t output_region = 0;
  std::uint32_t root = 0;  // of a send or recv the other rank
  std::uint32_t tag = 0;
  std::int32_t priority = 0;
  float prescale = 1.0f;
  float state_scale = 1.0f;
  std::string recipe;
  std::vector<std::uint64_t> counts;  // of each rank; empty: equal shares, or none
  bool has_blocks = false;            // input and output are slots
  // Of a tensor with client_blocks whose recipe the tuner chooses.
  std::optional<shm::EncodedBy> encoded_by;
  tuner::LegEnergies encoded;
  std::uint64_t encoded_ns = 0;
};

struct OpResult {
  Errc status = Errc::ok;
  std::string detail;
  std::uint64_t bytes_sent = 0;
  std::uint32_t source = 0;                                 // of a recv
  std::uint64_t elements = 0;                               // likewise
  std::map<std::uint32_t, std::uint32_t> encode_next_by{};  // by lane
};

class Client {
 public:
  Client(World& world, std::size_t daemon, std::uint64_t id, shm::PeerCredentials credentials);

  std::uint64_t id() const { return id_; }
  std::size_t daemon() const { return daemon_; }
  bool lost() const { return lost_; }  // the daemon has no more to say to it

  // ---- Requests return at once; a helper below runs the world until the answer is here. ----
  void hello(const std::string& job, std::uint64_t arena_bytes);
  std::uint64_t mint();
  std::uint64_t join(const std::string& group, std::uint32_t rank, std::uint32_t new_size,
                     const JoinOptions& options = {});
  // Of its own group, or of any.
  std::uint64_t split(std::int32_t color, std::int32_t key, const JoinOptions& options = {}) {
    return split_of(group.group, color, key, options);
  }
  std::uint64_t split_of(std::uint64_t parent, std::int32_t color, std::int32_t key,
                         const JoinOptions& options);
  std::uint64_t leave();
  std::uint64_t declare(const TensorSpec& spec);
  std::uint64_t release(std::uint64_t tensor);
  // tensor_stats, tensor_blocks or tensor_recipes.
  std::uint64_t ask_of(shm::PacketKind kind, std::uint64_t tensor);
  std::uint64_t move_state(std::uint64_t tensor, shm::StateAction action, std::uint64_t offset = 0,
                           std::uint64_t bytes = 0);
  std::uint64_t create_region(std::uint64_t bytes);
  // region_open or region_free.
  std::uint64_t about_region(shm::PacketKind kind, std::uint32_t region);
  // Of a region that it has been given.
  std::span<std::byte> region(std::uint32_t region) const { return regions_.at(region).arena(); }
  std::uint64_t goodbye();
  bool ready() const { return segment_.lane_count() > 0; }
  bool answered(std::uint64_t request) const { return answers_.contains(request); }
  // The status of a done packet; ok for any other answer.
  OpResult status_of(std::uint64_t request) const;
  template <typename Packet>
  std::optional<Packet> answer(std::uint64_t request) const {
    const auto found = answers_.find(request);
    Packet packet;
    if (found == answers_.end() || !shm::read_packet(found->second, packet)) return std::nullopt;
    return packet;
  }
  // Takes over what the answer to a join says. False: it was refused.
  bool adopt_join(std::uint64_t request, std::uint32_t rank);
  // The same of a split: what follows is of the child.
  bool adopt_split(std::uint64_t request);
  Tensor* adopt_declare(std::uint64_t request, const TensorSpec& spec);

  // ---- Ops ----
  // A place in the arena; never given back before forget_arena().
  std::uint64_t allocate(std::uint64_t bytes) { return places_.allocate(bytes); }
  void forget_arena() { places_.forget(); }
  std::byte* at(std::uint64_t offset) { return segment_.arena().data() + offset; }
  // A ticket; tensor null: anonymous.
  std::uint64_t submit(const OpRequest& op, Tensor* tensor = nullptr);
  std::uint64_t submit_as(const OpRequest& op, std::uint64_t tensor, std::uint64_t sequence,
                          bool one_lane);
  void push_raw(std::uint32_t lane, const shm::SubmitEntry& entry);
  void cancel(std::uint64_t ticket);
  int poll();  // takes completions
  // How long it may spin before it sleeps.
  std::uint32_t spin_ns() const { return segment_.spin_ns(); }
  bool done(std::uint64_t ticket) const { return results_.contains(ticket); }
  const OpResult& result(std::uint64_t ticket) const { return results_.at(ticket); }
  std::size_t in_flight() const { return waiting_.size(); }
  // With a seed its ops' memory is copied while lanes work, in steps that the seed draws: poll()
  // takes one of each op.
  struct Copying {
    std::uint64_t seed = 0;      // 0: the memory of ops is there when they are submitted
    std::string wrong_in_lists;  // what has been wrong in any list of deliveries
    std::uint64_t listed_bytes = 0;
  };
  Copying copying;
  // Of an op that has been submitted so, until it has ended.
  Copier& copier(std::uint64_t ticket) { return waiting_.at(ticket).copier.value(); }
  // Its tickets end with daemon_lost.
  void fail_all_tickets();

  shm::GroupJoinedPacket group{};
  std::uint32_t rank = 0;
  std::uint32_t size = 0;  // of the group that it last asked to join

  // ---- From the daemon ----
  void on_answer(std::span<const std::byte> packet, std::span<const int> descriptors);
  void on_disconnected() { lost_ = true; }

 private:
  template <typename Packet>
  std::uint64_t send(const Packet& packet);
  // That have a part of the op, as bits.
  std::uint32_t lanes(const OpRequest& op, std::uint64_t tensor, std::uint64_t sequence,
                      bool one_lane) const;

  struct Waiting;
  void begin_copies(const OpRequest& op, Waiting& waiting, shm::SubmitEntry& entry);
  void end_copies(Waiting& waiting);

  struct Waiting {
    std::uint32_t lanes_left = 0;
    OpResult result;
    std::optional<Copier> copier;
  };

  World& world_;
  std::size_t daemon_;
  std::uint64_t id_;
  bool lost_ = false;
  std::uint64_t next_request_ = 1;
  std::uint64_t next_ticket_ = 1;
  std::uint64_t anonymous_ = 0;
  std::map<std::uint64_t, std::vector<std::byte>> answers_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::uint64_t, Waiting> waiting_;
  std::map<std::uint64_t, OpResult> results_;
  shm::Segment segment_;
  ArenaPlaces places_;
  std::map<std::uint32_t, shm::Segment> regions_;
  std::vector<shm::RingProducer<shm::SubmitEntry>> submissions_;
  std::vector<shm::RingConsumer<shm::CompletionEntry>> completions_;
};

}  // namespace tern::sim
