#pragma once

// An accepted connection until its hello is complete: the TLS hand-shake, if there is one, the
// hello, and the refusal of what is neither. Nothing of the peer is believed before.

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "net/tcp/tcp_stream.h"
#include "net/tls/tls_session.h"
#include "wire/hello.h"

namespace tern::net {

class Greeting {
 public:
  enum class Step : std::uint8_t { wants_read, wants_write, greeted, refused };

  // Tls null: plaintext.
  Greeting(boost::asio::ip::tcp::socket socket, const TlsSource* tls);

  // Goes as far as what has arrived allows.
  Step advance();
  // Greeted: gives the connection away.
  std::unique_ptr<TcpIncoming> take();
  const wire::FrameHeader& header() const noexcept { return header_; }

  // Why it is refused.
  Errc reason() const noexcept { return reason_; }
  const std::string& text() const noexcept { return text_; }
  // Refuses it from outside, without a word to the peer.
  void refuse(Errc reason, std::string text);
  // Refused: the peer reads why, and what it still sends is thrown away. True: no longer.
  bool has_left();

  boost::asio::ip::tcp::socket& socket() noexcept { return socket_; }
  const std::string& from() const noexcept { return from_; }

 private:
  using Error = boost::system::error_code;

  Step look_first();
  Step secure();
  Step read_hello();
  // All `wanted` bytes are there, or another step is due.
  bool receive(std::size_t wanted, Step& step);
  std::size_t read_some(std::span<std::byte> to, Error& error);
  Step refused(Errc reason, std::string text);
  // With a frame that says why, for peers that would understand it.
  Step answered(Errc reason, const std::string& text);

  boost::asio::ip::tcp::socket socket_;
  std::string from_;
  const TlsSource* source_;
  std::unique_ptr<TlsSession> tls_;
  bool is_secure_ = false;
  std::size_t have_ = 0;
  std::array<std::byte, sizeof(wire::HelloFrame)> bytes_;
  wire::FrameHeader header_;
  wire::HelloBody hello_;
  Errc reason_ = Errc::ok;
  std::string text_;
  bool lingers_ = false;
  std::size_t thrown_away_ = 0;
};

}  // namespace tern::net
