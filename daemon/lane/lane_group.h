#pragma once

// One group on one lane: carries out the actions of collective::GroupOps on real data. Made by the
// conductor, used by the lane between add_group and its group_removed.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "codec/codec.h"
#include "collective/group_ops.h"
#include "daemon/lane/lane_exchange.h"
#include "daemon/lane/slab_pool.h"
#include "daemon/lane/snapshot_table.h"
#include "daemon/lane/trace_ring.h"
#include "daemon/tensor/tensor_state.h"
#include "net/link.h"

namespace tern::daemon {

class Lane;
struct LaneClient;
struct LaneJob;
struct LanePeer;

// What the conductor knows of a group when its epoch starts.
struct GroupSetup {
  std::uint64_t number = 0;  // this daemon's, for SubmitEntry::group
  std::uint64_t token = 0;   // for frames: only who knows the secret can derive it
  std::uint64_t link = 0;    // public bytes of the group's id, by which nodes name its links
  std::uint64_t job = 0;     // what groups of one job on this node have in common
  std::uint32_t weight = 1;  // of the job, against others on this node
  std::uint32_t epoch = 1;
  std::uint32_t size = 1;
  std::uint64_t op_timeout_ns = 0;
  std::uint64_t lossy_min_bytes = 0;
  std::uint64_t seed = 0;  // of all random draws of recipes
  collective::GroupShape shape;
  std::vector<wire::NodeId> node_ids;
  std::vector<net::Endpoint> endpoints;
  std::vector<std::uint64_t> local_clients;  // ClientMemory::id of each local rank
};

// An op that some rank has not submitted, for `waiting for ranks ...`. At most kShown ranks are
// named.
struct WaitingOp {
  static constexpr std::size_t kShown = 28;
  std::uint64_t tensor = 0;
  std::uint64_t sequence = 0;
  std::uint64_t kind = 0;  // shm::OpKind
  std::uint64_t since_ns = 0;
  std::uint64_t missing = 0;
  std::array<std::uint32_t, kShown> ranks{};
};

class LaneGroup {
 public:
  explicit LaneGroup(GroupSetup setup);

  // ---- Called by the lane ----
  void attach(Lane& lane);
  void detach();                                      // from the lane's links, before it is removed
  std::uint32_t node_of(const LanePeer& peer) const;  // kNoSlot if it is not of this group
  bool all_links_open() const;
  bool is_untouched() const;  // no operation has been seen in this epoch
  void renew_peer(std::uint32_t node);
  void submit(LaneClient& client, const shm::SubmitEntry& entry);
  int run_actions(int budget);
  void on_timer(std::uint64_t now_ns);
  int settle();  // reports what nobody uses any more
  void drop_pages();

  net::PayloadPlace place_payload(LanePeer& peer, std::uint32_t node,
                                  const wire::FrameHeader& header, bool& protocol_ok);
  bool on_frame(LanePeer& peer, std::uint32_t node, const wire::FrameHeader& header,
                const net::PayloadPlace& place, bool payload_valid);
  void on_abandoned(LanePeer& peer);
  void frame_acked(collective::OpId op);  // a frame that borrowed the op's memory

  void end(Errc code, const char* text);
  void fail_key(const collective::OpKey& key, Errc code, std::uint32_t rank, const char* text);
  void add_tensor(TensorState* tensor) { tensors_[tensor->id] = tensor; }
  void drop_tensor(TensorState* tensor);  // reported when the last op that uses it has ended
  void rank_left(std::uint32_t local_rank);
  void move_state(const StateMove& move, event::StateMoved& outcome);
  bool idle() const;  // nothing refers to it any more
  bool uses_client(const LaneClient& client) const;
  void forget(const LaneClient& client);

  const GroupSetup& setup() const { return setup_; }
  const collective::GroupOps& ops() const { return ops_; }
  LaneJob& job() const { return *job_; }
  const std::vector<LanePeer*>& peers() const { return peers_; }  // by node; null for this one
  // From any thread.
  std::uint32_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }
  std::uint64_t completed() const { return completed_.load(std::memory_order_relaxed); }
  std::vector<WaitingOp> waiting() const { return waiting_.read(); }
  // What the link to a node has delivered, as of the end of the last op that the tuner chose for.
  struct PeerRate {
    double bytes_per_s = 0.0;
    double round_trip_ns = 0.0;
    double inbound = 0.0;        // bytes per second from there, as the peer says
    double decode_strain = 1.0;  // what adding a block takes there by what it takes here
    bool limited = true;
  };
  PeerRate rate(std::uint32_t node) const {
    const RateCell& cell = rates_[node];
    return {cell.bytes_per_s.load(std::memory_order_relaxed),
            cell.round_trip_ns.load(std::memory_order_relaxed),
            cell.inbound.load(std::memory_order_relaxed),
            cell.decode_strain.load(std::memory_order_relaxed),
            cell.limited.load(std::memory_order_relaxed)};
  }

