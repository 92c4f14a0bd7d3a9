#pragma once

// Frames over one reliable-connected queue pair. queue_pair.cc sets it up, data_path.cc moves
// frames.
//
// A message is one SEND: a part of one frame, never of two, so that a frame begins with a message
// that holds its whole header. The receiver posts a slot of memory for each message that may be
// under way, and tells in the immediate data of what it sends itself how many it has consumed and
// posted again; nobody sends more than that (credits), so a message never meets an empty receive
// queue. A message without bytes tells only that. Such messages need no credit: the receiver keeps
// kSpareSlots for them.
//
// The last message of a frame, one without bytes, and one in a quarter of the receiver's slots
// carry the mark of a solicited event, so that a receiver that sleeps is woken for each frame and
// not for each message.
//
// A frame's memory is free when its messages have been completed by the device. The peer may
// acknowledge a frame before the completion has been seen here, so a message is delivered only when
// all those of ours have completed that its sender had consumed.
//
// The first message of each side is a probe, if both know of it: the set-up of a queue pair says
// nothing of what lies between the ends, and a switch that drops large packets would be noticed
// under the first block.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/outgoing_queue.h"
#include "rdma/device.h"
#include "rdma/lane_memory.h"
#include "rdma/mapping.h"
#include "rdma/rdma_settings.h"
#include "rdma/verbs.h"
#include "wire/rdma.h"

namespace tern::rdma {

class MessageSink {
 public:
  virtual ~MessageSink() = default;
  // A message with bytes, in order. The data path may be closed in here.
  virtual void on_message(std::span<const std::byte> bytes) = 0;
};

struct DataPathCounters {
  std::uint64_t messages_sent = 0, messages_received = 0;
  std::uint64_t posts = 0;         // calls of ibv_post_send
  std::uint64_t copied_bytes = 0;  // to registered memory before they were sent
  std::uint64_t inline_messages = 0;
};

// Thread: the lane's. Kept alive by a shared_ptr while poll() runs.
class DataPath {
 public:
  static Result<std::shared_ptr<DataPath>> create(std::shared_ptr<Device> device,
                                                  const RdmaSettings& settings, LaneMemory& memory);
  // What the peer must know.
  const wire::RdmaBody& local() const noexcept { return local_; }
  // Makes the queue pair ready to receive and to send.
  Status start(const wire::RdmaBody& remote);
  // Shows that the peer can be reached. By a probe, a message of a packet as large as any, where it
  // knows of probes, else by an empty message; is_idle() then says that it has arrived. Before
  // anything else is sent.
  void probe();
  // Its own has arrived here, or it knows of none.
  bool is_probed() const noexcept { return !expects_probe_; }

  void send(const net::OutgoingFrame& frame);
  // Of frames given to send(), those bytes that the device may still read.
  std::size_t queued_bytes();
  std::uint64_t received_bytes() const noexcept { return received_bytes_; }

  int poll(MessageSink& sink);
  // Takes in completions, and delivers nothing.
  int look() { return pair_ && !has_failed() ? reap() : 0; }
  bool has_failed() const noexcept { return !failure_.empty(); }
  const std::string& failure() const noexcept { return failure_; }
  // By packets that did not get through, as far as the device can tell.
  bool has_lost_packets() const noexcept { return lost_packets_; }
  // All that was posted has arrived at the peer.
  bool is_idle() const noexcept { return completed_ == posted_count_; }
  // Grows with all that completes or arrives.
  std::uint64_t progress() const noexcept { return completed_ + next_arrived_; }
  // Something that has arrived waits for completions of what was sent before it.
  bool has_waiting() const noexcept { return first_arrived_ != next_arrived_; }
  // Lets the completion channel tell of what is waited for: while messages of ours are under way,
  // of the next completion; else of the next message that its sender has marked (solicited). False:
  // something has come already, or poll() has more to do. A peer that does not mark is listened to
  // for all.
  bool arm();
  void disarm() noexcept { armed_ = Armed::no; }
  // Sends what can be sent within the time, if the queue pair works. False: something has not
  // arrived.
  bool drain(std::uint64_t limit_ns);
  // An event of the device says so of its queue pair or completion queue.
  void take_event(const Device::Broken& broken);
  // Destroys the queue pair: no memory of a frame is read afterwards.
  void close() noexcept;

  const Device& device() const noexcept { return *device_; }
  std::uint32_t packet_bytes() const noexcept { return 128u << path_mtu_; }  // of payload, at most
  const DataPathCounters& counters() const noexcept { return counters_; }

