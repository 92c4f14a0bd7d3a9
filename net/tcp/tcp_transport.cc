#include "net/tcp/tcp_transport.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <optional>

#include "base/check.h"
#include "net/tcp/tcp_stream.h"

namespace tern::net {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

// A shorter turn would not be worth its system calls.
constexpr std::size_t kLeastTurnBytes = 128 << 10;
// For an address's answer, where there are others (RFC 8305, section 5): several have their turn in
// each attempt of a link, which begins at the first address again.
constexpr std::chrono::milliseconds kPatience{250};

std::optional<asio::ip::address> numeric_address(const std::string& host) {
  boost::system::error_code error;
  const auto address = asio::ip::make_address(host, error);
  if (error) return std::nullopt;
  return address;
}

NameLookups& names_of(const TcpSettings& settings) {
  return settings.names != nullptr ? *settings.names : NameLookups::of_process();
}

class TcpConnection final : public Connection {
 public:
  explicit TcpConnection(std::shared_ptr<TcpStream> stream) : stream_(std::move(stream)) {
    stream_->attach(*this);
  }
  ~TcpConnection() override { stream_->detach(); }
  void send(const OutgoingFrame& frame) override { stream_->send(frame); }
  std::size_t queued_bytes() const override { return stream_->queued_bytes(); }
  std::uint64_t received_bytes() const override { return stream_->received_bytes(); }
  DeliveryRate delivery_rate() const override { return stream_->delivery_rate(); }
  Carriage carriage() const override { return stream_->carriage(); }
  void bound_queue(const QueueBound& bound) override { stream_->bound_queue(bound); }
  void hold_reading(bool hold) override { stream_->hold_reading(hold); }

 private:
  std::shared_ptr<TcpStream> stream_;
};

}  // namespace

// Options that a kernel does not know are not worth failing for.
void configure(tcp::socket& socket, const TcpSettings& settings) {
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(false), ignored);
  if (settings.send_buffer_bytes > 0) {
    socket.set_option(asio::socket_base::send_buffer_size(settings.send_buffer_bytes), ignored);
  }
  if (settings.receive_buffer_bytes > 0) {
    socket.set_option(asio::socket_base::receive_buffer_size(settings.receive_buffer_bytes),
                      ignored);
  }
}

TcpStream::TcpStream(EventLoop::Impl& loop, const TcpSettings& settings, ConnectionSink& sink)
    : loop_(loop),
      settings_(settings),
      sink_(&sink),
      socket_(loop.io),
      patience_(loop.io),
      send_bound_(settings.send_buffer_bytes > 0) {}

void TcpStream::connect_to(const Endpoint& endpoint) {
  text_ = to_text(endpoint);
  host_ = endpoint.host;
  const auto address = numeric_address(endpoint.host);
  if (!address) return look_up(endpoint);
  addresses_.assign(1, {tcp::endpoint(*address, endpoint.port), kPatience});
  try_next_address({});
}

// Until the request is destroyed, in detach(), the stream and its loop are there.
void TcpStream::look_up(const Endpoint& endpoint) {
  const auto answered = [this, port = endpoint.port](const NameLookups::Answer& answer) {
    asio::post(socket_.get_executor(), [weak = weak_from_this(), port, answer] {
      const auto self = weak.lock();
      if (self && !self->is_detached()) self->try_addresses(answer, port);
    });
  };
  lookup_ = names_of(settings_).ask(endpoint.host, endpoint.user, answered);
}

void TcpStream::try_addresses(const NameLookups::Answer& answer, std::uint16_t port) {
  for (const auto& address : answer.addresses) {
    addresses_.push_back({tcp::endpoint(address, port), kPatience});
  }
  try_next_address(answer.trouble);
}

void TcpStream::try_next_address(const std::string& last_trouble) {
  std::string trouble = last_trouble;
  while (!addresses_.empty()) {
    const tcp::endpoint address = addresses_.front().endpoint;
    if (settings_.loopback_only && !address.address().is_loopback()) {
      trouble =
          "is not on this machine, and nothing here is encrypted (peer_security = \"local\"): set "
          "peer_security";
      addresses_.pop_front();
      continue;
    }
    Error error;
    Error ignored;
    socket_.close(ignored);
    socket_.open(address.protocol(), error);
    if (error) {
      trouble = error.message();
      addresses_.pop_front();
      continue;
    }
    configure(socket_, settings_);
    const std::uint64_t attempt = ++attempt_;
    socket_.async_connect(address, [self = shared_from_this(), attempt](const Error& failed) {
      if (self->sink_ == nullptr || attempt != self->attempt_) return;
      self->patience_.cancel();
      if (failed) {
        self->addresses_.pop_front();
        self->try_next_address(failed.message());
      } else {
        self->phase_ = Phase::opened;
      }
    });
    if (addresses_.size() == 1) return;
    patience_.expires_after(addresses_.front().patience);
    patience_.async_wait([self = shared_from_this(), attempt](const Error& cancelled) {
      if (!cancelled) self->on_no_answer(attempt);
    });
    return;
  }
  text_ += ": " + trouble;
  phase_ = Phase::failed;
}

