// The metrics port, where anybody may fetch.

#include "tests/attack/attack.h"
#include "tests/attack/sockets.h"

namespace tern::attack {
namespace {

constexpr std::string_view kGet = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

void metrics_halves(Assault& assault) {
  Held<Fd> held(60);
  while (assault.goes_on()) {
    push(held.hold(connect_port(assault.target.metrics_port)), kGet.substr(0, 20));
  }
}

void metrics_storm(Assault& assault) {
  while (assault.goes_on()) {
    const Fd socket = connect_port(assault.target.metrics_port);
    if (push(socket, kGet)) await_bytes(socket);
  }
}

void metrics_unread(Assault& assault) {
  Held<Fd> held(60);
  while (assault.goes_on()) {
    const Fd& socket = held.hold(connect_port(assault.target.metrics_port));
    for (int i = 0; i < 1000 && push(socket, kGet); ++i) assault.goes_on();
  }
}

void metrics_garbage(Assault& assault) {
  const std::string head = "GET /metrics HTTP/1.1\r\n";
  while (assault.goes_on()) {
    const Fd socket = connect_port(assault.target.metrics_port);
    if (assault.below(2) == 0) {
      push(socket, assault.noise(1 + assault.below(60'000)));
    } else {
      push(socket, head + "X: " + std::string(200'000, 'x'));
    }
    if (assault.below(4) == 0) await_bytes(socket);
  }
}

constexpr Attack kAttacks[] = {
    {"metrics_halves", "half a request for metrics keeps no scrape waiting", metrics_halves},
    {"metrics_storm", "fetching metrics costs jobs nothing", metrics_storm},
    {"metrics_unread", "metrics that nobody takes hold bounded memory", metrics_unread},
    {"metrics_garbage", "what is no request for metrics is thrown out", metrics_garbage},
};

}  // namespace

std::span<const Attack> metrics_attacks() { return kAttacks; }

}  // namespace tern::attack
