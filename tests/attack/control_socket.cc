// The control socket, where every user may ask.

#include "tests/attack/attack.h"
#include "tests/attack/requests.h"
#include "tests/attack/sockets.h"
#include "tests/lingering_socket.h"

namespace tern::attack {
namespace {

constexpr std::size_t kHeldConnections = 64;

std::string request(std::string_view verb, std::string_view args = "{}") {
  return std::string(R"({"v":1,"id":1,"verb":")") + std::string(verb) + R"(","args":)" +
         std::string(args) + "}\n";
}

void control_silent(Assault& assault) {
  Held<Fd> held(kHeldConnections);
  while (assault.goes_on()) held.hold(connect_local(assault.target.control_socket));
}

void control_storm(Assault& assault) {
  const std::string version = request("version");
  while (assault.goes_on()) {
    const Fd socket = connect_local(assault.target.control_socket);
    if (assault.below(2) == 0 && push(socket, version)) await_bytes(socket);
  }
}

// A byte for each of many connections in turn: no request is ever complete.
void control_half_lines(Assault& assault) {
  Held<Fd> held(8);
  const std::string line = request("version");
  for (std::size_t at = 0; assault.goes_on(); at = (at + 1) % (line.size() - 1)) {
    if (at == 0) held.hold(connect_local(assault.target.control_socket));
    for (Fd& socket : held.all()) {
      if (!push(socket, std::string_view(line).substr(at, 1))) {
        socket = connect_local(assault.target.control_socket);
      }
    }
  }
}

void control_long_lines(Assault& assault) {
  const std::string most(70'000, 'x');
  while (assault.goes_on()) {
    const Fd socket = connect_local(assault.target.control_socket);
    std::string line = assault.below(2) == 0 ? most : std::string(15'000, '[');
    if (assault.below(2) == 0) line = R"({"v":1,"id":1,"verb":")" + most.substr(10'000) + "\"}\n";
    push(socket, line);
    await_bytes(socket);
  }
}

void control_unread(Assault& assault) {
  Held<Fd> held(8);
  std::string many;
  while (many.size() < 60'000) many += request("status") + request("tensors");
  while (assault.goes_on()) {
    const Fd& socket = held.hold(connect_local(assault.target.control_socket));
    while (push(socket, many)) assault.goes_on();
  }
}

void control_verbs(Assault& assault) {
  static constexpr std::string_view kVerbs[] = {
      "version",  "status",   "clients", "groups", "tensors", "tuner", "explain", "peers",
      "counters", "settings", "log",     "trace",  "policy",  "host",  "x"};
  const std::string stars = std::string(100, '*') + "a";
  std::string pattern;
  for (int i = 0; i < 60; ++i) pattern += "*a";
  const std::string args[] = {"{}",
                              R"({"tensor":")" + pattern + "\"}",
                              R"({"tensor":")" + stars + "\"}",
                              R"({"set":"* lossless"})",
                              R"({"action":"start"})",
                              R"({"tensor":1e999})",
                              "[]"};
  while (assault.goes_on()) {
    const Fd socket = connect_local(assault.target.control_socket);
    for (int i = 0; i < 100; ++i) {
      assault.goes_on();
      const auto verb = kVerbs[assault.below(std::size(kVerbs))];
      if (!push(socket, request(verb, args[assault.below(std::size(args))])) ||
          !await_bytes(socket)) {
        break;
      }
    }
  }
}

// Of as many tensors as there is time to declare. Most of each answer is not taken.
void control_long_lists(Assault& assault) {
  constexpr int kTensors = 10'000;
  HostileClient client(assault.target.socket);
  if (!enter(client)) return;
  const std::uint64_t group = join_alone(client);
  for (int i = 0; i < kTensors && group != 0 && assault.goes_on(); ++i) {
    if (declare(client, {group, 16, "tensor" + std::to_string(i), ""}) == 0) break;
  }
  const std::string question = request("tensors");
  while (assault.goes_on()) {
    const Fd socket = connect_local(assault.target.control_socket);
    if (push(socket, question) && await_bytes(socket)) await_bytes(socket);
  }
}

void control_descriptors(Assault& assault) {
  const std::string version = request("version");
  Held<tests::LingeringSocket> lingering(32);
  while (assault.goes_on()) {
    auto& passed = lingering.hold(tests::LingeringSocket());
    const Fd socket = connect_local(assault.target.control_socket);
    const auto bytes = std::as_bytes(std::span(version));
    if (tests::send_descriptor(socket.get(), passed.fd(), bytes) == 0) {
      passed.close_meanwhile();
    }
  }
}

constexpr Attack kAttacks[] = {
    {"control_silent", "a user takes no more than eight of the control connections",
     control_silent},
    {"control_storm", "questions of one user keep nobody else's waiting", control_storm},
    {"control_half_lines", "half a question holds up only who asks it", control_half_lines},
    {"control_long_lines", "a line that is no request ends its connection alone",
     control_long_lines},
    {"control_unread", "who does not take his answers holds up only himself", control_unread},
    {"control_verbs", "no user sees or changes more than his own, or makes an answer long",
     control_verbs},
    {"control_long_lists", "a list of very many tensors is made while it is sent",
     control_long_lists},
    {"control_descriptors", "closing a descriptor that a user sent stops nobody",
     control_descriptors},
    {"control_descriptors_on_an_older_kernel",
     "closing a descriptor that a user sent stops nobody else", control_descriptors,
     Stage::older_kernel},
};

}  // namespace

std::span<const Attack> control_attacks() { return kAttacks; }

}  // namespace tern::attack
