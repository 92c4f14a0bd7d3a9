#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "client_lib/options.h"

namespace tern::client_lib {

// Two ops of which one writes what the other one reads or writes, by their places in the list, the
// later one last. Ops of a batch run side by side, so that the result would be a matter of time. An
// op beside itself is not looked at.
std::optional<std::pair<std::size_t, std::size_t>> find_output_overlap(
    std::span<const OpRequest> requests);

}  // namespace tern::client_lib
