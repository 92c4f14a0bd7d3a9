#pragma once

// What e2e_rank does on `kinds`: rounds of operations of every kind, each drawn from the number of
// its round alone, so that all ranks of the group do the same.

#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "client_lib/include/tern/tern.h"

namespace tern::e2e {

struct GroupRank {
  tern_client* client = nullptr;
  tern_group* group = nullptr;
  std::uint32_t rank = 0, size = 1;
};

// Whole numbers, outside the arena or in it.
class Numbers {
 public:
  Numbers(tern_client* client, std::size_t count, bool in_arena);
  Numbers(Numbers&& other) noexcept;
  Numbers& operator=(Numbers&&) = delete;
  ~Numbers();
  std::int32_t* data() noexcept { return arena_ != nullptr ? arena_ : heap_.data(); }

 private:
  tern_client* client_;
  std::int32_t* arena_ = nullptr;
  std::vector<std::int32_t> heap_;
};

class KindStream {
 public:
  explicit KindStream(const GroupRank& at) : at_(at) {}

  // `rounds` of them, or with 0 rounds until an operation fails: "ok rounds=N", or "error CODE
  // TEXT" with " || [CODE] TEXT" for each further operation that failed otherwise.
  std::string run(std::uint64_t rounds);

 private:
  struct Flying {
    std::string what;
    tern_ticket ticket = 0;
    Numbers input, output;
    std::vector<std::int32_t> expected;  // of the output
    std::vector<std::uint64_t> counts, receive_counts;
    tern_op op = TERN_OP_INIT;
    tern_op_kind kind = TERN_OP_BARRIER;
  };
  struct Drawn {
    tern_op_kind kind;
    std::int32_t root;
    std::vector<std::uint64_t> counts;
    std::uint64_t begin(std::uint32_t rank) const;
  };

  void round(std::uint64_t number);
  // Operations that are all in flight at once, one by one or as one batch.
  void several(bool as_batch);
  void split();
  void push_and_pull();
  void lossy_moves();
  void lossy_pass();

  Flying& prepare(tern_op_kind kind, std::size_t input, std::size_t output);
  void prepare_drawn(const Drawn& drawn);
  void prepare_exchange();
  void prepare_pass();  // to the next rank, and from the one before
  void prepare_from_any(std::int32_t to);
  tern_status submit(Flying& flying);
  void submit_all(bool as_batch);
  void finish_all();
  void wait(tern_ticket ticket, const std::string& what);

  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  void note(tern_status status, const std::string& what);
  void note(const std::string& problem);

  GroupRank at_;
  std::mt19937_64 random_;      // draws the same on all ranks
  std::mt19937_64 own_random_;  // for what is the rank's own affair
  std::uint32_t next_tag_ = 0;
  std::deque<Flying> flying_;
  std::string problems_;
  tern_push_pull* server_ = nullptr;
  tern_tensor *gathered_ = nullptr, *spread_ = nullptr;
};

}  // namespace tern::e2e
