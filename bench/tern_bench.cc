// tern-bench: one subcommand per thing that is measured.
#include <CLI/CLI.hpp>

#include "bench/allreduce_bench.h"
#include "bench/codec_bench.h"
#include "bench/collectives_bench.h"
#include "bench/flood_bench.h"
#include "bench/freeing_bench.h"
#include "bench/kernels_bench.h"
#include "bench/link_bench.h"
#include "bench/tuner_bench.h"

int main(int argc, char** argv) {
  CLI::App app{"Measures the parts of Tern on this machine"};
  app.require_subcommand(1);
  tern::bench::add_allreduce_command(app);
  tern::bench::add_codec_command(app);
  tern::bench::add_codebook_command(app);
  tern::bench::add_collectives_command(app);
  tern::bench::add_flood_command(app);
  tern::bench::add_freeing_command(app);
  tern::bench::add_kernels_command(app);
  tern::bench::add_link_command(app);
  tern::bench::add_tuner_command(app);
  tern::bench::add_tuner_samples_command(app);
  CLI11_PARSE(app, argc, argv);
  return 0;
}
