#include "daemon/client_server.h"

#include <spdlog/spdlog.h>

namespace tern::daemon {
namespace {

constexpr int kAcceptsPerRound = 16;
constexpr int kPacketsPerRound = 16;


}  // namespace

Result<std::unique_ptr<ClientServer>> ClientServer::create(net::EventLoop& loop,
                                                           const std::string& path,
                                                           std::uint32_t mode) {
  auto listener = shm::PacketListener::bind(path, static_cast<mode_t>(mode));
  if (!listener) return tl::unexpected(listener.error());
  return std::unique_ptr<ClientServer>(new ClientServer(loop, std::move(*listener)));
}

ClientServer::ClientServer(net::EventLoop& loop, shm::PacketListener listener)
    : loop_(loop), listener_(std::move(listener)) {}

ClientServer::~ClientServer() {
  stop_accepting();
  for (auto& [id, connection] : connections_) {
    loop_.unwatch(connection.socket_watch);
    if (connection.death_watch != 0) loop_.unwatch(connection.death_watch);
  }
}

void ClientServer::start(Conductor& conductor) {
  conductor_ = &conductor;
  listen_watch_ = loop_.watch(listener_.fd(), [this] { waiting_ = true; });
}

void ClientServer::stop_accepting() {
  if (listen_watch_ != 0) loop_.unwatch(listen_watch_);
  listen_watch_ = 0;
  waiting_ = false;
}

int ClientServer::poll() {
  int work = waiting_ ? accept_clients() : 0;
  std::vector<std::uint64_t> ids;
  for (const auto& [id, connection] : connections_) {
    if ((connection.readable || connection.died) && !connection.closing) ids.push_back(id);
  }
  for (const auto id : ids) {
    const auto found = connections_.find(id);
    if (found != connections_.end()) work += read_client(id, found->second);
  }
  return work;
}

int ClientServer::accept_clients() {
  int work = 0;
  for (; work < kAcceptsPerRound; ++work) {
    auto socket = listener_.accept();
    if (!socket) {
      waiting_ = false;
      if (socket.error().code != Errc::would_block) {
        spdlog::warn("cannot accept a client: {}", socket.error().text);
      }
      break;
    }
    auto credentials = socket->peer_credentials();
    if (!credentials) continue;  // it has gone again
    const std::uint64_t id = next_client_++;
    Connection& connection = connections_[id];
    connection.socket = std::move(*socket);
    connection.pidfd = std::move(credentials->pidfd);
    connection.socket_watch =
        loop_.watch(connection.socket.fd(), [&connection] { connection.readable = true; });
    // A forked child may keep the socket open after the process has ended; the pidfd tells all the same.
    if (connection.pidfd) {
      connection.death_watch =
          loop_.watch(connection.pidfd.get(), [&connection] { connection.died = true; });
    }
    connection.readable = true;
    conductor_->on_client_connected(id, std::move(*credentials));
  }
  return work;
}

int ClientServer::read_client(std::uint64_t id, Connection& connection) {
  int work = 0;
  connection.readable = false;
  for (; work < kPacketsPerRound; ++work) {
    auto packet = connection.socket.receive();
    if (!packet) {
      if (packet.error().code == Errc::would_block) break;
      connection.died = true;
      break;
    }
    conductor_->on_client_packet(id, packet->bytes);
    if (!connections_.contains(id) || connection.closing) return work + 1;
  }
  if (work == kPacketsPerRound) connection.readable = true;
  if (connection.died) {
    connection.closing = true;
    conductor_->on_client_closed(id);
    ++work;
  }
  return work;
}

void ClientServer::reply(std::uint64_t client, std::span<const std::byte> packet,
                         std::span<const int> descriptors) {
  const auto found = connections_.find(client);
  if (found == connections_.end()) return;
  // A client that does not read its answers hurts itself alone.
  if (auto sent = found->second.socket.send(packet, descriptors); !sent) {
    if (sent.error().code == Errc::would_block) {
      spdlog::warn("client {} does not read its answers; it is disconnected", client);
      found->second.died = true;
    }
  }
}

void ClientServer::disconnect(std::uint64_t client) {
  const auto found = connections_.find(client);
  if (found == connections_.end()) return;
  loop_.unwatch(found->second.socket_watch);
  if (found->second.death_watch != 0) loop_.unwatch(found->second.death_watch);
  connections_.erase(found);
}

}  // namespace tern::daemon
