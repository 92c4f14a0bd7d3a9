#pragma once

// NOLINTNEXTLINE(readability-identifier-naming): the library named it.
namespace CLI {
class App;
}

namespace tern::bench {

// Adds `tern-bench freeing`: how long a thread that maps memory waits while another frees much.
void add_freeing_command(CLI::App& app);

}  // namespace tern::bench
