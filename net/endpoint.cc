#include "net/transport.h"

namespace tern::net {

std::string to_text(const Endpoint& endpoint) {
  const bool brackets = endpoint.host.find(':') != std::string::npos;
  std::string text = brackets ? "[" + endpoint.host + "]" : endpoint.host;
  text += ':';
  text += std::to_string(endpoint.port);
  return text;
}

}  // namespace tern::net
