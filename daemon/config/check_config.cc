#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "daemon/config/config.h"
#include "daemon/config/settings.h"
#include "daemon/config/units.h"
#include "daemon/config/user_list.h"

namespace tern::daemon {
namespace {

bool is_wildcard(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

Status refuse(std::string text) { return fail(Errc::invalid_argument, std::move(text)); }

Status check_addresses(const Config& config) {
  if (is_wildcard(config.advertise.host)) {
    return refuse(
        "advertise: a wildcard cannot be reached; "
        "give the address by which other nodes reach this one");
  }
  if (config.advertise.host.empty() && is_wildcard(config.listen.host)) {
    return refuse(
        "advertise: must be set when listen is a wildcard; "
        "give the address by which other nodes reach this one");
  }
  if (config.socket == config.control_socket) {
    return refuse("control_socket: is the same path as socket; give two different paths");
  }
  return {};
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

Status check_security(const Config& config) {
  if (config.peer_security == "local" && !is_loopback(config.listen.host)) {
    return refuse(
        fmt::format("peer_security: listen = {} can be reached from other machines, and \"local\" "
                    "encrypts nothing; set peer_security = \"tls\" or \"key\" (`ternctl pki` makes "
                    "what they need), or \"plaintext\" in a network that you trust",
                    config.listen.host));
  }
  if (config.peer_security == "tls" &&
      (config.tls_ca_file.empty() || config.tls_certificate_file.empty() ||
       config.tls_key_file.empty())) {
    return refuse(
        "peer_security: tls needs tls_ca_file, tls_certificate_file and tls_key_file; "
        "`ternctl pki init-ca` and `ternctl pki issue` make them");
  }
  if (config.peer_security == "key" && config.cluster_key_file.empty()) {
    return refuse("peer_security: key needs cluster_key_file; `ternctl pki new-key` makes one");
  }
  const bool asks_rdma =
      config.transport == "rdma" || config.peer_transports.find("=rdma") != std::string::npos;
  if (encrypts_peers(config) && asks_rdma && !config.rdma_unencrypted) {
    return refuse(fmt::format(
        "transport: rdma does not encrypt tensors, and peer_security = \"{}\" wants "
        "them encrypted; set transport = \"tcp\", or rdma_unencrypted = true if you trust "
        "the fabric",
        config.peer_security));
  }
  return {};
}

Status check_access(const Config& config) {
  for (const auto& [name, text] : {std::pair{"observers", &config.observers},
                                   std::pair{"administrators", &config.administrators}}) {
    if (auto list = parse_user_list(*text); !list) {
      return refuse(fmt::format("{}: {}", name, list.error().text));
    }
  }
  return {};
}

// One group must fit.
Status check_limits(const Config& config) {
  if (config.max_ops_in_flight_per_user < config.max_ops_in_flight) {
    return refuse(
        fmt::format("max_ops_in_flight_per_user: {} leaves a user no group, for each reserves "
                    "max_ops_in_flight = {}; allowed: at least that",
                    config.max_ops_in_flight_per_user, config.max_ops_in_flight));
  }
  return {};
}

}  // namespace

bool encrypts_peers(const Config& config) {
  return config.peer_security == "tls" || config.peer_security == "key";
}

Result<std::map<std::string, std::string>> parse_peer_transports(std::string_view text) {
  std::map<std::string, std::string> choices;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    std::string_view entry = text.substr(0, comma);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    const std::size_t equals = entry.find('=');
    const std::string_view host = entry.substr(0, equals);
    const std::string_view choice =
        equals == std::string_view::npos ? std::string_view() : entry.substr(equals + 1);
    if (!is_host(host) || (choice != "auto" && choice != "tcp" && choice != "rdma")) {
      return fail(Errc::invalid_argument,
                  fmt::format("peer_transports: \"{}\" is no host=transport; allowed: entries like "
                              "10.0.0.7=tcp with auto, tcp or rdma, with commas between them",
                              entry));
    }
    choices[std::string(host)] = choice;
  }
  return choices;
}

Status check_config(const Config& config) {
  if (auto status = check_addresses(config); !status) return status;
  if (auto status = check_security(config); !status) return status;
  if (auto status = check_access(config); !status) return status;
  if (auto status = check_limits(config); !status) return status;
  if (auto choices = parse_peer_transports(config.peer_transports); !choices) {
    return tl::unexpected(choices.error());
  }
  if (config.heartbeat_ns > config.peer_timeout_ns / 2) {
    return refuse(
        fmt::format("heartbeat: {} is too rare for peer_timeout = {}; "
                    "allowed: at most half of it",
                    format_duration(config.heartbeat_ns), format_duration(config.peer_timeout_ns)));
  }
  return {};
}

Endpoint advertised_endpoint(const Config& config, std::uint16_t bound_port) {
  Endpoint endpoint = config.advertise.host.empty() ? config.listen : config.advertise;
  if (endpoint.port == 0) endpoint.port = bound_port;
  return endpoint;
}

std::string state_directory(const Config& config) {
  if (!config.state_directory.empty()) return config.state_directory;
  // Of the supervisor; several are separated by colons.
  const char* const given = std::getenv("STATE_DIRECTORY");
  return given != nullptr && *given == '/' ? std::string(given, std::strcspn(given, ":")) : "";
}

std::string flight_directory(const Config& config) {
  if (!config.flight_directory.empty()) return config.flight_directory;
  if (std::string given = state_directory(config); !given.empty()) return given;
  const std::size_t slash = config.control_socket.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : config.control_socket.substr(0, slash);
}

}  // namespace tern::daemon
