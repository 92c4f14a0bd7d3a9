#include <algorithm>
#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <cstring>
#include <deque>

#include "net/event_loop_asio.h"
#include "net/tcp/tcp_stream.h"
#include "net/tcp/tcp_transport.h"
#include "wire/hello.h"

namespace tern::net {

namespace asio = boost::asio;
using asio::ip::tcp;
using Error = boost::system::error_code;

namespace {

// After accept() has failed, usually for want of descriptors.
constexpr std::uint64_t kAcceptRetry = 100'000'000;

// A connection whose hello is not complete.
struct Unfinished {
  explicit Unfinished(tcp::socket socket_in) : socket(std::move(socket_in)) {}
  tcp::socket socket;
  std::string from;
  std::uint64_t deadline_ns = 0;
  bool readable = true;
  bool over = false;
  std::size_t have = 0;
  std::array<std::byte, sizeof(wire::HelloFrame)> bytes;
};

std::string text_of(const tcp::endpoint& endpoint) {
  return to_text({endpoint.address().to_string(), endpoint.port()});
}

}  // namespace

struct TcpAcceptor::State : std::enable_shared_from_this<TcpAcceptor::State> {
  State(EventLoop& loop_in, const Clock& clock_in, const AcceptorSettings& settings_in,
        const TcpSettings& tcp_settings_in, AcceptorSink& sink_in)
      : loop(loop_in),
        clock(clock_in),
        settings(settings_in),
        tcp_settings(tcp_settings_in),
        sink(sink_in),
        listener(loop_in.impl().io) {}

  void accept_next();
  bool examine(const std::shared_ptr<Unfinished>& candidate);
  bool receive(Unfinished& candidate, std::size_t wanted);
  bool check_hello(Unfinished& candidate);
  bool refuse(Unfinished& candidate, Errc reason, const char* text, bool say_so);
  int poll();

