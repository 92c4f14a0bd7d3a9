#pragma once

namespace CLI {
class App;
}

namespace tern::bench {

// Adds `tern-bench codec`, which runs when it is parsed.
void add_codec_command(CLI::App& app);

}  // namespace tern::bench
