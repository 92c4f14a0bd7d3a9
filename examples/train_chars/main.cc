// Data-parallel training of a small model of characters: it learns which one comes next.
//
//   train_chars --local                                           one process, no daemon
//   train_chars --rank 0 --size 2 --group-id-file /tmp/group &    and rank 1 beside it

#include <memory>

#include "examples/train_chars/characters.h"
#include "examples/training/program.h"

namespace {

using tern::training::ProgramOptions;

std::unique_ptr<tern::training::Task> make_characters(const ProgramOptions& options) {
  tern::train_chars::CharactersOptions characters;
  characters.batch = static_cast<std::size_t>(options.train.batch);
  characters.seed = options.train.seed;
  characters.rank = options.exchange.rank;
  characters.size = options.exchange.size;
  return std::make_unique<tern::train_chars::Characters>(tern::train_chars::load_text(options.data),
                                                         characters);
}

}  // namespace

int main(int argc, char** argv) {
  ProgramOptions options;
  options.name = "train_chars";
  options.description = "Data-parallel training on a text, gradients averaged by Tern";
  options.data_help = "A text file";
  options.data = TRAIN_CHARS_DATA;
  options.train.steps = 600;
  options.train.batch = 64;
  options.train.peak_rate = 0.05F;
  return tern::training::run_program(argc, argv, options, make_characters);
}
