#include "daemon/client_server.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/check.h"
#include "base/passed_descriptors.h"
#include "base/time_slice.h"
#include "daemon/service/nudges.h"

namespace tern::daemon {
namespace {

constexpr int kAcceptsPerRound = 16;
constexpr int kPacketsPerRound = 16;
constexpr std::uint64_t kSliceNs = 1'000'000;
constexpr std::uint32_t kUnknownUser = ~std::uint32_t{0};

}  // namespace

ClientServer::ClientServer(const Surroundings& around, shm::PacketListener listener)
    : loop_(around.loop),
      listener_(std::move(listener)),
      disposal_(around.disposal),
      sub_users_(around.sub_users) {}

ClientServer::~ClientServer() {
  stop_accepting();
  for (auto& [id, connection] : connections_) dispose_of(connection);
  for (auto& [account, socket] : unread_.take_all()) dispose_of(account, std::move(socket));
}

void ClientServer::start(Conductor& conductor) {
  conductor_ = &conductor;
  const auto watch = loop_.watch(duplicate(listener_.fd()), [this] { accept_clients(); });
  TERN_CHECK(watch.has_value());  // before the first client
  listen_watch_ = *watch;
  spare_ = duplicate(listener_.fd());
}

void ClientServer::stop_accepting() {
  if (listen_watch_ != 0) loop_.unwatch(listen_watch_);
  listen_watch_ = 0;
}

void ClientServer::unwatch(Connection& connection) {
  if (connection.socket_watch != 0) loop_.unwatch(connection.socket_watch);
  if (connection.death_watch != 0) loop_.unwatch(connection.death_watch);
  connection.socket_watch = 0;
  connection.death_watch = 0;
}

int ClientServer::poll() {
  if (!spare_) spare_ = duplicate(listener_.fd());
  std::vector<std::uint64_t> ids;
  log_.tell_left_out();
  look_at_unread();
  conductor_->turns().step("dead connections");
  for (const auto& [id, connection] : connections_) {
    if (connection.died && !connection.closing) ids.push_back(id);
  }
  const TimeSlice slice(clock_, kSliceNs);
  int closed = 0;
  for (const auto id : ids) {
    close(id, connections_.at(id));
    ++closed;
    if (slice.is_over()) break;
  }
  return closed;
}

void ClientServer::accept_clients() {
  conductor_->turns().step("accept");
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    auto socket = listener_.accept();
    if (!socket) {
      if (socket.error().code == Errc::would_block) return;
      if (limit_.admits("accept", clock_.now_ns())) {
        spdlog::warn("cannot accept a client: {}", socket.error().text);
      }
      return turn_away();
    }
    auto credentials = socket->peer_credentials();
    if (!credentials) {  // it has gone again
      disposal_.take_socket(kUnknownUser, std::move(*socket));
      continue;
    }
    const std::uint32_t account = sub_users_.owner_of(credentials->uid);
    if (!unread_.has_room(account)) dispose_of_read();
    if (!unread_.has_room(account)) {
      log_.write({LogTopic::clients, account, spdlog::level::warn},
                 "a client of uid {} is turned away: {} connections of this user have ended with "
                 "answers that nobody reads, until their sockets are closed",
                 credentials->uid, UnreadSockets::kMostOfOne);
      disposal_.take_socket(account, std::move(*socket));
      continue;
    }
    const std::uint64_t id = next_client_++;
    Connection& connection = connections_[id];
    connection.account = account;
    connection.socket = std::move(*socket);
    if (!watch(id, connection, std::move(credentials->pidfd))) {
      if (limit_.admits("watch", clock_.now_ns())) {
        spdlog::warn("a client of uid {} is turned away: the daemon is out of descriptors",
                     credentials->uid);
      }
      disconnect(id);
      continue;
    }
    conductor_->on_client_connected(id, std::move(*credentials));
  }
}

// Who waits in the backlog would keep the listener readable for ever.
void ClientServer::turn_away() {
  spare_.reset();  // poll() looks for another
  if (auto socket = listener_.accept()) disposal_.take_socket(kUnknownUser, std::move(*socket));
}

