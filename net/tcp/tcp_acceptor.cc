#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <deque>
#include <limits>
#include <memory>

#include "base/time_slice.h"
#include "net/event_loop_asio.h"
#include "net/tcp/greeting.h"
#include "net/tcp/socket_user.h"
#include "net/tcp/sources.h"
#include "net/tcp/tcp_stream.h"
#include "net/tcp/tcp_transport.h"

namespace tern::net {

namespace asio = boost::asio;
using asio::ip::tcp;
using Error = boost::system::error_code;

namespace {

// After accept() has failed, usually for want of descriptors.
constexpr std::uint64_t kAcceptRetry = 100'000'000;

// A refused peer has so long to read why.
constexpr std::uint64_t kLinger = 1'000'000'000;

// Of a poll, for those that are ready: a step of a TLS hand-shake may take two milliseconds.
constexpr std::uint64_t kSliceNs = 2'000'000;

// Of a poll, for the kernel's queue: a node waits there behind all who came before it, and a thread
// that has much else to do must empty the queue faster than others fill it.
constexpr std::uint64_t kAcceptSliceNs = 1'000'000;

struct Unfinished {
  // `from` is the peer's address.
  Unfinished(tcp::socket socket, const tcp::endpoint& from, const TlsSource* tls)
      : greeting(std::move(socket), tls), source(source_of(from.address())) {}
  Greeting greeting;
  asio::ip::address source;
  std::uint64_t deadline_ns = 0;
  bool is_ready = true;  // something may be read, or written
  bool is_refused = false;
};

// Where only this machine is let in, its users are told apart.
std::string source_text(const TcpIncoming& incoming, const Unfinished& candidate,
                        const TcpSettings& settings) {
  const auto user = settings.loopback_only ? user_of_other_end(incoming.fd.get()) : std::nullopt;
  if (!user) return candidate.source.to_string();
  return "user " + std::to_string(settings.account_of ? settings.account_of(*user) : *user);
}

}  // namespace

struct TcpAcceptor::State : std::enable_shared_from_this<TcpAcceptor::State> {
  State(EventLoop& loop_in, const Clock& clock_in, const TcpListening& listening,
        AcceptorSink& sink_in)
      : loop(loop_in),
        clock(clock_in),
        settings(listening.settings),
        tcp_settings(listening.tcp),
        sink(sink_in),
        listener(loop_in.impl().io) {}

  void wait_for_peer();
  bool accept_peer(std::uint64_t now);
  int accept_some();
  void make_room();
  bool examine(const std::shared_ptr<Unfinished>& candidate);
  bool advance(const std::shared_ptr<Unfinished>& candidate);
  void give_up(Unfinished& candidate, Errc reason, const char* text);
  int examine_some();
  int poll();

