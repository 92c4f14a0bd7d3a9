#include "switched_transport.h"
#include "wire/hello.h"

namespace tern::sim {

SwitchedAcceptor::SwitchedAcceptor(SwitchedNetwork& network, net::Listening listening, Owner owner)
    : network_(network), listening_(std::move(listening)), owner_(std::move(owner)) {
  network_.listen(listening_.at, [this](const std::shared_ptr<NetworkPipe>& pipe) {
    pipe->ends[1].wanted = sizeof(wire::HelloFrame);
    pipe->ends[1].wake = owner_.wake;
    unfinished_.push_back({pipe, owner_.clock.now_ns() + listening_.settings.hello_timeout_ns});
    if (owner_.wake) owner_.wake();
  });
}

SwitchedAcceptor::~SwitchedAcceptor() {
  network_.stop_listening(listening_.at);
  for (const Unfinished& one : unfinished_) network_.close(*one.pipe, 1);
}

bool SwitchedAcceptor::refuse(NetworkPipe& pipe, Errc reason, const char* text, bool say_so) {
  const wire::RefuseFrame frame = wire::make_refuse(reason, text);
  if (say_so) pipe.ends[1].queue.push({std::as_bytes(std::span(&frame, 1)), {}});
  network_.close(pipe, 1);
  owner_.sink.on_refused(net::to_text(pipe.ends[0].at), reason, text);
  return true;
}

// True: it is finished, one way or the other.
bool SwitchedAcceptor::examine(const Unfinished& candidate) {
  NetworkPipe& pipe = *candidate.pipe;
  std::array<std::byte, sizeof(wire::HelloFrame)> bytes;
  const std::size_t have = std::min<std::size_t>(pipe.unread(1), bytes.size());
  std::size_t copied = 0;
  ByteRing& arriving = pipe.arriving(1);
  for (const auto part : arriving.read(arriving.begin(), have)) {
    std::copy(part.begin(), part.end(), bytes.begin() + static_cast<std::ptrdiff_t>(copied));
    copied += part.size();
  }
  const wire::ParsedFrame parsed = wire::parse_frame_header(std::span(bytes).first(have));
  if (parsed.error != wire::ParseError::none && parsed.error != wire::ParseError::too_short) {
    return refuse(pipe, Errc::protocol_error, wire::parse_error_text(parsed.error), false);
  }
  if (parsed.error == wire::ParseError::none &&
      parsed.header.kind != static_cast<std::uint8_t>(wire::FrameKind::hello)) {
    return refuse(pipe, wire::hello_error_code(wire::HelloError::wrong_kind),
                  wire::hello_error_text(wire::HelloError::wrong_kind), true);
  }
  if (have < bytes.size()) {
    if (pipe.has_ended(1)) {
      return refuse(pipe, Errc::io_error, "the connection ended before a hello", false);
    }
    if (owner_.clock.now_ns() < candidate.deadline_ns) return false;
    return refuse(pipe, Errc::timeout, "no hello came in time", false);
  }
  const wire::ParsedHello hello = wire::parse_hello(
      parsed.header, std::span<const std::byte>(bytes).subspan(wire::kFrameHeaderBytes));
  if (hello.error != wire::HelloError::none) {
    // A hello that was damaged on its way is not answered: the peer shall try again, not give up.
    return refuse(pipe, wire::hello_error_code(hello.error), wire::hello_error_text(hello.error),
                  hello.error != wire::HelloError::bad_payload_crc);
  }
  arriving.drop_to(arriving.begin() + bytes.size());
  pipe.ends[1].wake = nullptr;
  auto incoming = std::make_unique<SwitchedIncoming>(network_, candidate.pipe);
  incoming->hello = hello.body;
  incoming->from = pipe.ends[0].at.host;
  incoming->source = incoming->from;
  owner_.sink.on_incoming(std::move(incoming), parsed.header, hello.body);
  return true;
}

int SwitchedAcceptor::poll() {
  int finished = 0;
  while (unfinished_.size() > listening_.settings.max_unfinished) {
    const Unfinished oldest = unfinished_.front();
    unfinished_.erase(unfinished_.begin());
    refuse(*oldest.pipe, Errc::quota_exceeded, "too many connections without a hello", false);
    ++finished;
  }
  for (std::size_t i = 0; i < unfinished_.size();) {
    // By value: callbacks may bring new connections about.
    const Unfinished candidate = unfinished_[i];
    if (!examine(candidate)) {
      ++i;
      continue;
    }
    unfinished_.erase(unfinished_.begin() + static_cast<std::ptrdiff_t>(i));
    ++finished;
  }
  return finished;
}

}  // namespace tern::sim
