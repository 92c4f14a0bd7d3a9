// The hot half of a DataPath: no allocation, lock or log after the high-water mark of the queue.

#include "rdma/data_path.h"

#include <arpa/inet.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace tern::rdma {
namespace {

// A message in so many asks for its completion, besides the last of every batch.
constexpr std::uint64_t kSignalEvery = 16;
// What one poll() takes in, and hands over, before others have their turn.
constexpr int kCompletionsPerPoll = 128;
constexpr int kMessagesPerPoll = 64;

}  // namespace

void DataPath::fail(std::string why) {
  if (failure_.empty()) failure_ = std::move(why);
}

void DataPath::send(const net::OutgoingFrame& frame) {
  queue_.push(frame);
  queued_bytes_ += frame.head.size() + frame.body.size();
}

std::size_t DataPath::queued_bytes() {
  if (queued_bytes_ > 0 && pair_ && !has_failed() && reap() > 0) is_due_ = true;
  return queued_bytes_;
}

int DataPath::poll(MessageSink& sink) {
  if (!pair_) return 0;
  is_due_ = false;
  int work = reap();
  work += deliver(sink);
  if (!pair_ || has_failed()) return work;
  return work + post();
}

// ---- Completions

int DataPath::reap() {
  ibv_wc completions[kBatch];
  int total = 0;
  while (total < kCompletionsPerPoll) {
    const int count = ibv_poll_cq(completions_.get(), kBatch, completions);
    if (count < 0) fail(device_->name() + ": its completion queue cannot be read");
    if (count <= 0) break;
    total += count;
    for (const ibv_wc& done : std::span(completions).first(static_cast<std::size_t>(count))) {
      if (done.status != IBV_WC_SUCCESS) {
        // The first error is the cause; those after it are work that was flushed.
        lost_packets_ = lost_packets_ || (!has_failed() && done.status == IBV_WC_RETRY_EXC_ERR);
        fail(device_->name() + ": " + ibv_wc_status_str(done.status));
      } else if ((done.opcode & IBV_WC_RECV) == 0) {
        complete_through(done.wr_id);
      } else if (done.opcode != IBV_WC_RECV || (done.wc_flags & IBV_WC_WITH_IMM) == 0) {
        fail("the peer sent a message without its count of messages");
      } else {
        take_arrival(done);
      }
    }
    if (count < static_cast<int>(kBatch)) break;
  }
  return total;
}

void DataPath::take_arrival(const ibv_wc& done) {
  received_bytes_ += done.byte_len;
  ++counters_.messages_received;
  const std::uint32_t consumed = ntohl(done.imm_data);
  if (consumed - peer_consumed_ > sent_data_ - peer_consumed_) {
    return fail("the peer says that it has consumed more than was sent");
  }
  peer_consumed_ = consumed;
  arrived_[next_arrived_++ % arrived_.size()] = {static_cast<std::uint32_t>(done.wr_id),
                                                 done.byte_len, consumed};
}

void DataPath::complete_through(std::uint64_t number) {
  while (completed_ < number) {
    const PostedMessage& message = posted_[++completed_ % posted_.size()];
    queued_bytes_ -= message.frame_bytes;
    staging_begin_ = message.staging_end;
    completed_data_ = message.data_messages;
  }
}

// ---- Incoming

int DataPath::deliver(MessageSink& sink) {
  int delivered = 0;
  while (first_arrived_ != next_arrived_) {
    const ArrivedMessage message = arrived_[first_arrived_ % arrived_.size()];
    // What its sender had consumed has not completed here yet.
    if (static_cast<std::int32_t>(message.consumed - completed_data_) > 0) break;
    if (delivered == kMessagesPerPoll) {
      is_due_ = true;
      break;
    }
    ++first_arrived_;
    ++delivered;
    if (message.bytes > 0 && !std::exchange(expects_probe_, false)) {
      sink.on_message(
          slots_.bytes().subspan(std::size_t{message.slot} * slot_stride_, message.bytes));
      if (!pair_) return delivered;
    }
    consumed_ += message.bytes > 0 ? 1 : 0;
    free_slots_.push_back(message.slot);
  }
  repost();
  return delivered;
}

