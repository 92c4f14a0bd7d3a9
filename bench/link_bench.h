#pragma once

// NOLINTNEXTLINE(readability-identifier-naming): the library named it.
namespace CLI {
class App;
}

namespace tern::bench {

// Adds `tern-bench link`: one end of a link over TCP or RDMA, without daemons. One end listens, the
// other connects, measures and prints.
void add_link_command(CLI::App& app);

}  // namespace tern::bench
