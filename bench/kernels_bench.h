#pragma once

// NOLINTNEXTLINE(readability-identifier-naming): the library named it.
namespace CLI {
class App;
}

namespace tern::bench {

// Add `tern-bench kernels`, which runs when it is parsed.
void add_kernels_command(CLI::App& app);

}  // namespace tern::bench
