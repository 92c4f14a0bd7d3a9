#pragma once

#include <cstdint>
#include <string>

namespace tern::attack {

// Connects as who has the cluster's key (as text), says hello as that node and takes the answer.
// False: it has not come.
bool say_hello_with_key(int port, const std::string& key, std::uint64_t node);

}  // namespace tern::attack