  EventLoop& loop;
  const Clock& clock;
  AcceptorSettings settings;
  TcpSettings tcp_settings;
  AcceptorSink& sink;
  tcp::acceptor listener;
  bool closed = false;
  bool waits = false;      // for somebody who connects
  bool is_called = false;  // somebody does
  std::uint64_t accept_after_ns = 0;
  std::deque<std::shared_ptr<Unfinished>> unfinished;  // oldest first
  std::size_t next = 0;                                // of those, to be examined
};

void TcpAcceptor::State::wait_for_peer() {
  waits = true;
  listener.async_wait(tcp::acceptor::wait_read, [self = shared_from_this()](const Error& error) {
    self->waits = false;
    self->is_called = !error && !self->closed;
  });
}

// Who has said hello while it waited takes no place. Of those that do there are never more than may
// be, however many wait in the kernel's queue. A hand-shake has its turn with the others'.
bool TcpAcceptor::State::accept_peer(std::uint64_t now) {
  Error error;
  tcp::endpoint from;
  tcp::socket socket = listener.accept(from, error);
  if (error) {
    const bool is_empty = error == asio::error::would_block || error == asio::error::try_again;
    if (!is_empty) accept_after_ns = now + kAcceptRetry;
    return false;
  }
  configure(socket, tcp_settings);
  auto candidate = std::make_shared<Unfinished>(std::move(socket), from, tcp_settings.tls);
  candidate->deadline_ns = now + settings.hello_timeout_ns;
  if (tcp_settings.tls == nullptr && examine(candidate)) return true;
  make_room();
  unfinished.push_back(std::move(candidate));
  return true;
}

// One, and others until the slice is over.
int TcpAcceptor::State::accept_some() {
  const std::uint64_t now = clock.now_ns();
  if (!is_called || now < accept_after_ns) return 0;
  const TimeSlice slice(clock, kAcceptSliceNs);
  // With hand-shakes, so many that those who have just come are not put out before their turn.
  const int most = tcp_settings.tls == nullptr ? std::numeric_limits<int>::max()
                                               : static_cast<int>(settings.max_unfinished) / 4 + 1;
  int work = 0;
  while (accept_peer(now)) {
    if (++work >= most || slice.is_over()) return work;  // still called
  }
  is_called = false;
  return work;
}

void TcpAcceptor::State::make_room() {
  if (unfinished.size() < settings.max_unfinished) return;
  std::vector<asio::ip::address> sources;
  for (const auto& candidate : unfinished) sources.push_back(candidate->source);
  const auto place = unfinished.begin() + static_cast<std::ptrdiff_t>(oldest_of_heaviest(sources));
  const auto candidate = std::move(*place);
  unfinished.erase(place);
  give_up(*candidate, Errc::quota_exceeded, "too many connections without a hello");
}

void TcpAcceptor::State::give_up(Unfinished& candidate, Errc reason, const char* text) {
  const bool was_refused = candidate.is_refused;  // it was lingering
  candidate.greeting.refuse(reason, text);
  if (was_refused) return;
  sink.on_refused(candidate.greeting.from(), reason, text);
}

// True: it is finished, one way or the other.
bool TcpAcceptor::State::examine(const std::shared_ptr<Unfinished>& candidate) {
  if (candidate->is_ready) {
    candidate->is_ready = false;
    if (advance(candidate)) return true;
  }
  if (clock.now_ns() < candidate->deadline_ns) return false;
  give_up(*candidate, Errc::timeout, "no hello came in time");
  return true;
}

bool TcpAcceptor::State::advance(const std::shared_ptr<Unfinished>& candidate) {
  Greeting& greeting = candidate->greeting;
  auto awaited = tcp::socket::wait_read;
  if (!candidate->is_refused) {
    const Greeting::Step step = greeting.advance();
    if (step == Greeting::Step::greeted) {
      std::unique_ptr<TcpIncoming> incoming = greeting.take();
      incoming->source = source_text(*incoming, *candidate, tcp_settings);
      const wire::HelloBody hello = incoming->hello;
      sink.on_incoming(std::move(incoming), greeting.header(), hello);
      return true;
    }
    if (step == Greeting::Step::wants_write) awaited = tcp::socket::wait_write;
    if (step == Greeting::Step::refused) {
      candidate->is_refused = true;
      candidate->deadline_ns = clock.now_ns() + kLinger;
      sink.on_refused(greeting.from(), greeting.reason(), greeting.text().c_str());
    }
  }
  if (candidate->is_refused && greeting.has_left()) return true;
  greeting.socket().async_wait(awaited, [candidate](const Error&) { candidate->is_ready = true; });
  return false;
}

int TcpAcceptor::State::poll() {
  int work = loop.poll();
  work += accept_some();
  if (!waits && !is_called && clock.now_ns() >= accept_after_ns) wait_for_peer();
  return work + examine_some();
}

// One in turn, and others until the slice is over.
int TcpAcceptor::State::examine_some() {
  const TimeSlice slice(clock, kSliceNs);
  int work = 0;
  for (std::size_t left = unfinished.size(); left > 0; --left) {
    if (next >= unfinished.size()) next = 0;
    const std::shared_ptr<Unfinished> candidate = unfinished[next];
    if (examine(candidate)) {
      unfinished.erase(unfinished.begin() + static_cast<std::ptrdiff_t>(next));
      ++work;
    } else {
      ++next;
    }
    // The others may be ready.
    if (left > 1 && slice.is_over()) return work + 1;
  }
  return work;
}

TcpAcceptor::TcpAcceptor(std::shared_ptr<State> state) : state_(std::move(state)) {}

TcpAcceptor::~TcpAcceptor() {
  state_->closed = true;
  Error ignored;
  state_->listener.close(ignored);
  for (const auto& candidate : state_->unfinished) candidate->greeting.socket().close(ignored);
}

Endpoint TcpAcceptor::endpoint() const {
  Error ignored;
  const tcp::endpoint bound = state_->listener.local_endpoint(ignored);
  return {bound.address().to_string(), bound.port()};
}

int TcpAcceptor::poll() { return state_->poll(); }

Result<std::unique_ptr<TcpAcceptor>> TcpAcceptor::create(EventLoop& loop, const Clock& clock,
                                                         const TcpListening& listening,
                                                         AcceptorSink& sink) {
  const Endpoint& listen = listening.at;
  auto state = std::make_shared<State>(loop, clock, listening, sink);
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
  if (listening.tcp.receive_buffer_bytes > 0) {
    listener.set_option(asio::socket_base::receive_buffer_size(listening.tcp.receive_buffer_bytes),
                        ignored);
  }
  listener.bind(address, error);
  if (error) return failed("listen on", error);
  listener.listen(asio::socket_base::max_listen_connections, error);
  if (!error) listener.non_blocking(true, error);
  if (error) return failed("listen on", error);
  return std::unique_ptr<TcpAcceptor>(new TcpAcceptor(std::move(state)));
}

}  // namespace tern::net
