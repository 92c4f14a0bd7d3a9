#pragma once

// NOLINTNEXTLINE(readability-identifier-naming): the library named it.
namespace CLI {
class App;
}

namespace tern::bench {

// Adds `tern-bench flood`, one rank of a job that keeps its nodes busy until it is stopped.
// tools/bench_fairness.py measures others beside it.
void add_flood_command(CLI::App& app);

}  // namespace tern::bench