  bool ready_reported = false;
  bool remove_requested = false;

 private:
  static constexpr std::uint32_t kNone = SlabPool::kNone;
  static constexpr std::uint32_t kLeader = 0;  // the node whose tuner chooses for all

  struct OpRank {  // of one local rank
    std::uint64_t ticket = 0;
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    float prescale = 1.0f;
    std::uint32_t lanes = 0;  // that have a chunk of what it submitted, as bits
    bool present = false;
    bool told = false;
  };
  struct Lead {  // by which candidate the leading node sends
    std::uint8_t candidate = OpRecord::kNone;
    bool trial = false;
    std::uint16_t list = 0;  // in which `candidate` is a number
  };
  struct OpData {
    TensorState* tensor = nullptr;
    codec::Recipe recipe;
    bool lossy = false;
    bool lossless = false;  // compressed, bit for bit
    // Set: the tuner has chosen, and `lossy` and `lossless` say what it may choose.
    TensorTuning* tuning = nullptr;
    std::uint32_t choice = 0;  // its version
    std::uint8_t probe_chunks = 0;
    bool trial = false;  // so is the choice
    Lead lead;
    bool settled = false;    // how it is sent, before its first block
    bool led = false;        // as the leading node does,
    bool overruled = false;  // which is not what was chosen here
    bool replayed = false;
    bool mixed = false;               // another choice came in its middle
    bool alike = true;                // no other node sent its results otherwise
    std::uint64_t encoded_bytes = 0;  // of elements
    float state_scale = 1.0f;
    std::uint32_t pins = 0;   // frames that borrow or fill the clients' memory
    bool scanned = false;     // scale=tensor: reduce_max is known
    float reduce_max = 0.0f;  // of all that this node contributes
    float result_max = 0.0f;  // of all sums that this node owns
    std::uint64_t submitted_ns = 0, started_ns = 0, first_encode_ns = 0;
    std::uint64_t encode_ns = 0, decode_ns = 0;
    std::uint64_t bytes_raw = 0, bytes_sent = 0;
    tuner::ErrorSample error;
    Errc verdict = Errc::ok;  // of the comparison of checksums
    char verdict_text[120] = {};
  };
  struct ChunkData {  // of a granted chunk this node owns
    collective::OpId op = collective::kNoSlot;
    bool begun = false;  // until then an accumulator is only promised
    std::uint32_t accumulator = kNone;
    std::vector<std::uint32_t> slabs;  // per node, with a reserved receive slab
    std::vector<std::uint32_t> bytes;  // of the block in it
  };
  struct RateCell {  // written by the lane, read by the conductor
    std::atomic<double> bytes_per_s{0.0}, round_trip_ns{0.0}, inbound{0.0}, decode_strain{1.0};
    std::atomic<bool> limited{true};
  };
  struct Part {  // the elements of one chunk
    std::uint64_t begin = 0;
    std::uint32_t elements = 0;
  };

  void report_dropped_tensors();
  void report_released_ranks();
  void publish_waiting();

  // Submission (lane_group_submit.cc).
  bool choose_recipe(const shm::SubmitEntry& entry, const plan::Plan& plan,
                     const TensorState* tensor, OpData& data, wire::AnnounceBody& body,
                     const char*& problem) const;
  bool may_replace(const codec::Recipe& recipe, const codec::Recipe& declared,
                   const shm::SubmitEntry& entry, const char*& problem) const;
  void cancel(LaneClient& client, const shm::SubmitEntry& entry);
  void tell_submitted(collective::OpId op);

