#include "daemon/carrier/peer_security.h"

#include <spdlog/spdlog.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <vector>

namespace tern::daemon {
namespace {

constexpr std::int64_t kDay = 86'400;
constexpr std::int64_t kWarnBefore = 30 * kDay;

using Context = std::shared_ptr<const net::TlsContext>;

Result<Context> read_context(const Config& config) {
  if (config.peer_security == "key") {
    return net::TlsContext::with_cluster_keys(config.cluster_key_file);
  }
  return net::TlsContext::with_certificates(
      {config.tls_ca_file, config.tls_certificate_file, config.tls_key_file});
}

nlohmann::json row(const char* kind, const pki::CertificateFacts& facts) {
  return {{"kind", kind},
          {"subject", facts.subject},
          {"issuer", facts.issuer},
          {"names", facts.names},
          {"not_before_s", facts.not_before_s},
          {"not_after_s", facts.not_after_s},
          {"expires", pki::date_text(facts.not_after_s)}};
}

void warn(const char* kind, const pki::CertificateFacts& facts, std::int64_t now_s) {
  const std::string until = pki::date_text(facts.not_after_s);
  constexpr const char* kRemedy =
      "`ternctl pki issue` makes a new one, `systemctl reload ternd` reads it";
  if (now_s >= facts.not_after_s) {
    spdlog::error("the {} \"{}\" has expired on {}: peers refuse new links; {}", kind,
                  facts.subject, until, kRemedy);
  } else if (now_s < facts.not_before_s) {
    spdlog::error("the {} \"{}\" is not valid before {}: is the clock right?", kind, facts.subject,
                  pki::date_text(facts.not_before_s));
  } else if (facts.not_after_s - now_s < kWarnBefore) {
    spdlog::warn("the {} \"{}\" expires on {}, in {} days; {}", kind, facts.subject, until,
                 (facts.not_after_s - now_s) / kDay, kRemedy);
  }
}

}  // namespace

Result<PeerSecurity> PeerSecurity::create(const Config& config) {
  PeerSecurity made(config.peer_security);
  if (!encrypts_peers(config)) return made;
  auto context = read_context(config);
  if (!context) return tl::unexpected(context.error());
  made.source_ = std::make_unique<net::TlsSource>(std::move(*context));
  return made;
}

Status PeerSecurity::reload(const Config& config) {
  if (!source_) return {};
  Config same_mode = config;
  same_mode.peer_security = mode_;
  auto context = read_context(same_mode);
  if (!context) return tl::unexpected(context.error());
  source_->replace(std::move(*context));
  spdlog::info("certificates and keys were read again; new links use them");
  next_watch_s_ = 0;
  return {};
}

void PeerSecurity::announce() const {
  if (mode_ == "plaintext") {
    spdlog::warn(
        "peer_security = \"plaintext\": whoever reaches the network between nodes can read and "
        "change what they send; docs/security.md has the remedy");
  }
}

void PeerSecurity::watch(std::int64_t now_s) {
  if (now_s < next_watch_s_) return;
  next_watch_s_ = now_s + kDay;
  warn_of_expiry(now_s);
}

void PeerSecurity::warn_of_expiry(std::int64_t now_s) const {
  if (!source_) return;
  const Context context = source_->current();
  for (const auto& one : context->own()) warn("certificate", one, now_s);
  for (const auto& one : context->authorities()) warn("authority", one, now_s);
}

std::string PeerSecurity::text() const {
  if (mode_ == "tls") return "TLS by certificates";
  if (mode_ == "key") return "TLS by the cluster key";
  return mode_ == "local" ? "plaintext, this machine only" : "plaintext";
}

void PeerSecurity::report(nlohmann::json& status) const {
  status["peer_security"] = mode_;
  status["plaintext"] = source_ == nullptr;
  nlohmann::json rows = nlohmann::json::array();
  if (source_) {
    const Context context = source_->current();
    for (const auto& one : context->own()) rows.push_back(row("node", one));
    for (const auto& one : context->authorities()) rows.push_back(row("authority", one));
  }
  status["certificates"] = std::move(rows);
}

}  // namespace tern::daemon