  EventLoop& loop;
  const Clock& clock;
  AcceptorSettings settings;
  TcpSettings tcp_settings;
  AcceptorSink& sink;
  tcp::acceptor listener;
  bool closed = false;
  bool accepting = false;
  std::uint64_t accept_after_ns = 0;
  std::deque<std::shared_ptr<Unfinished>> unfinished;
};

void TcpAcceptor::State::accept_next() {
  accepting = true;
  listener.async_accept([self = shared_from_this()](const Error& error, tcp::socket socket) {
    if (self->closed) return;
    self->accepting = false;
    const std::uint64_t now = self->clock.now_ns();
    if (error) {
      self->accept_after_ns = now + kAcceptRetry;
      return;
    }
    configure(socket, self->tcp_settings);
    auto candidate = std::make_shared<Unfinished>(std::move(socket));
    candidate->deadline_ns = now + self->settings.hello_timeout_ns;
    Error ignored;
    candidate->from = text_of(candidate->socket.remote_endpoint(ignored));
    self->unfinished.push_back(std::move(candidate));
    self->accept_next();
  });
}

bool TcpAcceptor::State::refuse(Unfinished& candidate, Errc reason, const char* text, bool say_so) {
  Error ignored;
  if (say_so) {
    const wire::RefuseFrame frame = wire::make_refuse(reason, text);
    candidate.socket.write_some(asio::const_buffer(&frame, sizeof frame), ignored);
    candidate.socket.shutdown(tcp::socket::shutdown_send, ignored);
  }
  candidate.socket.close(ignored);
  sink.on_refused(candidate.from, reason, text);
  return true;
}

// False: there are not `wanted` bytes yet, or the connection is over.
bool TcpAcceptor::State::receive(Unfinished& candidate, std::size_t wanted) {
  while (candidate.have < wanted) {
    Error error;
    const auto room = std::span(candidate.bytes).subspan(candidate.have, wanted - candidate.have);
    candidate.have +=
        candidate.socket.read_some(asio::mutable_buffer(room.data(), room.size()), error);
    if (error == asio::error::would_block || error == asio::error::try_again) return false;
    if (error) {
      candidate.over =
          refuse(candidate, Errc::io_error, "the connection ended before a hello", false);
      return false;
    }
    // Whoever does not speak Tern at all is not kept until the deadline.
    const std::size_t checked = std::min(candidate.have, sizeof wire::kFrameMagic);
    if (std::memcmp(candidate.bytes.data(), &wire::kFrameMagic, checked) != 0) {
      candidate.over = refuse(candidate, Errc::protocol_error,
                              wire::parse_error_text(wire::ParseError::bad_magic), false);
      return false;
    }
  }
  return true;
}

// True: it is finished, one way or the other.
bool TcpAcceptor::State::examine(const std::shared_ptr<Unfinished>& candidate) {
  if (candidate->readable) {
    candidate->readable = false;
    const bool header = receive(*candidate, wire::kFrameHeaderBytes);
    if (candidate->over || (header && check_hello(*candidate))) return true;
    candidate->socket.async_wait(tcp::socket::wait_read,
                                 [candidate](const Error&) { candidate->readable = true; });
  }
  if (clock.now_ns() < candidate->deadline_ns) return false;
  return refuse(*candidate, Errc::timeout, "no hello came in time", false);
}

bool TcpAcceptor::State::check_hello(Unfinished& candidate) {
  const wire::ParsedFrame parsed = wire::parse_frame_header(candidate.bytes);
  if (parsed.error != wire::ParseError::none) {
    return refuse(candidate, Errc::protocol_error, wire::parse_error_text(parsed.error), false);
  }
  // Before the rest is awaited: another frame may have less of it.
  wire::HelloError error = wire::HelloError::none;
  if (parsed.header.kind != static_cast<std::uint8_t>(wire::FrameKind::hello)) {
    error = wire::HelloError::wrong_kind;
  } else if (parsed.header.payload_bytes != sizeof(wire::HelloBody)) {
    error = wire::HelloError::wrong_size;
  } else {
    if (!receive(candidate, candidate.bytes.size())) return candidate.over;
    const auto payload = std::span(candidate.bytes).subspan(wire::kFrameHeaderBytes);
    const wire::ParsedHello hello = wire::parse_hello(parsed.header, payload);
    error = hello.error;
    if (error == wire::HelloError::none) {
      Error socket_error;
      const bool is_v6 = candidate.socket.local_endpoint(socket_error).protocol() == tcp::v6();
      Fd fd(candidate.socket.release(socket_error));
      auto incoming = std::make_unique<TcpIncoming>(std::move(fd), is_v6);
      incoming->hello = hello.body;
      incoming->from = candidate.from.substr(0, candidate.from.rfind(':'));
      sink.on_incoming(std::move(incoming), parsed.header, hello.body);
      return true;
    }
  }
  // A hello that was damaged on its way is not answered: the peer shall try again, not give up.
  return refuse(candidate, wire::hello_error_code(error), wire::hello_error_text(error),
                error != wire::HelloError::bad_payload_crc);
}

int TcpAcceptor::State::poll() {
  int work = loop.poll();
  if (!accepting && clock.now_ns() >= accept_after_ns) accept_next();
  for (; unfinished.size() > settings.max_unfinished; ++work) {
    const auto oldest = std::move(unfinished.front());
    unfinished.pop_front();
    refuse(*oldest, Errc::quota_exceeded, "too many connections without a hello", false);
  }
  for (std::size_t i = 0; i < unfinished.size();) {
    const std::shared_ptr<Unfinished> candidate = unfinished[i];
    if (examine(candidate)) {
      unfinished.erase(unfinished.begin() + static_cast<std::ptrdiff_t>(i));
      ++work;
    } else {
      ++i;
    }
  }
  return work;
}

TcpAcceptor::TcpAcceptor(std::shared_ptr<State> state) : state_(std::move(state)) {}

TcpAcceptor::~TcpAcceptor() {
  state_->closed = true;
  Error ignored;
  state_->listener.close(ignored);
  for (const auto& candidate : state_->unfinished) candidate->socket.close(ignored);
}

Endpoint TcpAcceptor::endpoint() const {
  Error ignored;
  const tcp::endpoint bound = state_->listener.local_endpoint(ignored);
  return {bound.address().to_string(), bound.port()};
}

int TcpAcceptor::poll() { return state_->poll(); }

Result<std::unique_ptr<TcpAcceptor>> TcpAcceptor::create(EventLoop& loop, const Endpoint& listen,
                                                         const Clock& clock,
                                                         const AcceptorSettings& settings,
                                                         const TcpSettings& tcp_settings,
                                                         AcceptorSink& sink) {
  auto state = std::make_shared<State>(loop, clock, settings, tcp_settings, sink);
  const auto failed = [&](const char* what, const Error& error) {
    return tern::fail(Errc::io_error, std::string("cannot ") + what + " " + to_text(listen) + ": " +
                                          error.message());
  };
  Error error;
  tcp::endpoint address(tcp::v6(), listen.port);
  if (!listen.host.empty()) {
    tcp::resolver resolver(loop.impl().io);
    const auto results =
        resolver.resolve(listen.host, std::to_string(listen.port), tcp::resolver::passive, error);
    if (error) return failed("resolve", error);
    address = results.begin()->endpoint();
  }
  tcp::acceptor& listener = state->listener;
  listener.open(address.protocol(), error);
  if (error && listen.host.empty()) {
    // A machine without IPv6.
    address = tcp::endpoint(tcp::v4(), listen.port);
    listener.open(address.protocol(), error);
  }
  if (error) return failed("listen on", error);
  Error ignored;
  if (listen.host.empty() && address.protocol() == tcp::v6()) {
    listener.set_option(asio::ip::v6_only(false), ignored);
  }
  listener.set_option(asio::socket_base::reuse_address(true), ignored);
  // Before listen(), so that the window offered in the handshake has the right scale.
  if (tcp_settings.receive_buffer_bytes > 0) {
    listener.set_option(asio::socket_base::receive_buffer_size(tcp_settings.receive_buffer_bytes),
                        ignored);
  }
  listener.bind(address, error);
  if (error) return failed("listen on", error);
  listener.listen(asio::socket_base::max_listen_connections, error);
  if (error) return failed("listen on", error);
  return std::unique_ptr<TcpAcceptor>(new TcpAcceptor(std::move(state)));
}

}  // namespace tern::net
