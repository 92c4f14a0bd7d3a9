#include "rdma/rdma_transport.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/time_slice.h"
#include "rdma/rdma_stream.h"

namespace tern::rdma {
namespace {

// While RDMA keeps the lane busy the control connections are looked at this rarely, since that
// costs a system call.
constexpr std::uint64_t kControlNs = 1'000'000;
// Between two looks at a device that has told of no event.
constexpr std::uint64_t kCheckDeviceNs = 500'000'000;

// What connections do in one turn, and how long all that end in it, and each of them, may wait for
// what they sent last: whoever else is on the lane waits too. In less than the shortest time nobody
// is known to take nothing.
constexpr std::uint64_t kPollNs = 2'000'000;
constexpr std::uint64_t kDrainNs = 5'000'000;
constexpr std::uint64_t kLongestDrainNs = 2'000'000;
constexpr std::uint64_t kShortestDrainNs = 1'000'000;

// Between two looks for one where there is none, which is a look into a directory. A device that is
// there and cannot be used may take seconds to say so, and is tried after `rdma_retry`.
constexpr std::uint64_t kLookForDeviceNs = 100'000'000;

class RdmaConnection final : public net::Connection {
 public:
  explicit RdmaConnection(std::shared_ptr<RdmaStream> stream) : stream_(std::move(stream)) {
    stream_->attach(*this);
  }
  ~RdmaConnection() override { stream_->detach(); }
  void send(const net::OutgoingFrame& frame) override { stream_->send(frame); }
  std::size_t queued_bytes() const override { return stream_->queued_bytes(); }
  std::uint64_t received_bytes() const override { return stream_->received_bytes(); }
  net::Carriage carriage() const override { return stream_->carriage(); }
  net::DeliveryRate delivery_rate() const override { return stream_->delivery_rate(); }
  void bound_queue(const net::QueueBound& bound) override { stream_->bound_queue(bound); }
  bool wants_payload_crc() const override { return stream_->wants_payload_crc(); }

 private:
  std::shared_ptr<RdmaStream> stream_;
};

}  // namespace

RdmaTransport::RdmaTransport(net::Transport& control, net::EventLoop& loop, const Clock& clock,
                             const RdmaSettings& settings)
    : control_(control),
      loop_(loop),
      clock_(clock),
      settings_(settings),
      memory_(settings.max_registered_bytes) {}

RdmaTransport::~RdmaTransport() {
  for (const auto& stream : streams_) TERN_CHECK(stream->is_detached());
  drop_device();
}

// ---- The device

std::shared_ptr<Device> RdmaTransport::device(std::string& why) {
  const std::uint64_t now = clock_.now_ns();
  if (!device_ && (next_open_ns_ == 0 || now >= next_open_ns_)) {
    next_open_ns_ = now + settings_.retry_ns;
    auto opened = Device::open(settings_);
    if (opened) {
      device_ = std::move(*opened);
      troubles_.forgive_paths();
      may_have_device_ = true;
      if (const Status watched = watch_device(); !watched) {
        device_trouble_ = watched.error().text;
        drop_device();
      }
    } else {
      if (!Device::exists()) {
        next_open_ns_ = now + std::min(settings_.retry_ns, kLookForDeviceNs);
      }
      device_trouble_ = opened.error().text;
      may_have_device_ = may_have_device_ || opened.error().code == Errc::unreachable;
    }
  }
  if (!device_) why = device_trouble_;
  return device_;
}

Choice RdmaTransport::choice_for(std::string_view host) const {
  const auto found = settings_.peer_choices.find(net::canonical_host(host));
  return found == settings_.peer_choices.end() ? settings_.choice : found->second;
}

Status RdmaTransport::watch_device() {
  memory_.use(device_);
  const auto event =
      loop_.watch(duplicate(device_->context()->async_fd), [this] { device_event_ = true; });
  if (!event) return tl::unexpected(event.error());
  event_watch_ = *event;
  const auto completion = loop_.watch(duplicate(device_->channel()->fd), [this] {
    ibv_cq* queue = nullptr;
    void* path = nullptr;
    while (device_ && ibv_get_cq_event(device_->channel(), &queue, &path) == 0) {
      ibv_ack_cq_events(queue, 1);
      static_cast<DataPath*>(path)->disarm();
    }
  });
  if (!completion) return tl::unexpected(completion.error());
  completion_watch_ = *completion;
  return {};
}

void RdmaTransport::drop_device() {
  if (!device_) return;
  loop_.unwatch(std::exchange(event_watch_, 0));
  loop_.unwatch(std::exchange(completion_watch_, 0));
  memory_.use(nullptr);
  device_.reset();
}

// A device that fails takes its queue pairs with it at once: their own errors may come late or
// never.
int RdmaTransport::check_device() {
  if (!device_) return 0;
  const std::uint64_t now = clock_.now_ns();
  if (!device_event_ && now < next_check_ns_) return 0;
  device_event_ = false;
  next_check_ns_ = now + kCheckDeviceNs;
  std::string why;
  broken_.clear();
  const bool has_failed = device_->has_failed(why, broken_);
  for (const Device::Broken& one : broken_) {
    for (const auto& stream : streams_) stream->take_event(one);
  }
  if (!has_failed) return 0;
  device_trouble_ = why;
  next_open_ns_ = now + settings_.retry_ns;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const std::shared_ptr<RdmaStream> stream = streams_[i];
    stream->fail_over(why, Fault::ours);
  }
  drop_device();
  return 1;
}

