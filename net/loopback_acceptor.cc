#include "base/check.h"
#include "net/loopback.h"
#include "net/loopback_state.h"
#include "wire/hello.h"

namespace tern::net {

LoopbackAcceptor::LoopbackAcceptor(LoopbackNetwork& network, const Clock& clock,
                                   Listening listening, AcceptorSink& sink)
    : impl_(
          new Impl{network.impl(), std::move(listening.at), clock, listening.settings, sink, {}}) {
  TERN_CHECK(impl_->network.acceptors.emplace(impl_->at, impl_.get()).second);
}

LoopbackAcceptor::~LoopbackAcceptor() {
  impl_->network.acceptors.erase(impl_->at);
  for (const auto& candidate : impl_->unfinished) candidate.pipe->ends[1].gone = true;
}

Endpoint LoopbackAcceptor::endpoint() const { return impl_->at; }

void LoopbackAcceptor::Impl::refuse(LoopbackPipe& pipe, Errc reason, const char* text,
                                    bool say_so) {
  if (say_so) {
    const wire::RefuseFrame frame = wire::make_refuse(reason, text);
    const auto bytes = std::as_bytes(std::span(&frame, 1));
    pipe.ends[0].arriving.emplace_back(bytes.begin(), bytes.end());
  }
  pipe.ends[1].gone = true;
  sink.on_refused(to_text(pipe.ends[0].at), reason, text);
}

// True: it is finished, one way or the other.
bool LoopbackAcceptor::Impl::examine(const Unfinished& candidate) {
  LoopbackPipe& pipe = *candidate.pipe;
  if (network.is_killed(pipe)) {
    refuse(pipe, Errc::io_error, "connection reset", false);
    return true;
  }
  auto& arriving = pipe.ends[1].arriving;
  const bool reachable = !network.is_partitioned(pipe);
  if (!reachable || arriving.empty()) {
    if (reachable && pipe.ends[0].gone) {
      refuse(pipe, Errc::io_error, "the connection ended before a hello", false);
      return true;
    }
    if (clock.now_ns() < candidate.deadline_ns) return false;
    refuse(pipe, Errc::timeout, "no hello came in time", false);
    return true;
  }
  const LoopbackBytes bytes = std::move(arriving.front());
  arriving.pop_front();
  const wire::ParsedFrame parsed = wire::parse_frame_header(bytes);
  // Less than a header: the rest may still come, as on a byte stream.
  if (parsed.error == wire::ParseError::too_short) return false;
  if (parsed.error != wire::ParseError::none) {
    refuse(pipe, Errc::protocol_error, wire::parse_error_text(parsed.error), false);
    return true;
  }
  const auto payload = std::span<const std::byte>(bytes).subspan(wire::kFrameHeaderBytes);
  const wire::ParsedHello hello = wire::parse_hello(parsed.header, payload);
  const bool is_hello = parsed.header.kind == static_cast<std::uint8_t>(wire::FrameKind::hello);
  const auto error = hello.error == wire::HelloError::none && !is_hello
                         ? wire::HelloError::wrong_kind
                         : hello.error;
  if (error != wire::HelloError::none) {
    // A hello that was damaged on its way is not answered: the peer shall try again, not give up.
    refuse(pipe, wire::hello_error_code(error), wire::hello_error_text(error),
           error != wire::HelloError::bad_payload_crc);
    return true;
  }
  auto incoming = std::make_unique<LoopbackIncoming>(candidate.pipe);
  incoming->hello = hello.body;
  incoming->from = candidate.pipe->ends[0].at.host;
  incoming->source = incoming->from;
  sink.on_incoming(std::move(incoming), parsed.header, hello.body);
  return true;
}

int LoopbackAcceptor::poll() {
  int finished = 0;
  while (impl_->unfinished.size() > impl_->settings.max_unfinished) {
    const auto candidate = std::move(impl_->unfinished.front());
    impl_->unfinished.pop_front();
    impl_->refuse(*candidate.pipe, Errc::quota_exceeded, "too many connections without a hello",
                  false);
    ++finished;
  }
  for (std::size_t i = 0; i < impl_->unfinished.size();) {
    // By value: callbacks may bring new connections about.
    const auto candidate = impl_->unfinished[i];
    if (!impl_->examine(candidate)) {
      ++i;
      continue;
    }
    impl_->unfinished.erase(impl_->unfinished.begin() + static_cast<std::ptrdiff_t>(i));
    ++finished;
  }
  return finished;
}

}  // namespace tern::net
