#pragma once

// NOLINTNEXTLINE(readability-identifier-naming): the library named it.
namespace CLI {
class App;
}

namespace tern::bench {

// Adds `tern-bench collectives`, one rank of a measurement. tools/bench_collectives.py starts them.
void add_collectives_command(CLI::App& app);

}  // namespace tern::bench
