// What clients and other daemons are refused: each has a counter, a line of the log, and where
// somebody waits for it an answer.

#include <spdlog/spdlog.h>

#include "daemon/conductor/conductor.h"
#include "daemon/service/log.h"

namespace tern::daemon {

// ---- Clients

void Conductor::log_refusal(const Request& request, const char* what, Errc code,
                            const std::string& text) {
  const Client& client = request.client;
  if (!client_log_.admits(client.id, clock_.now_ns())) return;
  log_about({.job = client.job, .group = request.group}, spdlog::level::warn,
            "client {} (pid {}, uid {}): {} was refused: {}: {}", client.id, client.credentials.pid,
            client.credentials.uid, what, errc_name(code), text);
}

// By user: whoever connects again and again is another client each time. One of his programs may so
// hide what another is refused for a second; the counters have both.
void Conductor::log_user(const Client& client, const std::string& what) {
  if (!user_log_.admits(client.credentials.uid, clock_.now_ns())) return;
  log_about({.job = client.job}, spdlog::level::warn, "client pid {} uid {} {}",
            client.credentials.pid, client.credentials.uid, what);
}

// The lane has counted it and told the client.
void Conductor::on(std::uint32_t, const event::EntryRefused& event) {
  const auto found = clients_.find(event.client->id);
  if (found == clients_.end()) return;
  log_refusal({*found->second}, "an entry of its ring", event.code, event.text.c_str());
}

void Conductor::refuse_join(const Request& join, Errc code, const std::string& text) {
  ++counters_->joins_refused;
  const std::string what = "its join of group " + std::string(join.group);
  log_refusal(join, join.group.empty() ? "its join" : what.c_str(), code, text);
  answer(join.client.id, join.number, code, text);
}

void Conductor::refuse_declaration(const Request& declaration, Errc code, const std::string& text) {
  if (code == Errc::quota_exceeded) {
    return refuse_quota(declaration.client, declaration.number, text);
  }
  ++counters_->declarations_refused;
  log_refusal(declaration, "its declaration of a tensor", code, text);
  answer(declaration.client.id, declaration.number, code, text);
}

// ---- Other daemons

void Conductor::log_peer(const std::string& peer, const std::string& text) {
  if (!peer_log_.admits(peer, clock_.now_ns())) return;
  log_about({.peer = peer}, spdlog::level::warn, "the daemon {}: {}", peer, text);
}

void Conductor::on_refused(const std::string& from, Errc reason, const char* text) {
  ++counters_->hellos_refused;
  if (reason == Errc::permission_denied) ++counters_->peers_not_trusted;
  // Every connection has a port of its own, and may have a text of the stranger's.
  const std::string host = from.substr(0, from.rfind(':'));
  if (!refusal_log_.admits(host + std::string(errc_name(reason)), clock_.now_ns())) return;
  log_about({.peer = from}, spdlog::level::warn, "refused a connection from {}: {}: {}", from,
            errc_name(reason), text);
}

void Conductor::refuse_hello(const wire::HelloBody& hello, const std::string& text) {
  ++counters_->hellos_refused;
  log_peer(node_text(hello.node), "its connection was refused: " + text);
}

void Conductor::on_control_breach(const std::string& peer, const std::string& text) {
  ++counters_->bad_control_frames;
  log_peer(peer, "its connection to the conductor was closed: " + text);
}

}  // namespace tern::daemon
