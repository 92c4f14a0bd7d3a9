// A TcpStream inside TLS.

#include <algorithm>
#include <cstring>

#include "net/tcp/tcp_stream.h"

namespace tern::net {

namespace asio = boost::asio;

Carriage TcpStream::carriage() const noexcept {
  if (!tls_) return {"tcp", "", 0};
  return {"tls", tls_->peer_text().c_str(), 0};
}

// The hand-shake of the side that connects; the acceptor does that of the other.
int TcpStream::secure() {
  if (!tls_) {
    tls_ = TlsSession::connecting(settings_.tls->current(), socket_.native_handle(), host_);
  }
  readable_ = writable_ = false;
  switch (tls_->handshake()) {
    case TlsStep::done:
      phase_ = Phase::open;
      readable_ = writable_ = true;
      sink_->on_open(*connection_);
      return 1;
    case TlsStep::wants_read:
      wait_readable();
      return 1;
    case TlsStep::wants_write:
      wait_writable();
      return 1;
    case TlsStep::ended:
    case TlsStep::failed:
      break;
  }
  return close(tls_->reason(), tls_->trouble().c_str());
}

std::size_t TcpStream::read_secure(std::span<const asio::mutable_buffer> buffers, Error& error) {
  std::size_t total = 0;
  TlsStep step = TlsStep::done;
  for (const asio::mutable_buffer& buffer : buffers) {
    if (buffer.size() == 0) continue;
    total += tls_->read({static_cast<std::byte*>(buffer.data()), buffer.size()}, step);
    if (step != TlsStep::done || tls_->has_more()) break;
  }
  if (total > 0) return total;
  if (step == TlsStep::wants_read || step == TlsStep::wants_write) {
    error = asio::error::would_block;
  } else {
    error = step == TlsStep::ended ? Error(asio::error::eof) : Error(asio::error::connection_reset);
  }
  return 0;
}

// Small buffers share a record: one costs as much as it does to encrypt some KiB.
std::size_t TcpStream::write_records(std::span<const asio::const_buffer> buffers, TlsStep& step) {
  std::array<std::byte, 4096> together;
  std::size_t taken = 0;
  while (!buffers.empty()) {
    std::size_t count = 0, bytes = 0;
    for (; count < buffers.size() && bytes + buffers[count].size() <= together.size(); ++count) {
      std::memcpy(together.data() + bytes, buffers[count].data(), buffers[count].size());
      bytes += buffers[count].size();
    }
    std::span<const std::byte> record = std::span(together).first(bytes);
    if (count == 0) {  // a large one
      record = {static_cast<const std::byte*>(buffers[0].data()), buffers[0].size()};
      count = 1;
    }
    const std::size_t written = tls_->write(record, step);
    taken += written;
    if (written < record.size()) break;
    buffers = buffers.subspan(count);
  }
  return taken;
}

// Fills the session's buffer from many frames, and sends it in one call.
int TcpStream::write_secure(TcpTurn turn) {
  int writes = 0;
  while (writable_ && turn.bytes > 0 && (!queue_.empty() || tls_->has_unsent())) {
    WriteBuffers buffers;
    gather_write(buffers, settings_.bytes_per_poll);
    TlsStep step = TlsStep::done;
    const std::size_t taken = write_records(buffers, step);
    drop_written(taken);
    if (step == TlsStep::done) {
      step = tls_->flush(send_bound_.is_set() ? send_bound_.record_bytes() : 0);
    }
    if (step == TlsStep::wants_write) {
      wait_writable();
    } else if (step != TlsStep::done) {
      // As in write(): reading ends with the same error, after what the peer sent before.
      writable_ = false;
      readable_ = true;
    }
    turn.spend(taken);
    ++writes;
  }
  return writes;
}

}  // namespace tern::net