// An address that answers nothing does not hide the others of its name. It has another turn after
// them, because it may only be slow.
void TcpStream::on_no_answer(std::uint64_t attempt) {
  if (sink_ == nullptr || attempt != attempt_ || phase_ != Phase::opening) return;
  Address silent = addresses_.front();
  silent.patience *= 2;
  addresses_.pop_front();
  addresses_.push_back(silent);
  try_next_address("it does not answer");
}

void TcpStream::adopt(TcpIncoming& incoming) {
  tls_ = std::move(incoming.tls);
  const tcp::socket::native_handle_type fd = incoming.fd.release();
  Error error;
  socket_.assign(incoming.is_v6 ? tcp::v6() : tcp::v4(), fd, error);
  if (error) {
    ::close(fd);
    text_ = error.message();
    phase_ = Phase::failed;
    return;
  }
  configure(socket_, settings_);
  phase_ = Phase::open;
  readable_ = writable_ = true;
}

TcpTransport::TcpTransport(EventLoop& loop, const TcpSettings& settings)
    : loop_(loop), settings_(settings) {}

TcpTransport::~TcpTransport() {
  for (const auto& stream : streams_) TERN_CHECK(stream->is_detached());
}

std::unique_ptr<Connection> TcpTransport::connect(const Endpoint& endpoint, ConnectionSink& sink) {
  auto stream = std::make_shared<TcpStream>(loop_.impl(), settings_, sink);
  streams_.push_back(stream);
  auto connection = std::make_unique<TcpConnection>(stream);
  stream->connect_to(endpoint);
  return connection;
}

void TcpTransport::hasten(const Endpoint& endpoint) {
  if (numeric_address(endpoint.host)) return;
  names_of(settings_).hasten(endpoint.host, endpoint.user);
}

std::unique_ptr<Connection> TcpTransport::adopt(std::unique_ptr<Incoming> incoming,
                                                ConnectionSink& sink) {
  auto* mine = dynamic_cast<TcpIncoming*>(incoming.get());
  TERN_CHECK(mine != nullptr);
  auto stream = std::make_shared<TcpStream>(loop_.impl(), settings_, sink);
  streams_.push_back(stream);
  auto connection = std::make_unique<TcpConnection>(stream);
  stream->adopt(*mine);
  return connection;
}

void TcpTransport::flush() {
  auto slice = time_slice();
  const std::size_t count = streams_.size();
  for (std::size_t i = 0; i < count; ++i) {
    const int written =
        streams_[(next_ + i) % count]->flush({kLeastTurnBytes, slice ? &*slice : nullptr});
    if (written == 0 || !slice || i + 1 == count) continue;
    if (slice->is_over()) break;  // poll() writes the rest
  }
}

std::optional<LateTimeSlice> TcpTransport::time_slice() const {
  if (settings_.clock == nullptr) return std::nullopt;
  return LateTimeSlice(*settings_.clock, settings_.longest_poll_ns);
}

int TcpTransport::poll() {
  int work = loop_.poll();
  std::erase_if(streams_, [](const auto& stream) { return stream->is_detached(); });
  // Each connection has a bounded turn, shorter the more of them are busy. Another one begins each
  // time: the next one that had none, where time was up. Callbacks may append.
  const std::size_t count = streams_.size();
  const auto busy = std::count_if(streams_.begin(), streams_.end(),
                                  [](const auto& stream) { return stream->is_ready(); });
  const std::size_t share =
      settings_.bytes_per_poll / std::max<std::size_t>(static_cast<std::size_t>(busy), 1);
  const std::size_t turn = std::max(share, std::min(settings_.bytes_per_poll, kLeastTurnBytes));
  auto slice = time_slice();
  const std::size_t first = next_++;
  for (std::size_t i = 0; i < count; ++i) {
    const std::shared_ptr<TcpStream> stream = streams_[(first + i) % count];
    const int done = stream->poll({turn, slice ? &*slice : nullptr});
    work += done;
    if (done == 0 || !slice || i + 1 == count || !slice->is_over()) continue;
    next_ = first + i + 1;
    return work + 1;  // there may be more, so the thread must not sleep
  }
  return work;
}

}  // namespace tern::net
