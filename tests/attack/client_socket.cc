// Connections to the clients' socket, and what is sent there before or instead of a hello.

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "tests/attack/attack.h"
#include "tests/attack/requests.h"
#include "tests/attack/sockets.h"
#include "tests/lingering_socket.h"

namespace tern::attack {
namespace {

constexpr std::size_t kHeldConnections = 512;

void silent_connects(Assault& assault) {
  Held<Fd> held(kHeldConnections);
  while (assault.goes_on()) held.hold(connect_local(assault.target.socket, SOCK_SEQPACKET));
}

void connect_storm(Assault& assault) {
  while (assault.goes_on()) connect_local(assault.target.socket, SOCK_SEQPACKET);
}

void hello_storm(Assault& assault) {
  const auto goodbye = shm::make_packet<e2e::HeaderOnly>(shm::PacketKind::goodbye, 9);
  while (assault.goes_on()) {
    HostileClient client(assault.target.socket);
    if (enter(client) && assault.below(2) == 0) ask<shm::DonePacket>(client, goodbye);
  }
}

void garbage_packets(Assault& assault) {
  while (assault.goes_on()) {
    const Fd socket = connect_local(assault.target.socket, SOCK_SEQPACKET);
    push(socket, assault.noise(1 + assault.below(5000)));
    if (assault.below(2) == 0) await_bytes(socket);
  }
}

// Right in its header, wrong behind it.
void wrong_packets(Assault& assault) {
  while (assault.goes_on()) {
    HostileClient client(assault.target.socket);
    if (!enter(client)) continue;
    for (int i = 0; i < 50; ++i) {
      auto packet = shm::make_packet<shm::GroupJoinPacket>(
          static_cast<shm::PacketKind>(assault.below(20)), assault.random());
      const auto noise = assault.noise(sizeof packet - sizeof packet.header);
      std::memcpy(packet.id, noise.data(), sizeof packet.id);
      const std::size_t bytes = sizeof(shm::PacketHeader) + assault.below(noise.size());
      if (!client.socket().send(shm::packet_bytes(packet).first(bytes)) || !client.drain()) break;
    }
  }
}

void unread_answers(Assault& assault) {
  const auto mint = shm::make_packet<e2e::HeaderOnly>(shm::PacketKind::group_mint, 2);
  while (assault.goes_on()) {
    HostileClient client(assault.target.socket);
    if (!enter(client)) continue;
    for (int i = 0; i < 2000; ++i) {
      if (!client.socket().send(shm::packet_bytes(mint))) break;
    }
  }
}

// A welcome brings descriptors; as long as it is not read they are in flight, which the kernel
// counts for the daemon's user.
void unread_welcomes(Assault& assault) {
  auto hello = shm::make_packet<shm::HelloPacket>(shm::PacketKind::hello, 1);
  hello.abi_min = hello.abi_max = wire::kShmAbi;
  hello.arena_bytes = 1 << 20;
  Held<Fd> held(kHeldConnections);
  while (assault.goes_on()) {
    const Fd& socket = held.hold(connect_local(assault.target.socket, SOCK_SEQPACKET));
    push(socket, shm::packet_bytes(hello));
    ::shutdown(socket.get(), SHUT_WR);
  }
}

void passed_descriptors(Assault& assault) {
  const auto goodbye = shm::make_packet<e2e::HeaderOnly>(shm::PacketKind::goodbye, 9);
  Held<tests::LingeringSocket> lingering(32);
  while (assault.goes_on()) {
    auto& socket = lingering.hold(tests::LingeringSocket());
    HostileClient client(assault.target.socket);
    const std::uint64_t place = assault.below(3);
    if (place > 0 && !enter(client)) continue;
    const int at = place == 2 ? client.notify_fd() : client.socket().fd();
    if (tests::send_descriptor(at, socket.fd(), shm::packet_bytes(goodbye)) == 0) {
      socket.close_meanwhile();
    }
  }
}

void forged_labels(Assault& assault) {
  // NOLINTNEXTLINE(misc-misleading-bidirectional): that is the point
  const std::string right_to_left = "\xe2\x80\xae";
  const std::string labels[] = {"job\nternd: all is well",
                                "\x1b[2J\x1b[1;1Hroot",
                                "job\r",
                                right_to_left + "drawkcab",
                                "a\tb",
                                "<b>",
                                "..",
                                "%s%n"};
  while (assault.goes_on()) {
    HostileClient client(assault.target.socket);
    enter(client, labels[assault.below(std::size(labels))]);
  }
}

// What a client does between its hello and its end, which is sudden.
[[noreturn]] void live(Assault& assault, int said) {
  HostileClient client(assault.target.socket);
  const bool entered = enter(client);
  const std::uint64_t group = entered ? join_alone(client) : 0;
  if (group != 0) declare(client, {group, 1000, "tensor", ""});
  if (::write(said, "x", 1) != 1) ::_exit(1);
  if (group == 0) ::_exit(0);
  for (std::uint64_t use = 0;; ++use) {
    client.submit(HostileClient::good_entry(group, use));
    client.forget_completions();
  }
}

void sudden_deaths(Assault& assault) {
  const pid_t attack = ::getpid();
  while (assault.goes_on()) {
    int ends[2];
    if (::pipe(ends) != 0) return;
    const Fd read(ends[0]);
    Fd write(ends[1]);
    const pid_t child = ::fork();
    if (child == 0) {
      // The attack may end first.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != attack) ::_exit(0);
      live(assault, write.get());
    }
    if (child < 0) continue;
    write.reset();
    char byte = 0;
    if (assault.below(2) == 0 && ::read(read.get(), &byte, 1) < 0) return;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}

constexpr Attack kAttacks[] = {
    {"silent_connects", "a user takes no more than his connections, said hello or not",
     silent_connects},
    {"connect_storm", "connections of one user, each with lines in the log, cost others nothing",
     connect_storm},
    {"hello_storm", "clients that come and go cost others nothing", hello_storm},
    {"garbage_packets", "what is no packet ends its sender's connection alone", garbage_packets},
    {"wrong_packets", "a packet is checked before it is believed", wrong_packets},
    {"unread_answers", "who does not read holds up only himself", unread_answers},
    {"unread_welcomes", "welcomes that a user leaves unread keep nobody else from his",
     unread_welcomes},
    {"passed_descriptors", "closing a descriptor that a user sent stops nobody",
     passed_descriptors},
    {"passed_descriptors_on_an_older_kernel",
     "closing a descriptor that a user sent stops nobody else", passed_descriptors,
     Stage::older_kernel},
    {"forged_labels", "nobody writes lines of his own into the log", forged_labels},
    {"sudden_deaths", "a process that dies leaves nothing behind", sudden_deaths},
};

}  // namespace

std::span<const Attack> client_socket_attacks() { return kAttacks; }

}  // namespace tern::attack