void DataPath::repost() {
  while (!free_slots_.empty()) {
    ibv_recv_wr requests[kBatch];
    ibv_sge sges[kBatch];
    const std::size_t count = std::min<std::size_t>(kBatch, free_slots_.size());
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t slot = free_slots_.back();
      free_slots_.pop_back();
      std::byte* place = slots_.bytes().data() + std::size_t{slot} * slot_stride_;
      sges[i] = {reinterpret_cast<std::uintptr_t>(place), slot_bytes_, slots_region_->lkey};
      requests[i] = {slot, i + 1 < count ? &requests[i + 1] : nullptr, &sges[i], 1};
    }
    ibv_recv_wr* bad = nullptr;
    if (const int error = ibv_post_recv(pair_.get(), requests, &bad); error != 0) {
      fail(device_->name() + ": cannot post a receive: " + std::strerror(error));
      return;
    }
  }
}

// ---- Outgoing

int DataPath::post() {
  int posted = 0;
  bool more = true;
  while (more && !has_failed()) {
    Batch batch;
    while (batch.count < kBatch && (more = add_part(batch))) {
    }
    if (batch.count == 0 && consumed_ - told_ >= settings_.receive_slots / 2) add_credit(batch);
    if (batch.count == 0) break;
    posted += flush(batch);
  }
  return posted;
}

// The next part of the oldest frame. False: there is none, or it cannot leave now.
bool DataPath::add_part(Batch& batch) {
  if (queue_.empty() || credits() == 0 || posted_count_ - completed_ >= send_depth_) return false;
  const net::OutgoingFrame& frame = queue_.at(0);
  const std::size_t frame_bytes = frame.head.size() + frame.body.size();
  const std::size_t head_done = std::min(front_done_, frame.head.size());
  const std::size_t head_left = frame.head.size() - head_done;
  // Bodies are cut where a slot without its room for a head would be full, so that a body of a
  // whole number of such pieces has no small one at its end.
  const std::size_t limit =
      remote_slot_bytes_ - kHeadRoom + std::min<std::size_t>(head_left, kHeadRoom);
  const std::size_t bytes = std::min(frame_bytes - front_done_, limit);
  const auto head = frame.head.subspan(head_done, std::min(head_left, bytes));
  const auto body = frame.body.subspan(front_done_ - head_done, bytes - head.size());

  ibv_sge* sges = batch.sges[batch.count];
  std::uint32_t used = 0;
  const bool is_inline = bytes <= inline_bytes_;
  const bool needs_key = !is_inline && !body.empty();
  const LaneMemory::Key key = needs_key ? memory_.key_of(body) : LaneMemory::Key{};
  if (key.comes_later) {
    is_due_ = true;
    return false;
  }
  const std::uint64_t staging_before = staging_end_;
  for (const bool is_body : {false, true}) {
    const auto part = is_body ? body : head;
    if (part.empty()) continue;
    ibv_sge& sge = sges[used++];
    sge = {reinterpret_cast<std::uintptr_t>(part.data()), static_cast<std::uint32_t>(part.size()),
           0};
    if (is_inline) continue;
    if (is_body && key.value) {
      sge.lkey = *key.value;
    } else if (!stage(part, sge)) {
      staging_end_ = staging_before;
      return false;
    }
  }
  ibv_send_wr& request = add_request(batch, static_cast<std::uint32_t>(bytes), true);
  request.num_sge = static_cast<int>(used);
  if (is_inline) {
    request.send_flags |= IBV_SEND_INLINE;
    ++counters_.inline_messages;
  }
  front_done_ += bytes;
  if (front_done_ == frame_bytes) {
    queue_.pop();
    front_done_ = 0;
  }
  if (front_done_ == 0 || must_wake_peer()) request.send_flags |= IBV_SEND_SOLICITED;
  return true;
}

bool DataPath::add_credit(Batch& batch) {
  if (posted_count_ - completed_ >= send_depth_) return false;
  ibv_send_wr& request = add_request(batch, 0, false);
  request.num_sge = 0;
  request.send_flags |= IBV_SEND_SOLICITED;
  return true;
}

