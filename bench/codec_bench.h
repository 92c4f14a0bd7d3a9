#pragma once

// NOLINTNEXTLINE(readability-identifier-naming): the library named it.
namespace CLI {
class App;
}

namespace tern::bench {

// Add `tern-bench codec` and `tern-bench codebook`, which run when they are parsed.
void add_codec_command(CLI::App& app);
void add_codebook_command(CLI::App& app);

}  // namespace tern::bench
