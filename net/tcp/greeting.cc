#include "net/tcp/greeting.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace tern::net {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

// A refused peer may send so much while it reads why.
constexpr std::size_t kMaxThrownAway = 64 << 10;
// How a TLS connection begins: with a record of the hand-shake.
constexpr std::byte kTlsRecord{0x16};

bool would_block(const boost::system::error_code& error) {
  return error == asio::error::would_block || error == asio::error::try_again;
}

std::string text_of(const tcp::endpoint& endpoint) {
  return to_text({endpoint.address().to_string(), endpoint.port()});
}

}  // namespace

Greeting::Greeting(tcp::socket socket, const TlsSource* tls)
    : socket_(std::move(socket)), source_(tls) {
  Error ignored;
  from_ = text_of(socket_.remote_endpoint(ignored));
}

Greeting::Step Greeting::advance() {
  if (source_ != nullptr && !tls_) {
    if (const Step step = look_first(); step != Step::greeted) return step;
  }
  if (tls_ && !is_secure_) {
    if (const Step step = secure(); step != Step::greeted) return step;
  }
  return read_hello();
}

// Somebody who does not speak TLS would not understand its alert.
Greeting::Step Greeting::look_first() {
  std::array<std::byte, sizeof wire::kFrameMagic> first{};
  const ssize_t count =
      ::recv(socket_.native_handle(), first.data(), first.size(), MSG_PEEK | MSG_DONTWAIT);
  if (count < 0) return Step::wants_read;
  if (count == 0) return refused(Errc::io_error, "the connection ended before a hello");
  if (std::memcmp(first.data(), &wire::kFrameMagic, static_cast<std::size_t>(count)) == 0) {
    return answered(Errc::permission_denied,
                    "plaintext, where TLS alone is spoken: set peer_security alike on both nodes");
  }
  if (first[0] != kTlsRecord) {
    return refused(Errc::protocol_error, "what came first is neither TLS nor a frame of Tern");
  }
  tls_ = TlsSession::accepting(source_->current(), socket_.native_handle());
  return Step::greeted;
}

// Greeted: the hand-shake is done.
Greeting::Step Greeting::secure() {
  switch (tls_->handshake()) {
    case TlsStep::done:
      is_secure_ = true;
      return Step::greeted;
    case TlsStep::wants_read:
      return Step::wants_read;
    case TlsStep::wants_write:
      return Step::wants_write;
    case TlsStep::ended:
    case TlsStep::failed:
      break;
  }
  lingers_ = true;  // for the alert
  return refused(tls_->reason(), tls_->trouble());
}

std::size_t Greeting::read_some(std::span<std::byte> to, Error& error) {
  if (!tls_) return socket_.read_some(asio::mutable_buffer(to.data(), to.size()), error);
  TlsStep step = TlsStep::done;
  const std::size_t count = tls_->read(to, step);
  if (count > 0 || step == TlsStep::done) return count;
  error =
      step == TlsStep::wants_read ? asio::error::would_block : Error(asio::error::connection_reset);
  return 0;
}

bool Greeting::receive(std::size_t wanted, Step& step) {
  while (have_ < wanted) {
    Error error;
    have_ += read_some(std::span(bytes_).subspan(have_, wanted - have_), error);
    if (would_block(error)) {
      step = Step::wants_read;
      return false;
    }
    if (error) {
      step = tls_ && tls_->reason() != Errc::ok
                 ? refused(tls_->reason(), tls_->trouble())
                 : refused(Errc::io_error, "the connection ended before a hello");
      return false;
    }
    // Whoever does not speak Tern at all is not kept until the deadline.
    const std::size_t checked = std::min(have_, sizeof wire::kFrameMagic);
    if (std::memcmp(bytes_.data(), &wire::kFrameMagic, checked) != 0) {
      step =
          !tls_ && bytes_[0] == kTlsRecord
              ? answered(Errc::permission_denied,
                         "TLS, where plaintext is spoken: set peer_security alike on both nodes")
              : refused(Errc::protocol_error, wire::parse_error_text(wire::ParseError::bad_magic));
      return false;
    }
  }
  return true;
}

Greeting::Step Greeting::read_hello() {
  Step step = Step::wants_read;
  if (!receive(wire::kFrameHeaderBytes, step)) return step;
  const wire::ParsedFrame parsed = wire::parse_frame_header(bytes_);
  if (parsed.error != wire::ParseError::none) {
    return refused(Errc::protocol_error, wire::parse_error_text(parsed.error));
  }
  // Before the rest is awaited: another frame may have less of it.
  wire::HelloError error = wire::HelloError::none;
  if (parsed.header.kind != static_cast<std::uint8_t>(wire::FrameKind::hello)) {
    error = wire::HelloError::wrong_kind;
  } else if (parsed.header.payload_bytes != sizeof(wire::HelloBody)) {
    error = wire::HelloError::wrong_size;
  } else {
    if (!receive(bytes_.size(), step)) return step;
    const auto payload = std::span(bytes_).subspan(wire::kFrameHeaderBytes);
    const wire::ParsedHello hello = wire::parse_hello(parsed.header, payload);
    header_ = parsed.header;
    hello_ = hello.body;
    error = hello.error;
  }
  if (error == wire::HelloError::none) return Step::greeted;
  // A hello that was damaged on its way is not answered: the peer shall try again, not give up.
  if (error == wire::HelloError::bad_payload_crc) {
    return refused(wire::hello_error_code(error), wire::hello_error_text(error));
  }
  return answered(wire::hello_error_code(error), wire::hello_error_text(error));
}

std::unique_ptr<TcpIncoming> Greeting::take() {
  Error error;
  const bool is_v6 = socket_.local_endpoint(error).protocol() == tcp::v6();
  Fd fd(socket_.release(error));
  auto incoming = std::make_unique<TcpIncoming>(std::move(fd), is_v6);
  incoming->tls = std::move(tls_);
  incoming->hello = hello_;
  incoming->from = from_.substr(0, from_.rfind(':'));
  return incoming;
}

// ---- Refusals

void Greeting::refuse(Errc reason, std::string text) {
  reason_ = reason;
  text_ = std::move(text);
  Error ignored;
  socket_.close(ignored);
}

Greeting::Step Greeting::refused(Errc reason, std::string text) {
  reason_ = reason;
  text_ = std::move(text);
  Error ignored;
  if (lingers_) {
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  } else {
    socket_.close(ignored);
  }
  return Step::refused;
}

Greeting::Step Greeting::answered(Errc reason, const std::string& text) {
  const wire::RefuseFrame frame = wire::make_refuse(reason, text.c_str());
  const auto bytes = std::as_bytes(std::span(&frame, 1));
  if (is_secure_) {
    TlsStep step = TlsStep::done;
    tls_->write(bytes, step);
    tls_->say_end();
  } else {
    Error ignored;
    socket_.write_some(asio::const_buffer(bytes.data(), bytes.size()), ignored);
  }
  lingers_ = true;
  return refused(reason, text);
}

// A socket that is closed with bytes unread would take its last word back.
bool Greeting::has_left() {
  if (!lingers_ || !socket_.is_open()) return true;
  std::array<std::byte, 4096> nowhere;
  while (thrown_away_ < kMaxThrownAway) {
    Error error;
    thrown_away_ += socket_.read_some(asio::mutable_buffer(nowhere.data(), nowhere.size()), error);
    if (would_block(error)) return false;
    if (error) return true;
  }
  return true;
}

}  // namespace tern::net