  // Actions (lane_group_actions.cc).
  void carry_out(const collective::Action& action);
  void announce(collective::OpId op);
  void grant(const collective::Action& action);
  void contribute(const collective::Action& action);
  std::byte* begin_sum(collective::ChunkId chunk);
  void add(const collective::Action& action);
  bool finish(collective::ChunkId chunk);
  void publish(const collective::Action& action);
  void reduce_eager(collective::OpId op);
  void send_checksums(collective::OpId op);
  void compare_checksums(collective::OpId op);
  void send_failure(collective::OpId op);
  void complete(collective::OpId op);
  void finalize(collective::OpId op);
  void record_op(collective::OpId op, std::uint64_t now_ns, Errc code, const char* text);
  void pin(collective::OpId op) { ++data_[op].pins; }
  void unpin(collective::OpId op);

  // Data (lane_group_data.cc).
  Part part(collective::OpId op, std::uint32_t chunk) const;
  DType dtype(collective::OpId op) const {
    return static_cast<DType>(ops_.op(op).announced_first.dtype);
  }
  Reduction reduction(collective::OpId op) const {
    return static_cast<Reduction>(ops_.op(op).announced_first.reduction);
  }
  bool single_plain_input(collective::OpId op) const;
  void sum_local(collective::OpId op, const Part& part, std::byte* accumulator) const;
  void write_own_contribution(collective::OpId op, const Part& part, std::byte* out);
  std::span<const float> local_f32(collective::OpId op, const Part& part);
  enum class Leg : std::uint8_t { reduce = 1, broadcast = 2 };
  bool encode_lossy(collective::OpId op, std::uint32_t number, Leg leg, const codec::Recipe& recipe,
                    std::span<const float> input, float state_scale, float fixed_max,
                    std::span<std::byte> slab, std::uint32_t& bytes);
  bool encode_lossless(collective::OpId op, std::uint32_t number, const codec::Recipe& recipe,
                       std::span<const std::byte> input, std::span<std::byte> slab,
                       std::uint32_t& bytes);
  // The values that a compressed block stands for. Null, or why it stands for none.
  const char* decode_block(collective::OpId op, std::uint32_t number, std::uint32_t sender,
                           const wire::BlockHeader& header, std::span<const std::byte> payload,
                           std::span<float> out);
  void lose_state(collective::OpId op);
  void lose_streams(collective::OpId op);
  void doubt(collective::OpId op);
  void count_resets(TensorState& tensor, std::uint64_t resets);
  void restart_streams(TensorState& tensor);
  template <typename Use>
  bool for_each_chunk(const TensorState& tensor, Use use) const;
  bool contribute_lossless(collective::OpId op, std::uint32_t node, wire::FrameHeader header,
                           const Part& part, const codec::Recipe& recipe);
  bool send_lossless_result(collective::OpId op, std::uint32_t number, const codec::Recipe& recipe,
                            std::span<const std::byte> result);
  const char* deliver_lossless(collective::OpId op, std::uint32_t number, std::uint32_t sender,
                               const wire::BlockHeader& header, std::span<const std::byte> payload,
                               std::span<std::byte> out);
  void deliver_floats(collective::OpId op, const Part& part, const float* values);
  void contribute_raw(collective::OpId op, std::uint32_t node, wire::FrameHeader header,
                      const Part& part, const codec::Recipe& recipe, bool nonfinite);

  // For `ternctl trace` (lane_group_trace.cc); only while it is on.
  struct CodecTime {
    std::uint64_t begin_ns, end_ns;
    std::uint64_t bytes;  // of the block
  };
  void trace_codec(TraceKind kind, collective::OpId op, std::uint32_t number, std::uint32_t node,
                   const wire::BlockHeader& header, const CodecTime& time);
  void trace_op(collective::OpId op, Errc code, std::uint64_t now_ns);

  // What the tuner chooses (lane_group_tuning.cc).
  const codec::Recipe& recipe_of(collective::OpId op, std::uint32_t number, Leg leg,
                                 std::uint32_t node);
  void take_choice(collective::OpId op);
  void describe_lead(collective::OpId op, wire::AnnounceBody& body);
  void on_lead(collective::OpId op, const wire::AnnounceBody& body);
  void settle_choice(collective::OpId op);
  void log_choice(collective::OpId op);
  void note_result(collective::OpId op, const wire::BlockHeader& header);
  void describe_choice(const OpData& data, std::uint64_t now_ns, OpRecord& record) const;
  bool is_surprising(const OpData& data, std::uint64_t now_ns) const;
  void read_rates(const OpData& data, std::uint64_t now_ns);
  static void compare_speed(LanePeer& peer, RateCell& cell);
  bool chooses_raw(collective::OpId op) const;
  bool owns_all(collective::OpId op) const;
  void offer_sample(collective::OpId op, const Part& part, const float* residual);
  bool contribute_owed(collective::OpId op, std::uint32_t node, wire::FrameHeader header,
                       const Part& part);
  bool add_owed(collective::OpId op, std::uint32_t number, std::span<float> sum);
  tuner::CandidateIndex& choice_of(collective::OpId op, std::uint32_t node) {
    return choices_[op * nodes_ + node];
  }

