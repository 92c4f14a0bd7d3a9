#include "net/tcp/tcp_stream.h"

#include <algorithm>
#include <boost/asio/bind_allocator.hpp>
#include <cstring>

#include "base/check.h"
#include "net/tcp/delivery_rate.h"

namespace tern::net {

namespace asio = boost::asio;

namespace {

// The kernel answers EFAULT where it met a page that cannot be had, and where a use of ours would
// have raised SIGBUS. A use of ours does: whoever guards that memory puts another page there
// (shm/page_guard.h), and the call can be made again.
template <typename Buffers>
void touch_pages(const Buffers& buffers) noexcept {
  constexpr std::size_t kPageBytes = 4096;
  for (const auto& buffer : buffers) {
    const auto* const bytes = static_cast<const volatile unsigned char*>(buffer.data());
    for (std::size_t i = 0; i < buffer.size(); i += kPageBytes) (void)bytes[i];
    if (buffer.size() > 0) (void)bytes[buffer.size() - 1];
  }
}

}  // namespace

DeliveryRate TcpStream::delivery_rate() noexcept {
  return phase_ == Phase::open ? socket_delivery_rate(socket_.native_handle()) : DeliveryRate{};
}

void TcpStream::bound_queue(const QueueBound& bound) noexcept {
  if (phase_ == Phase::open) send_bound_.set(socket_.native_handle(), bound);
}

void TcpStream::send(const OutgoingFrame& frame) {
  if (phase_ == Phase::failed || phase_ == Phase::closed) return;
  const std::size_t bytes = frame.head.size() + frame.body.size();
  queue_.push(frame);
  queued_bytes_ += bytes;
  // Less waits for the turn's end: a receiver that has taken one frame before the next comes goes to
  // sleep between the two.
  if (phase_ == Phase::open && queued_bytes_ >= kWriteAtOnceBytes) write({queued_bytes_});
}

int TcpStream::poll(const TcpTurn& turn) {
  if (sink_ == nullptr) return 0;
  switch (phase_) {
    case Phase::opening:
    case Phase::closed:
      return 0;
    case Phase::failed:
      return close(Errc::unreachable, text_.c_str());
    case Phase::opened:
      readable_ = writable_ = true;
      if (settings_.tls != nullptr) {
        phase_ = Phase::securing;
        return secure();
      }
      phase_ = Phase::open;
      sink_->on_open(*connection_);
      return 1;
    case Phase::securing:
      return readable_ || writable_ ? secure() : 0;
    case Phase::open:
      break;
  }
  const int written = write(turn);
  return written + (sink_ != nullptr && phase_ == Phase::open ? read(turn) : 0);
}

int TcpStream::close(Errc reason, const char* text) {
  phase_ = Phase::closed;
  Error ignored;
  socket_.close(ignored);
  sink_->on_closed(*connection_, reason, text);
  return 1;
}

int TcpStream::close_after(const Error& error) {
  if (error == asio::error::eof) {
    const bool inside = receiver_.is_inside() || staged_end_ > staged_begin_;
    return inside ? close(Errc::corrupt_data, "the connection ended inside a frame")
                  : close(Errc::io_error, "the peer closed the connection");
  }
  if (tls_ && tls_->reason() != Errc::ok) return close(tls_->reason(), tls_->trouble().c_str());
  text_ = error.message();
  return close(Errc::io_error, text_.c_str());
}

// Reading.

int TcpStream::read(TcpTurn turn) {
  int reads = 0;
  while (readable_ && !held_ && turn.bytes > 0) {
    std::array<asio::mutable_buffer, 3> buffers;
    const std::size_t asked = gather_read(buffers);
    Error error;
    const std::size_t count =
        tls_ ? read_secure(buffers, error) : socket_.read_some(buffers, error);
    if (error == asio::error::would_block || error == asio::error::try_again) {
      wait_readable();
      break;
    }
    if (error == asio::error::fault) {
      touch_pages(buffers);
      ++reads;  // there is more to do, and nobody waits for it
      turn.spend(kLeastCharge);
      continue;
    }
    if (error) return close_after(error);
    ++reads;
    received_bytes_ += count;
    // Fewer bytes than there was room for: the socket is empty now, and one more read that says so
    // can be spared.
    if (count < asked && !(tls_ && tls_->has_more())) wait_readable();
    // What is not in the payload's place has been staged.
    staged_end_ += receiver_.is_inside() ? count - receiver_.take_placed(count) : count;
    take_staged();
    if (sink_ == nullptr || phase_ != Phase::open) return reads;
    if (readable_) turn.spend(std::max(count, kLeastCharge));
  }
  return reads;
}

// Inside a frame nothing is staged: the payload goes to its place, what follows it to staging_.
std::size_t TcpStream::gather_read(std::array<asio::mutable_buffer, 3>& buffers) noexcept {
  std::size_t count = 0;
  std::size_t asked = 0;
  bool to_end = true;
  const auto add = [&](std::span<std::byte> bytes) {
    if (bytes.empty()) return;
    buffers[count++] = asio::mutable_buffer(bytes.data(), bytes.size());
    asked += bytes.size();
  };
  if (receiver_.is_inside()) {
    const auto [first, second] = receiver_.open_places();
    to_end = first.size() + second.size() <= kReadBytes;
    const std::size_t in_first = std::min(first.size(), kReadBytes);
    add(first.first(in_first));
    add(second.first(std::min(second.size(), kReadBytes - in_first)));
  }
  if (to_end) add(std::span(staging_).subspan(staged_end_));
  return asked;
}

void TcpStream::take_staged() {
  while (sink_ != nullptr && phase_ == Phase::open) {
    const auto staged =
        std::span<const std::byte>(staging_).subspan(staged_begin_, staged_end_ - staged_begin_);
    if (receiver_.is_inside()) {
      staged_begin_ += receiver_.copy_in(staged);
      if (receiver_.missing_bytes() > 0) break;
      receiver_.deliver(*sink_, *connection_);
    } else if (staged.size() < wire::kFrameHeaderBytes || !begin_frame()) {
      break;
    }
  }
  const std::size_t left = staged_end_ - staged_begin_;
  if (staged_begin_ > 0 && left > 0) {
    std::memmove(staging_.data(), staging_.data() + staged_begin_, left);
  }
  staged_begin_ = 0;
  staged_end_ = left;
}

bool TcpStream::begin_frame() {
  const wire::ParseError error = receiver_.read_header(std::span(staging_).subspan(staged_begin_));
  if (error != wire::ParseError::none) {
    close(Errc::corrupt_data, wire::parse_error_text(error));
    return false;
  }
  staged_begin_ += wire::kFrameHeaderBytes;
  const bool accepted = receiver_.announce(*sink_, *connection_);
  if (sink_ == nullptr) return false;
  if (!accepted) close(Errc::corrupt_data, FrameReceiver::kRefused);
  return accepted;
}

// Writing.

int TcpStream::write(TcpTurn turn) {
  if (tls_) return write_secure(turn);
  int writes = 0;
  while (writable_ && !queue_.empty() && turn.bytes > 0) {
    WriteBuffers buffers;
    const bool bound = send_bound_.is_set();
    const std::size_t asked =
        gather_write(buffers, bound ? send_bound_.record_bytes()
                                    : std::min(settings_.bytes_per_poll, kWriteBytes));
    Error error;
    const std::size_t written =
        socket_.send(buffers, bound ? asio::socket_base::message_end_of_record : 0, error);
    if (error == asio::error::would_block || error == asio::error::try_again) {
      wait_writable();
      break;
    }
    if (error == asio::error::fault) {
      touch_pages(std::span(buffers));
      ++writes;
      turn.spend(kLeastCharge);
      continue;
    }
    // Not told here: what the peer sent before it closed is still to be read, and reading ends with
    // the same error.
    if (error) {
      writable_ = false;
      readable_ = true;
      break;
    }
    ++writes;
    drop_written(written);
    if (written < asked) wait_writable();
    if (writable_ && !queue_.empty()) turn.spend(written);
  }
  return writes;
}

std::size_t TcpStream::gather_write(WriteBuffers& buffers, std::size_t limit) const noexcept {
  std::size_t asked = 0;
  std::size_t skip = front_done_;
  const auto add = [&](std::span<const std::byte> bytes) {
    const std::size_t skipped = std::min(skip, bytes.size());
    skip -= skipped;
    bytes = bytes.subspan(skipped);
    bytes = bytes.first(std::min(bytes.size(), limit - asked));
    if (bytes.empty()) return;
    buffers.emplace_back(bytes.data(), bytes.size());
    asked += bytes.size();
  };
  for (std::size_t i = 0; i < queue_.size() && buffers.size() + 2 <= kBuffersPerWrite; ++i) {
    add(queue_.at(i).head);
    add(queue_.at(i).body);
    if (asked >= limit) break;
  }
  return asked;
}

void TcpStream::drop_written(std::size_t bytes) noexcept {
  queued_bytes_ -= bytes;
  front_done_ += bytes;
  while (!queue_.empty()) {
    const OutgoingFrame& front = queue_.at(0);
    const std::size_t front_bytes = front.head.size() + front.body.size();
    if (front_done_ < front_bytes) break;
    front_done_ -= front_bytes;
    queue_.pop();
  }
}

void TcpStream::detach() {
  // As much as the socket takes at once.
  if (phase_ == Phase::open && writable_) write({queued_bytes_});
  if (phase_ == Phase::open && tls_) tls_->say_end();
  sink_ = nullptr;
  connection_ = nullptr;
  phase_ = Phase::closed;
  Error ignored;
  lookup_.reset();
  patience_.cancel();
  socket_.close(ignored);
}

void TcpStream::wait_readable() {
  readable_ = false;
  loop_.wait_later({shared_from_this(), this});
}

void TcpStream::wait() {
  if (!socket_.is_open()) return;
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     asio::bind_allocator(WaitAllocator<std::byte>(read_memory_),
                                          [self = shared_from_this()](const Error& error) {
                                            if (error == asio::error::operation_aborted) return;
                                            self->readable_ = self->loop_.has_event = true;
                                          }));
}

void TcpStream::wait_writable() {
  writable_ = false;
  socket_.async_wait(asio::ip::tcp::socket::wait_write,
                     asio::bind_allocator(WaitAllocator<std::byte>(write_memory_),
                                          [self = shared_from_this()](const Error& error) {
                                            if (error == asio::error::operation_aborted) return;
                                            self->writable_ = self->loop_.has_event = true;
                                          }));
}

}  // namespace tern::net
