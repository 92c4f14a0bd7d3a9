#pragma once

#include <string_view>

namespace tern::client_lib {

// The text of tern_error_detail(): one buffer per thread, cut at its end.
void set_error_detail(std::string_view text) noexcept;
const char* error_detail() noexcept;

}  // namespace tern::client_lib
