#pragma once

// NOLINTNEXTLINE(readability-identifier-naming): the library named it.
namespace CLI {
class App;
}

namespace tern::bench {

// `tern-bench tuner`: the tuner in a simulated world, against those that do not adapt.
void add_tuner_command(CLI::App& app);
// `tern-bench tuner-samples`: what that world is made of.
void add_tuner_samples_command(CLI::App& app);

}  // namespace tern::bench
