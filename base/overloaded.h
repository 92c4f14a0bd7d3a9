#pragma once

namespace tern {

// What std::visit() calls: of several functions the one that takes the alternative. The compiler
// refuses a variant with an alternative that none takes.
template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace tern
