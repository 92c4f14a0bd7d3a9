#pragma once

// NOLINTNEXTLINE(readability-identifier-naming): the library named it.
namespace CLI {
class App;
}

namespace tern::bench {

// Adds `tern-bench allreduce`, one rank of a measurement. tools/bench.py starts them.
void add_allreduce_command(CLI::App& app);

}  // namespace tern::bench
