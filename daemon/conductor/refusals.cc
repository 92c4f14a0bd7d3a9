#include "daemon/conductor/refusals.h"

#include <spdlog/spdlog.h>

#include "daemon/service/log.h"

namespace tern::daemon {

// ---- Clients

void Refusals::log_request(const Request& request, const char* what, Errc code,
                           const std::string& text) {
  const Client& client = request.client;
  if (!client_log_.admits(client.id, outlets_.clock.now_ns())) return;
  log_about({.job = client.job, .group = request.group}, spdlog::level::warn,
            "client {} (pid {}, uid {}): {} was refused: {}: {}", client.id, client.credentials.pid,
            client.credentials.uid, what, errc_name(code), text);
}

// By user: whoever connects again and again is another client each time. One of the user's programs
// may so hide what another is refused for a second; the counters have both.
void Refusals::log_user(const Client& client, const std::string& what) {
  if (!user_log_.admits(client.credentials.uid, outlets_.clock.now_ns())) return;
  log_about({.job = client.job}, spdlog::level::warn, "client pid {} uid {} {}",
            client.credentials.pid, client.credentials.uid, what);
}

void Refusals::client(const Client& client, std::uint64_t request, Errc code,
                      const std::string& text) {
  ++outlets_.counters->clients_refused;
  if (code == Errc::quota_exceeded) return quota(client, request, text);
  log_user(client, "was refused: " + text);
  outlets_.answers.done(client.id, request, code, text);
}

void Refusals::join(const Request& join, Errc code, const std::string& text) {
  ++outlets_.counters->joins_refused;
  const std::string what = "its join of group " + std::string(join.group);
  log_request(join, join.group.empty() ? "its join" : what.c_str(), code, text);
  outlets_.answers.done(join.client.id, join.number, code, text);
}

void Refusals::join_over_quota(const Client& client, std::uint64_t request,
                               const std::string& text) {
  ++outlets_.counters->joins_refused;
  quota(client, request, text);
}

void Refusals::declaration(const Request& declaration, Errc code, const std::string& text) {
  if (code == Errc::quota_exceeded) return quota(declaration.client, declaration.number, text);
  ++outlets_.counters->declarations_refused;
  log_request(declaration, "its declaration of a tensor", code, text);
  outlets_.answers.done(declaration.client.id, declaration.number, code, text);
}

void Refusals::quota(const Client& client, std::uint64_t request, const std::string& text) {
  ++outlets_.counters->quota_refusals;
  log_user(client, "was refused: " + text);
  outlets_.answers.done(client.id, request, Errc::quota_exceeded, text);
}

void Refusals::entry(const Client& client, Errc code, const std::string& text) {
  log_request({client}, "an entry of its ring", code, text);
}

void Refusals::log_end(const Client& client, const std::string& why) {
  log_user(client, "is disconnected: " + why);
}

// ---- Other daemons

void Refusals::log_peer(const std::string& peer, const std::string& text) {
  if (!peer_log_.admits(peer, outlets_.clock.now_ns())) return;
  log_about({.peer = peer}, spdlog::level::warn, "the daemon {}: {}", peer, text);
}

void Refusals::stranger(const std::string& from, Errc reason, const char* text) {
  ++outlets_.counters->hellos_refused;
  if (reason == Errc::permission_denied) ++outlets_.counters->peers_not_trusted;
  // Every connection has a port of its own, and may have a text of the stranger's.
  const std::string host = from.substr(0, from.rfind(':'));
  const std::string party = host + std::string(errc_name(reason));
  if (!stranger_log_.admits(party, outlets_.clock.now_ns())) return;
  log_about({.peer = from}, spdlog::level::warn, "refused a connection from {}: {}: {}", from,
            errc_name(reason), text);
}

void Refusals::hello(const wire::HelloBody& hello, const std::string& text) {
  ++outlets_.counters->hellos_refused;
  log_peer(node_text(hello.node), "its connection was refused: " + text);
}

void Refusals::control_breach(const std::string& peer, const std::string& text) {
  ++outlets_.counters->bad_control_frames;
  log_peer(peer, "its connection to the conductor was closed: " + text);
}

}  // namespace tern::daemon