// Copies to registered memory. False: there is no room until messages have completed.
bool DataPath::stage(std::span<const std::byte> bytes, ibv_sge& sge) {
  const std::size_t size = staging_.bytes().size();
  std::uint64_t begin = staging_end_;
  // In one piece: what does not fit before the end of the ring begins anew.
  if (begin % size + bytes.size() > size) begin += size - begin % size;
  if (begin + bytes.size() - staging_begin_ > size) return false;
  std::byte* place = staging_.bytes().data() + begin % size;
  std::memcpy(place, bytes.data(), bytes.size());
  counters_.copied_bytes += bytes.size();
  sge = {reinterpret_cast<std::uintptr_t>(place), static_cast<std::uint32_t>(bytes.size()),
         staging_region_->lkey};
  staging_end_ = begin + bytes.size();
  return true;
}

ibv_send_wr& DataPath::add_request(Batch& batch, std::uint32_t frame_bytes, bool is_data) {
  sent_data_ += is_data ? 1 : 0;
  posted_[++posted_count_ % posted_.size()] = {frame_bytes, staging_end_, sent_data_};
  ibv_send_wr& request = batch.requests[batch.count];
  request = {};
  request.wr_id = posted_count_;
  request.sg_list = batch.sges[batch.count];
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htonl(consumed_);
  if (posted_count_ % kSignalEvery == 0) request.send_flags = IBV_SEND_SIGNALED;
  if (batch.count > 0) batch.requests[batch.count - 1].next = &request;
  ++batch.count;
  return request;
}

int DataPath::flush(Batch& batch) {
  batch.requests[batch.count - 1].send_flags |= IBV_SEND_SIGNALED;
  told_ = consumed_;
  ibv_send_wr* bad = nullptr;
  ++counters_.posts;
  counters_.messages_sent += batch.count;
  if (const int error = ibv_post_send(pair_.get(), batch.requests, &bad); error != 0) {
    fail(device_->name() + ": cannot post a send: " + std::strerror(error));
  }
  return static_cast<int>(batch.count);
}

void DataPath::probe() {
  Batch batch;
  if (remote_probes_) {
    add_probe(batch);
  } else {
    add_credit(batch);
  }
  flush(batch);
}

// Of zeros: nothing has been staged yet.
void DataPath::add_probe(Batch& batch) {
  const auto bytes = staging_.bytes().first(std::min(packet_bytes(), remote_slot_bytes_));
  staging_end_ = bytes.size();
  batch.sges[0][0] = {reinterpret_cast<std::uintptr_t>(bytes.data()),
                      static_cast<std::uint32_t>(bytes.size()), staging_region_->lkey};
  ibv_send_wr& request = add_request(batch, 0, true);
  request.num_sge = 1;
  request.send_flags |= IBV_SEND_SOLICITED;
}

// ---- Sleep and end

bool DataPath::arm() {
  if (!pair_) return true;
  if (has_failed()) return false;  // poll() tells
  // Completions of what was sent are never solicited.
  const bool waits_for_marks = remote_marks_ && is_idle() && !has_waiting();
  const Armed wanted = waits_for_marks ? Armed::solicited : Armed::all;
  if (armed_ < wanted) {
    if (ibv_req_notify_cq(completions_.get(), wanted == Armed::solicited ? 1 : 0) != 0) {
      fail(device_->name() + ": its completion queue cannot be armed");
      return false;
    }
    armed_ = wanted;
  }
  // What came between the last look and the arming makes no event.
  return reap() == 0 && !is_due_;
}

bool DataPath::drain(std::uint64_t limit_ns) {
  using std::chrono::steady_clock;
  const auto until = steady_clock::now() + std::chrono::nanoseconds(limit_ns);
  while (pair_ && !has_failed()) {
    reap();
    is_due_ = false;
    if (!has_failed()) post();
    if (queue_.empty() && is_idle()) return true;
    if (is_due_ && is_idle()) break;  // its memory comes in a later turn
    if (steady_clock::now() >= until) break;
  }
  return false;
}

void DataPath::take_event(const Device::Broken& broken) {
  if (!pair_ || (broken.handle != pair_.get() && broken.handle != completions_.get())) return;
  fail(device_->name() + ": " + broken.why);
}

void DataPath::close() noexcept {
  pair_.reset();
  completions_.reset();
  staging_region_.reset();
  slots_region_.reset();
  queued_bytes_ = 0;
}

}  // namespace tern::rdma
