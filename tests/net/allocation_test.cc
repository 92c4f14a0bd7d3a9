// Counts every allocation of the program, so that the promise of none per frame can be checked.

#include <gtest/gtest.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>

#include "base/clock.h"
#include "net/link.h"
#include "net/tcp/tcp_transport.h"
#include "tests/net/tls_files.h"

namespace {

std::uint64_t allocations = 0;

// OpenSSL takes a few bytes for each record and gives them back: what it holds must not grow.
std::int64_t held_by_openssl = 0;

void* count_malloc(std::size_t size, const char*, int) {
  ++held_by_openssl;
  return std::malloc(size);
}
void* count_realloc(void* memory, std::size_t size, const char*, int) {
  if (memory == nullptr) ++held_by_openssl;
  return std::realloc(memory, size);
}
void count_free(void* memory, const char*, int) {
  if (memory != nullptr) --held_by_openssl;
  std::free(memory);
}

// Before OpenSSL allocates anything.
const bool kCountsOpenssl = CRYPTO_set_mem_functions(count_malloc, count_realloc, count_free) == 1;

}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tern::net {
namespace {

class CountingSink final : public LinkSink, public AcceptorSink {
 public:
  PayloadPlace place_payload(Link&, const wire::FrameHeader& header) override {
    const auto place = std::span(memory_).first(header.payload_bytes);
    const std::size_t prefix = std::min<std::size_t>(place.size(), 64);
    return {place.first(prefix), place.subspan(prefix)};
  }
  bool on_frame(Link&, const wire::FrameHeader&, const PayloadPlace&, bool valid) override {
    received += valid ? 1 : 0;
    return true;
  }
  void on_abandoned(Link&, const wire::FrameHeader&, const PayloadPlace&) override {}
  void on_acked(Link&, std::uint64_t) override {}
  void on_lost(Link&, Errc, const char* text) override { ADD_FAILURE() << text; }
  void on_incoming(std::unique_ptr<Incoming> incoming, const wire::FrameHeader&,
                   const wire::HelloBody& hello) override {
    link->offer(incoming, hello);
  }
  void on_refused(const std::string&, Errc, const char* text) override { ADD_FAILURE() << text; }

  Link* link = nullptr;
  std::uint64_t received = 0;

 private:
  std::array<std::byte, 300'000> memory_{};
};

void expect_no_allocations(const TcpSettings& settings) {
  ManualClock clock;
  EventLoop loop;
  TcpTransport transport(loop, settings);
  static CountingSink sink_a, sink_b;
  sink_a.received = sink_b.received = 0;
  auto acceptor = TcpAcceptor::create(loop, clock, {{"127.0.0.1", 0}, {}, settings}, sink_b);
  ASSERT_TRUE(acceptor) << acceptor.error().text;
  const Endpoint target = (*acceptor)->endpoint();
  Link a(transport, clock, {{}, {{1, 1}, {2, 2}, 0, target, true}}, sink_a);
  Link b(transport, clock, {{}, {{2, 2}, {1, 1}, 0, {}, false}}, sink_b);
  sink_b.link = &b;
  const auto step = [&] {
    clock.advance_ns(10'000);
    if (transport.poll() + a.tick() + b.tick() == 0) loop.wait(1'000'000);
  };
  for (int i = 0; i < 30'000 && a.state() != LinkState::open; ++i) {
    (*acceptor)->poll();
    step();
  }
  static std::array<std::byte, 270'000> payload{};
  // Small and large frames, and waits for the socket to become readable and writable.
  const auto exchange = [&](std::uint64_t frames) {
    for (std::uint64_t i = 0; i < frames; ++i) {
      wire::FrameHeader header;
      header.kind = static_cast<std::uint8_t>(wire::FrameKind::contribution);
      const std::span<const std::byte> body(payload.data(), i % 4 == 0 ? 262'144 : 500);
      a.send(header, body.first(64), body.subspan(64), i + 1);
      b.send(header, body.first(64), body.subspan(64), i + 1);
      b.send_copy(header, body.first(100));
    }
    for (int i = 0; i < 100'000 && a.unacked_frames() + b.unacked_frames() > 0; ++i) step();
  };
  exchange(100);
  exchange(100);
  const std::uint64_t before = allocations;
  const std::int64_t held_before = held_by_openssl;
  exchange(100);
  EXPECT_EQ(sink_a.received, 600u);
  EXPECT_EQ(sink_b.received, 300u);
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_EQ(held_by_openssl - held_before, 0);
}

TEST(TcpAllocations, NoneForAFrameOnceWarm) { expect_no_allocations({}); }

TEST(TlsAllocations, NoneForAFrameOnceWarm) {
  ASSERT_TRUE(kCountsOpenssl);
  TlsFiles files;
  const auto source =
      TlsFiles::source(TlsContext::with_certificates(files.node("one", {"127.0.0.1"})));
  EXPECT_GT(held_by_openssl, 0);
  TcpSettings settings;
  settings.tls = source.get();
  expect_no_allocations(settings);
}

}  // namespace
}  // namespace tern::net