  // One scale for a whole tensor (lane_group_park.cc).
  void scan_reduce_leg(collective::OpId op);
  bool park_sum(collective::ChunkId chunk);
  void finish_parked(const collective::Action& action);
  void forget_parked(collective::OpId op);

  // Steps of the actions and of delivery.
  void add_elements(collective::OpId op, const Part& part, const std::byte* elements,
                    const std::byte* own, std::byte* accumulator) const;
  const char* add_block(collective::OpId op, std::uint32_t number, std::uint32_t sender,
                        std::span<const std::byte> block, const std::byte* own,
                        std::byte* accumulator, std::uint64_t& decode_ns);
  const char* deliver_block(collective::OpId op, std::uint32_t number, std::uint32_t sender,
                            std::span<const std::byte> block);
  void copy_to_other_ranks(collective::OpId op, const Part& part);
  void send_to_all(const wire::FrameHeader& header, std::span<const std::byte> prefix,
                   std::span<const std::byte> body, std::uint64_t cookie);
  void finish_raw(collective::ChunkId chunk, const codec::Recipe& recipe, Reduction reduction,
                  bool nonfinite);
  bool finish_lossy(collective::OpId op, std::uint32_t number, const codec::Recipe& recipe,
                    std::span<const float> sum, float state_scale);
  void scale_sum(collective::ChunkId chunk);
  void release_chunk(collective::ChunkId chunk);
  void give_receive_slab(std::uint32_t slab);
  wire::FrameHeader frame(wire::FrameKind kind, collective::OpId op, std::uint32_t chunk,
                          std::uint8_t leg) const;
  OpRank& rank_of(collective::OpId op, std::uint32_t local_rank) {
    return ranks_[op * local_ranks_ + local_rank];
  }
  const OpRank& rank_of(collective::OpId op, std::uint32_t local_rank) const {
    return ranks_[op * local_ranks_ + local_rank];
  }
  std::uint32_t& eager_slab(collective::OpId op, std::uint32_t node) {
    return eager_slabs_[op * nodes_ + node];
  }

  GroupSetup setup_;
  collective::GroupOps ops_;
  std::uint32_t nodes_;
  std::uint32_t local_ranks_;
  std::uint32_t self_;
  Lane* lane_ = nullptr;
  LaneJob* job_ = nullptr;            // the lane's, from attach() to detach()
  std::vector<LanePeer*> peers_;      // by node; null for this node
  std::vector<LaneClient*> clients_;  // by local rank; null once dropped
  bool op_seen_ = false;              // in this epoch, from here or from another node
  std::unordered_map<std::uint64_t, TensorState*> tensors_;
  std::vector<OpData> data_;                            // by op slot
  std::vector<OpRank> ranks_;                           // op slot x local rank
  std::vector<std::uint32_t> eager_slabs_;              // op slot x node
  std::vector<std::uint32_t> checksums_;                // op slot x rank, with verify
  std::vector<wire::VerifyBody> verify_bodies_;         // by local rank, with verify
  std::vector<tuner::CandidateIndex> choices_;          // op slot x node; of results at our own
  std::vector<ChunkData> chunks_;                       // by ChunkId
  std::vector<std::unique_ptr<SlabPool>> eager_pools_;  // by node
  std::vector<TensorState*> dropping_;                  // to be reported when no op uses them
  std::vector<RateCell> rates_;                         // by node
  std::atomic<std::uint32_t> in_flight_{0};
  std::atomic<std::uint64_t> completed_{0};
  SnapshotTable<WaitingOp, 16> waiting_;
  std::vector<std::uint32_t> leaving_;  // local ranks whose memory is still to be released
};

}  // namespace tern::daemon
