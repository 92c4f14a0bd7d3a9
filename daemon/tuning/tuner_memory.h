#pragma once

// What the tuner has learnt, in a file across restarts.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/time_slice.h"
#include "daemon/service/late_file.h"
#include "tuner/memory_text.h"
#include "tuner/tuner.h"

namespace tern::daemon {

class TunerMemory {
 public:
  // `file`: empty, and nothing is remembered. What is given outlives this; `writing` has the thread
  // that waits for the disk.
  TunerMemory(std::string file, const Clock& clock, Disposal& writing);

  // What cannot be read is lost, and the log says why.
  void load(tuner::Tuner& tuner) const;
  // A minute has gone since the last save, which the disk has taken, or one has begun.
  bool is_due() const noexcept;
  // Goes on with a save for so long. All or nothing: what cannot be written leaves the file as it
  // was. REQUIRES: is_due(); the tuner is the same until it is not any more.
  void save_some(const tuner::Tuner& tuner, const TimeSlice& slice);
  // If the last save could not be written, the log says why; once.
  void tell_problem();
  // The whole of a save.
  void save(const tuner::Tuner& tuner);

 private:
  // One that has begun.
  struct Save {
    Save(const tuner::Tuner& tuner, LateFile file) : text(tuner), out(std::move(file)) {}

    tuner::MemoryText text;
    LateFile out;
  };

  std::string file_;
  const Clock& clock_;
  Disposal& writing_;
  std::uint64_t saved_ns_;
  std::optional<Save> save_;
  std::optional<LateFile> saved_;  // the last, until it is known how it went
};

}  // namespace tern::daemon
