#pragma once

// Carries out the plan of one seed and checks what must hold in every run.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "reference.h"
#include "seed_plan.h"
#include "world.h"

namespace tern::sim {

struct RunCounts {
  std::uint64_t ops_ok = 0, ops_failed = 0, rejoins = 0, links_lost = 0, rounds = 0;
  std::uint64_t ended_ns = 0;      // on the clock of the run
  std::uint32_t outcomes_crc = 0;  // of every op on every rank: status, text, and the result's bits
  std::uint32_t results_crc = 0;   // the same without texts, and with one NaN for all: for records

  bool operator==(const RunCounts&) const = default;
};

class SeedRun {
 public:
  explicit SeedRun(std::uint64_t seed);
  // Failures are GoogleTest's, non-fatal; the first ends the run.
  void run();
  const RunCounts& counts() const { return counts_; }

 private:
  struct Rank {
    Client* client = nullptr;
    bool lost = false;  // its process has ended
    std::vector<Tensor*> tensors;
    std::vector<std::size_t> order;      // of ops
    std::size_t next = 0;                // in order
    std::vector<std::uint64_t> tickets;  // by op; 0: not submitted
    std::vector<Bytes> inputs;           // by op
  };

  void connect_missing();
  bool join_all(bool must_succeed);
  bool troubled_join();
  bool declare_all();
  void prepare(const std::vector<PlannedOp>& ops);
  void submit(std::uint32_t rank);
  int act();
  bool all_done() const;
  bool run_ops(const std::vector<PlannedOp>& ops, bool troubled);
  void make_trouble();
  void heal();
  void taint_streams();
  void check_op(std::size_t index, bool troubled);
  void note_outcome(std::uint32_t rank, std::size_t index);
  void check_bits(std::size_t index, const std::vector<std::uint32_t>& succeeded);
  bool allowed(Errc code) const;
  void leave_all();
  Bytes output_of(std::uint32_t rank, std::size_t op) const;
  std::uint32_t size() const { return static_cast<std::uint32_t>(plan_.daemon_of_rank.size()); }

  std::uint64_t seed_;
  Plan plan_;
  World world_;
  Random random_;
  std::vector<Rank> ranks_;
  std::string group_id_;
  std::uint32_t epoch_ = 0;
  std::size_t coordinator_ = 0;  // the daemon
  bool coordinator_forgot_ = false;
  bool troubled_ = false;
  bool troubles_begun_ = false;
  std::uint64_t trouble_at_ = 0;  // round
  std::unique_ptr<Reference> reference_;
  const std::vector<PlannedOp>* ops_ = nullptr;
  std::vector<bool> tainted_;  // by tensor: some use failed somewhere, its residual is unknown
  std::map<std::pair<std::uint32_t, std::size_t>, std::uint64_t>
      outputs_;  // by rank and op: the place
  RunCounts counts_;
};

}  // namespace tern::sim
