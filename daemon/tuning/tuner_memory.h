#pragma once

// What the tuner has learnt, in a file across restarts.

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/time_slice.h"
#include "tuner/memory_text.h"
#include "tuner/tuner.h"

namespace tern::daemon {

class TunerMemory {
 public:
  // `file`: empty, and nothing is remembered. The clock outlives this.
  TunerMemory(std::string file, const Clock& clock);

  // What cannot be read is lost, and the log says why.
  void load(tuner::Tuner& tuner) const;
  // A minute has gone since the last save, or one has begun.
  bool is_due() const noexcept;
  // Goes on with a save for so long. All or nothing: what cannot be written leaves the file as it
  // was, and the log says why. REQUIRES: is_due(); the tuner is the same until it is not any more.
  void save_some(const tuner::Tuner& tuner, const TimeSlice& slice);
  // The whole of one.
  void save(const tuner::Tuner& tuner);

 private:
  // One that has begun.
  struct Save {
    Save(const tuner::Tuner& tuner, const std::string& file) : text(tuner), out(file) {}

    tuner::MemoryText text;
    std::ofstream out;  // what it has not failed to write; put in its place at the end
  };

  std::string unfinished() const { return file_ + ".new"; }
  void finish();

  std::string file_;
  const Clock& clock_;
  std::uint64_t saved_ns_;
  std::optional<Save> save_;
};

}  // namespace tern::daemon
