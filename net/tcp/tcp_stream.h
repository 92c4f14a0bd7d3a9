#pragma once

// One TCP connection's bytes: tcp_transport.cc opens it, tcp_stream.cc reads and writes frames,
// tcp_secure.cc does so inside TLS.

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/container/static_vector.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/time_slice.h"
#include "net/event_loop_asio.h"
#include "net/frame_receiver.h"
#include "net/outgoing_queue.h"
#include "net/tcp/name_lookups.h"
#include "net/tcp/send_bound.h"
#include "net/tcp/tcp_transport.h"
#include "net/tls/tls_session.h"
#include "net/transport.h"

namespace tern::net {

// A connection between acceptor and lane: on no event loop, since the two have one each.
struct TcpIncoming final : Incoming {
  TcpIncoming(Fd fd_in, bool is_v6_in) : fd(std::move(fd_in)), is_v6(is_v6_in) {}
  Fd fd;
  bool is_v6;
  std::unique_ptr<TlsSession> tls;  // null: plaintext
};

void configure(boost::asio::ip::tcp::socket& socket, const TcpSettings& settings);

// What a connection may do, each way, before others have their turn.
struct TcpTurn {
  std::size_t bytes;               // about; 0: it is over
  LateTimeSlice* slice = nullptr;  // of all connections together; outlives the turn

  // Between system calls, because it looks at the clock: each way has one at least.
  void spend(std::size_t moved) noexcept {
    bytes = slice != nullptr && slice->is_over() ? 0 : bytes - std::min(bytes, moved);
  }
};

// Shared by the Connection that its user holds, the transport, and waits in progress. Once the user
// has destroyed the Connection, sink is null and nothing is done any more.
class TcpStream final : public std::enable_shared_from_this<TcpStream>,
                        private EventLoop::Impl::Waiter {
 public:
  TcpStream(EventLoop::Impl& loop, const TcpSettings& settings, ConnectionSink& sink);

  void connect_to(const Endpoint& endpoint);
  void adopt(TcpIncoming& incoming);
  void attach(Connection& connection) noexcept { connection_ = &connection; }
  void detach();
  bool is_detached() const noexcept { return sink_ == nullptr; }

  void send(const OutgoingFrame& frame);
  std::size_t queued_bytes() const noexcept { return queued_bytes_; }
  std::uint64_t received_bytes() const noexcept { return received_bytes_; }
  DeliveryRate delivery_rate() noexcept;
  Carriage carriage() const noexcept;
  void bound_queue(const QueueBound& bound) noexcept;
  void hold_reading(bool hold) noexcept { held_ = hold; }
  // There is something to read, or room for what is to be written.
  bool is_ready() const noexcept { return (readable_ && !held_) || (writable_ && !queue_.empty()); }
  int poll(const TcpTurn& turn);
  // As Transport::flush().
  int flush(const TcpTurn& turn) {
    return phase_ == Phase::open && !queue_.empty() ? write(turn) : 0;
  }

 private:
  enum class Phase : std::uint8_t { opening, opened, securing, open, failed, closed };
  using Error = boost::system::error_code;

  // Enough for many small frames in one read, little to copy of a large one.
  static constexpr std::size_t kStagingBytes = 16 << 10;
  // A payload is read in pieces that are still in the cache when their CRC is computed.
  static constexpr std::size_t kReadBytes = 256 << 10;
  // What a read takes of a turn, however little it brings: a system call, or as many records
  // of TLS as one call decrypts, takes as long as copying that.
  static constexpr std::size_t kLeastCharge = 64 << 10;
  static constexpr std::size_t kBuffersPerWrite = 64;
  // No array: the many that a small write does not need are not even made.
  using WriteBuffers = boost::container::static_vector<boost::asio::const_buffer, kBuffersPerWrite>;
  // In a call. Found by trial: of 64 to 288 KiB the fastest in most rows (ADR 45). Probably because
  // the kernel takes no acknowledgements of the peer while a call copies.
  static constexpr std::size_t kWriteBytes = 96 << 10;
  // So much is written as soon as it is queued, and sets out while its sender makes the next.
  static constexpr std::size_t kWriteAtOnceBytes = 512 << 10;

  void look_up(const Endpoint& endpoint);
  void try_addresses(const NameLookups::Answer& answer, std::uint16_t port);
  void try_next_address(const std::string& last_trouble);
  void on_no_answer(std::uint64_t attempt);
  int close(Errc reason, const char* text);
  int close_after(const Error& error);

  int read(TcpTurn turn);
  std::size_t gather_read(std::array<boost::asio::mutable_buffer, 3>& buffers) noexcept;
  void take_staged();
  bool begin_frame();
  int write(TcpTurn turn);
  int write_secure(TcpTurn turn);
  std::size_t write_records(std::span<const boost::asio::const_buffer> buffers, TlsStep& step);
  std::size_t read_secure(std::span<const boost::asio::mutable_buffer> buffers, Error& error);
  int secure();
  std::size_t gather_write(WriteBuffers& buffers, std::size_t limit) const noexcept;
  void drop_written(std::size_t bytes) noexcept;
  void wait_readable();
  void wait_writable();
  void wait() override;

  EventLoop::Impl& loop_;
  TcpSettings settings_;
  ConnectionSink* sink_;
  Connection* connection_ = nullptr;
  boost::asio::ip::tcp::socket socket_;
  NameLookups::Request lookup_;
  // Still to be tried, in this order. That of the attempt under way is the first one.
  struct Address {
    boost::asio::ip::tcp::endpoint endpoint;
    std::chrono::milliseconds patience;  // twice as long in each turn
  };
  std::deque<Address> addresses_;
  std::uint64_t attempt_ = 0;
  boost::asio::steady_timer patience_;  // with the attempt, where there is another address
  Phase phase_ = Phase::opening;
  std::string text_;                 // the peer's name, then the reason of a failure
  std::string host_;                 // that was dialled
  std::unique_ptr<TlsSession> tls_;  // null: plaintext

  // Incoming. Staged bytes are those in staging_ from staged_begin_ to staged_end_.
  bool readable_ = false;
  bool held_ = false;  // nothing is read although there is something
  FrameReceiver receiver_;
  std::uint64_t received_bytes_ = 0;
  std::size_t staged_begin_ = 0;
  std::size_t staged_end_ = 0;

  // Outgoing.
  bool writable_ = false;
  OutgoingQueue queue_;
  std::size_t front_done_ = 0;  // bytes of the oldest frame that are written
  std::size_t queued_bytes_ = 0;
  SendBound send_bound_;

  WaitMemory read_memory_;
  WaitMemory write_memory_;
  std::array<std::byte, kStagingBytes> staging_;
};

}  // namespace tern::net