// ---- Memory

Status RdmaTransport::remember_memory(const net::Memory& memory) {
  Status status = Transport::remember_memory(memory);
  if (status) memory_.remember(memory.bytes);
  return status;
}

void RdmaTransport::forget_memory(const net::Memory& memory) {
  if (memory.kind == net::MemoryKind::host) memory_.forget(memory.bytes);
}

DataPathCounters RdmaTransport::data_path_counters() const noexcept {
  DataPathCounters total;
  for (const auto& stream : streams_) {
    if (stream->path() == nullptr) continue;
    const DataPathCounters& one = stream->path()->counters();
    total.messages_sent += one.messages_sent;
    total.messages_received += one.messages_received;
    total.posts += one.posts;
    total.copied_bytes += one.copied_bytes;
    total.inline_messages += one.inline_messages;
  }
  return total;
}

// ---- Connections

std::unique_ptr<net::Connection> RdmaTransport::hold(std::shared_ptr<RdmaStream> stream) {
  troubles_.forget_old(clock_.now_ns(), [&](const std::string& peer) {
    return std::any_of(streams_.begin(), streams_.end(),
                       [&](const auto& one) { return one->peer() == peer; });
  });
  streams_.push_back(stream);
  return std::make_unique<RdmaConnection>(std::move(stream));
}

std::unique_ptr<net::Connection> RdmaTransport::connect(const net::Endpoint& endpoint,
                                                        net::ConnectionSink& sink) {
  auto stream = std::make_shared<RdmaStream>(*this, sink, to_text(endpoint));
  auto connection = hold(stream);
  stream->connect_to(endpoint);
  return connection;
}

std::unique_ptr<net::Connection> RdmaTransport::adopt(std::unique_ptr<net::Incoming> incoming,
                                                      net::ConnectionSink& sink) {
  // Not by its node id, which is new after each restart: what is known of peers must not grow.
  auto stream = std::make_shared<RdmaStream>(*this, sink, incoming->from);
  auto connection = hold(stream);
  stream->adopt(std::move(incoming));
  return connection;
}

RdmaTransport::Drained RdmaTransport::drain(DataPath& path) {
  using std::chrono::steady_clock;
  const auto begin = steady_clock::now();
  const bool all = path.drain(std::min(drain_left_ns_, kLongestDrainNs));
  const auto took_ns =
      static_cast<std::uint64_t>(std::chrono::nanoseconds(steady_clock::now() - begin).count());
  drain_left_ns_ -= std::min(drain_left_ns_, took_ns);
  if (all) return Drained::all;
  return took_ns < kShortestDrainNs ? Drained::had_no_time : Drained::not_all;
}

// Those that do not come to their turn are the first of the next one.
int RdmaTransport::poll_streams() {
  LateTimeSlice slice(clock_, kPollNs);
  int work = 0;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (next_stream_ >= streams_.size()) next_stream_ = 0;
    const std::shared_ptr<RdmaStream> stream = streams_[next_stream_++];
    const int done = stream->poll();
    work += done;
    if (done > 0 && i + 1 < streams_.size() && slice.is_over()) break;
  }
  return work;
}

int RdmaTransport::poll() {
  std::erase_if(streams_, [](const auto& stream) { return stream->is_detached(); });
  drain_left_ns_ = kDrainNs;
  memory_.begin_turn();
  int work = memory_.let_go();
  work += check_device();
  work += poll_streams();
  const bool uses_control = std::any_of(streams_.begin(), streams_.end(),
                                        [](const auto& stream) { return stream->is_on_control(); });
  had_control_ = uses_control || control_due_ || streams_.empty();
  if (!had_control_) {
    const std::uint64_t now = clock_.now_ns();
    had_control_ = now >= next_control_ns_;
    if (had_control_) next_control_ns_ = now + kControlNs;
  }
  if (had_control_) {
    control_due_ = false;
    work += control_.poll();
  }
  return work;
}

bool RdmaTransport::prepare_sleep() {
  // What the event loop has noticed of the control connections must be read before.
  control_due_ = !had_control_;
  bool may_sleep = !device_event_ && !control_due_ && !memory_.is_letting_go();
  for (const auto& stream : streams_) may_sleep = stream->arm() && may_sleep;
  return may_sleep && control_.prepare_sleep();
}

}  // namespace tern::rdma