bool ClientServer::watch(std::uint64_t id, Connection& connection, Fd pidfd) {
  const auto read = loop_.watch(duplicate(connection.socket.fd()), [this, id] { read_client(id); });
  if (!read) return false;
  connection.socket_watch = *read;
  if (!pidfd) return true;
  // A forked child may keep the socket open after the process has ended; the pidfd tells all the
  // same.
  const auto death = loop_.watch(std::move(pidfd), [this, id] {
    const auto found = connections_.find(id);
    if (found != connections_.end()) close(id, found->second);
  });
  if (!death) return false;
  connection.death_watch = *death;
  return true;
}

void ClientServer::read_client(std::uint64_t id) {
  conductor_->turns().step("read a client");
  std::array<std::byte, shm::kMaxPacketBytes> bytes;
  for (int i = 0; i < kPacketsPerRound; ++i) {
    const auto found = connections_.find(id);  // a packet may end its connection
    if (found == connections_.end() || found->second.closing || found->second.died) return;
    Connection& connection = found->second;
    const Received received = receive_without_descriptors(connection.socket.fd(), bytes);
    if (received.has_left_descriptors) {  // no packet of Tern, and it is told so
      connection.closing = true;
      unwatch(connection);  // what is not taken stays readable
      return conductor_->on_client_packet(id, {});
    }
    if (received.error == EAGAIN) return;
    if (received.error != 0 || received.bytes == 0) return close(id, connection);
    // Too large a one is not kept.
    const std::size_t count = received.cut ? 0 : static_cast<std::size_t>(received.bytes);
    conductor_->on_client_packet(id, std::span(bytes).first(count));
  }
}

void ClientServer::close(std::uint64_t id, Connection& connection) {
  if (connection.closing) return;
  connection.closing = true;
  // A dead process stays readable for ever.
  unwatch(connection);
  conductor_->on_client_closed(id);
}

void ClientServer::reply(std::uint64_t client, std::span<const std::byte> packet,
                         std::span<const int> descriptors) {
  const auto found = connections_.find(client);
  if (found == connections_.end() || found->second.died) return;
  found->second.got_descriptors = found->second.got_descriptors || !descriptors.empty();
  const Status sent = found->second.socket.send(packet, descriptors);
  if (sent || sent.error().code == Errc::peer_lost) return;  // its socket tells when it is gone
  // A client that does not read its answers hurts itself alone. One whose answer cannot be sent is
  // disconnected, so that it waits no longer.
  const bool unread = sent.error().code == Errc::would_block;
  log_.write({LogTopic::clients, found->second.account, spdlog::level::warn},
             "client {} {}; it is disconnected", client,
             unread ? "does not read its answers" : sent.error().text);
  found->second.died = true;
}

void ClientServer::disconnect(std::uint64_t client) {
  const auto found = connections_.find(client);
  if (found == connections_.end()) return;
  dispose_of(found->second);
  connections_.erase(found);
}

void ClientServer::dispose_of(Connection& connection) {
  unwatch(connection);
  Fd socket = connection.socket.release();
  if (!connection.got_descriptors || !UnreadSockets::has_unread(socket)) {
    return dispose_of(connection.account, std::move(socket));
  }
  // As if it were closed: who waits hears that the daemon is gone, and what was sent can be read.
  ::shutdown(socket.get(), SHUT_RDWR);
  unread_.keep(connection.account, std::move(socket));
}

// What the client has sent and nobody has read may have descriptors with it. And a socket that is
// closed with packets unread takes along what was said last.
void ClientServer::dispose_of(std::uint32_t account, Fd socket) {
  disposal_.take(account, [held = std::make_shared<Fd>(std::move(socket))]() mutable {
    const Nudges nudges;
    drop_received(held->get());
    held.reset();
    return false;
  });
}

// An orderly client's goodbye is unread for a moment, too.
void ClientServer::look_at_unread() {
  constexpr std::uint64_t kLookEveryNs = 100'000'000;  // a system call for each
  if (unread_.empty() || clock_.now_ns() < unread_due_ns_) return;
  unread_due_ns_ = clock_.now_ns() + kLookEveryNs;
  dispose_of_read();
}

void ClientServer::dispose_of_read() {
  for (auto& [account, socket] : unread_.take_read()) dispose_of(account, std::move(socket));
}

}  // namespace tern::daemon
