#include "daemon/metrics/http_request.h"

namespace tern::daemon {
namespace {

const char* status_of(HttpAnswer what) {
  switch (what) {
    case HttpAnswer::page:
    case HttpAnswer::head_alone:
      return "200 OK";
    case HttpAnswer::not_found:
      return "404 Not Found";
    case HttpAnswer::not_allowed:
      return "405 Method Not Allowed";
    case HttpAnswer::none_yet:
    case HttpAnswer::bad:
      break;
  }
  return "400 Bad Request";
}

}  // namespace

HttpAnswer http_answer_to(std::string_view received, std::string_view path) {
  if (received.find("\r\n\r\n") == std::string_view::npos) return HttpAnswer::none_yet;
  const std::string_view line = received.substr(0, received.find("\r\n"));
  const std::size_t first = line.find(' ');
  const std::size_t second = first == line.npos ? line.npos : line.find(' ', first + 1);
  if (second == line.npos || line.substr(second + 1, 7) != "HTTP/1.") return HttpAnswer::bad;
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, second - first - 1);
  if (target.substr(0, target.find('?')) != path) return HttpAnswer::not_found;
  if (method == "HEAD") return HttpAnswer::head_alone;
  return method == "GET" ? HttpAnswer::page : HttpAnswer::not_allowed;
}

std::string http_answer(HttpAnswer what, std::string_view page) {
  const bool is_page = what == HttpAnswer::page || what == HttpAnswer::head_alone;
  const std::string error = std::string(status_of(what)) + "\n";
  const std::string_view body = is_page ? page : std::string_view(error);
  std::string text = std::string("HTTP/1.1 ") + status_of(what) + "\r\n";
  if (what == HttpAnswer::not_allowed) text += "Allow: GET, HEAD\r\n";
  // The version is that of Prometheus' text format.
  text += is_page ? "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                  : "Content-Type: text/plain; charset=utf-8\r\n";
  text += "Content-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n";
  if (what != HttpAnswer::head_alone) text += body;
  return text;
}

}  // namespace tern::daemon
