#pragma once

// As much of HTTP/1.1 (RFC 9112) as a server of one page needs.

#include <cstdint>
#include <string>
#include <string_view>

namespace tern::daemon {

// What is to be answered to the bytes that have come so far.
enum class HttpAnswer : std::uint8_t { none_yet, page, head_alone, bad, not_found, not_allowed };

// `path` is that of the page.
HttpAnswer http_answer_to(std::string_view received, std::string_view path);

// A whole answer, after which the connection is closed. Of `page` the text is used for a page and
// its head alone.
std::string http_answer(HttpAnswer what, std::string_view page);

}  // namespace tern::daemon
