#pragma once

// What e2e_rank keeps between commands, and how it carries them out.

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "client_lib/include/tern/tern.h"
#include "tests/e2e/values.h"

namespace tern::e2e {

struct Command {
  std::string verb;
  std::map<std::string, std::string> arguments;

  std::string text(const std::string& key, const std::string& otherwise = "") const;
  std::int64_t number(const std::string& key, std::int64_t otherwise = 0) const;
  double real(const std::string& key, double otherwise) const;
};
Command parse_command(const std::string& line);

// Answers: of a call that failed, of any call, and of a command that makes no sense.
std::string failed(tern_status status);
std::string outcome(tern_status status);
std::string invalid(const std::string& text);

class RankSession {
 public:
  RankSession() = default;
  RankSession(const RankSession&) = delete;
  RankSession& operator=(const RankSession&) = delete;

  std::string run(const Command& command);

 private:
  struct Group {
    tern_group* handle = nullptr;
    std::uint32_t rank = 0, size = 1;
  };
  struct Tensor {
    tern_tensor* handle = nullptr;
    std::uint64_t count = 0;
    DType dtype = DType::f32;
  };
  // Results of one tensor for one input, added up.
  struct Mean {
    std::vector<double> sum;
    int results = 0;
  };
  struct Op {
    tern_ticket ticket = 0;
    tern_status submitted = TERN_OK;
    std::string kind;
    Draw draw;
    std::uint32_t ranks = 1, root = 0;
    double prescale = 1;
    std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::size_t bytes = 0;
    bool scribbles = false;       // writes over its output until the op has ended
    std::vector<void*> arena;     // to be given back
    std::vector<std::byte> heap;  // input and output, where the arena is not used
  };

  std::string connect(const Command& command);
  std::string mint();
  std::string join(const Command& command);
  std::string leave(const Command& command);
  std::string declare(const Command& command);
  std::string release(const Command& command);
  std::string submit(const Command& command);
  std::string wait(const Command& command);
  std::string stats(const Command& command);
  std::string save(const Command& command);
  std::string load(const Command& command);
  std::string stream(const Command& command);
  std::string kinds(const Command& command);

  tern_status start(const Command& command, Op& op);
  bool place(Op& op, const std::string& where);
  tern_status scribble(const Op& op, std::int64_t ms);
  struct Expected {
    std::int64_t within_ms;
    double tolerance;
    std::string mean;  // names what the results are compared with further; may be empty
  };
  std::string finish(Op& op, const Expected& expected, bool& running);
  void give_back(Op& op);
  std::string errors(const Op& op, const std::string& mean);

  tern_client* client_ = nullptr;
  std::map<std::string, Group> groups_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, Op> ops_;
  std::map<std::string, Mean> means_;
};

}  // namespace tern::e2e