 private:
  static constexpr std::uint32_t kSpareSlots = 8;
  static constexpr std::uint32_t kSendDepth = 128;
  static constexpr std::uint32_t kBatch =
      16;  // messages posted, or completions polled, in one call
  static constexpr std::uint32_t kMaxSges = 2;
  static constexpr std::uint32_t kInlineBytes = 256;
  // Of a slot, for what comes before a body: a header and what a link copies beside it.
  static constexpr std::uint32_t kHeadRoom = 256;

  // In the order of how much is told.
  enum class Armed : std::uint8_t { no, solicited, all };
  struct PostedMessage {
    std::uint32_t frame_bytes = 0;
    std::uint64_t staging_end = 0;
    std::uint32_t data_messages = 0;  // with this one, modulo 2^32
  };
  struct ArrivedMessage {
    std::uint32_t slot = 0;
    std::uint32_t bytes = 0;
    std::uint32_t consumed = 0;
  };
  // Work requests that are posted with one call.
  struct Batch {
    ibv_send_wr requests[kBatch];
    ibv_sge sges[kBatch][kMaxSges];
    std::uint32_t count = 0;
  };
  DataPath(std::shared_ptr<Device> device, const RdmaSettings& settings, LaneMemory& memory);
  // queue_pair.cc
  Status create_queues();
  Status create_memory();
  std::size_t staging_bytes() const noexcept;
  void describe_itself();
  ibv_qp_attr path_to(const wire::RdmaBody& remote) const;

  // data_path.cc
  int reap();
  void complete_through(std::uint64_t number);
  int deliver(MessageSink& sink);
  void take_arrival(const ibv_wc& done);
  void repost();
  int post();
  bool add_part(Batch& batch);
  void add_probe(Batch& batch);
  bool add_credit(Batch& batch);
  bool stage(std::span<const std::byte> bytes, ibv_sge& sge);
  ibv_send_wr& add_request(Batch& batch, std::uint32_t frame_bytes, bool is_data);
  int flush(Batch& batch);
  std::uint32_t credits() const noexcept { return remote_slots_ - (sent_data_ - peer_consumed_); }
  // A receiver that sleeps through the parts of a long frame must wake before it has no slot left.
  bool must_wake_peer() const noexcept { return sent_data_ % (remote_slots_ / 4) == 0; }
  void fail(std::string why);

  std::shared_ptr<Device> device_;
  RdmaSettings settings_;
  LaneMemory& memory_;
  std::string failure_;
  bool lost_packets_ = false;
  DataPathCounters counters_;
  Armed armed_ = Armed::no;
  bool is_due_ = false;   // poll() has something to do of which no completion tells
  wire::RdmaBody local_;  // of when the path was made: the device may have got another address
  std::uint8_t gid_index_ = 0;
  std::uint32_t inline_bytes_ = 0;
  std::uint32_t send_depth_ = kSendDepth;

  // Outgoing. Messages are numbered from 1 in the order of posting.
  net::OutgoingQueue queue_;
  std::size_t front_done_ = 0;  // bytes of the oldest frame that are posted
  std::size_t queued_bytes_ = 0;
  std::uint64_t posted_count_ = 0;
  std::uint64_t completed_ = 0;
  std::uint32_t sent_data_ = 0;  // messages that need a credit; these three modulo 2^32
  std::uint32_t completed_data_ = 0;
  std::uint32_t peer_consumed_ = 0;
  bool remote_marks_ = false;
  bool remote_probes_ = false;
  bool expects_probe_ = false;
  ibv_mtu path_mtu_{};
  std::uint32_t remote_slots_ = 0;
  std::uint32_t remote_slot_bytes_ = 0;
  std::vector<PostedMessage> posted_;  // of number n at n modulo size
  Mapping staging_;
  std::uint64_t staging_begin_ = 0;  // offsets that only grow; modulo the size they are places
  std::uint64_t staging_end_ = 0;

  // Incoming.
  std::uint64_t received_bytes_ = 0;
  std::uint32_t consumed_ = 0;  // modulo 2^32
  std::uint32_t told_ = 0;      // what the peer knows of consumed_
  std::vector<ArrivedMessage> arrived_;
  std::uint64_t first_arrived_ = 0;
  std::uint64_t next_arrived_ = 0;
  std::vector<std::uint32_t> free_slots_;
  std::uint32_t slot_bytes_ = 0;
  std::size_t slot_stride_ = 0;
  Mapping slots_;

  // Destroyed from the last to the first.
  MemoryRegion staging_region_;
  MemoryRegion slots_region_;
  CompletionQueue completions_;
  QueuePair pair_;
};

}  // namespace tern::rdma
