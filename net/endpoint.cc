#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>

#include "net/transport.h"

namespace tern::net {

std::string to_text(const Endpoint& endpoint) {
  const bool brackets = endpoint.host.find(':') != std::string::npos;
  std::string text = brackets ? "[" + endpoint.host + "]" : endpoint.host;
  text += ':';
  text += std::to_string(endpoint.port);
  return text;
}

std::string canonical_host(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  std::string text(host);
  in6_addr address{};
  if (inet_pton(AF_INET6, text.c_str(), &address) != 1) return text;
  std::array<char, INET6_ADDRSTRLEN> canonical{};
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    inet_ntop(AF_INET, address.s6_addr + 12, canonical.data(), canonical.size());
  } else {
    inet_ntop(AF_INET6, &address, canonical.data(), canonical.size());
  }
  return canonical.data();
}

}  // namespace tern::net
