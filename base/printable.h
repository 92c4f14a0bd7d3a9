#pragma once

#include <string>
#include <string_view>

namespace tern {

// Text from elsewhere, for a line of a log, a cell of a table or a terminal: as it is, but for what
// ends a line, steers a terminal, cannot be seen or turns the order of what follows around. Of
// these each byte becomes \xNN: control characters (C0, DEL, C1), line and paragraph separators,
// zero-width and bidirectional format characters, tags, and what is not UTF-8. A backslash stays
// what it is, so doing it twice does nothing more.
std::string printable(std::string_view text);

// Whether printable() leaves the text as it is.
bool is_printable(std::string_view text) noexcept;

}  // namespace tern
