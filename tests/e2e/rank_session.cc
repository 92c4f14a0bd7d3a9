#include "tests/e2e/rank_session.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "tests/e2e/kind_stream.h"
#include "wire/crc32c.h"

namespace tern::e2e {

std::string failed(tern_status status) {
  const std::string detail = tern_error_detail();
  return "error " + std::to_string(status) + " " +
         (detail.empty() ? tern_strerror(status) : detail);
}

std::string outcome(tern_status status) { return status == TERN_OK ? "ok" : failed(status); }

std::string invalid(const std::string& text) {
  return "error " + std::to_string(TERN_ERR_INTERNAL) + " e2e_rank: " + text;
}

namespace {

constexpr std::int64_t kWaitMs = 60'000;

tern_role role_of(const std::string& name) {
  if (name == "gradient") return TERN_GRADIENT;
  if (name == "delta") return TERN_DELTA;
  return name == "weights" ? TERN_WEIGHTS : TERN_EXACT;
}

}  // namespace

std::string Command::text(const std::string& key, const std::string& otherwise) const {
  const auto found = arguments.find(key);
  return found == arguments.end() ? otherwise : found->second;
}
std::int64_t Command::number(const std::string& key, std::int64_t otherwise) const {
  const auto found = arguments.find(key);
  return found == arguments.end() ? otherwise : std::strtoll(found->second.c_str(), nullptr, 10);
}
double Command::real(const std::string& key, double otherwise) const {
  const auto found = arguments.find(key);
  return found == arguments.end() ? otherwise : std::strtod(found->second.c_str(), nullptr);
}

Command parse_command(const std::string& line) {
  std::istringstream words(line);
  Command command;
  words >> command.verb;
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) continue;
    command.arguments[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return command;
}

std::string RankSession::run(const Command& command) {
  if (command.verb == "connect") return connect(command);
  if (command.verb == "mint") return mint();
  if (command.verb == "join") return join(command);
  if (command.verb == "leave") return leave(command);
  if (command.verb == "declare") return declare(command);
  if (command.verb == "release") return release(command);
  if (command.verb == "submit") return submit(command);
  if (command.verb == "wait") return wait(command);
  if (command.verb == "stats") return stats(command);
  if (command.verb == "stream") return stream(command);
  if (command.verb == "kinds") return kinds(command);
  if (command.verb == "save") return save(command);
  if (command.verb == "load") return load(command);
  if (command.verb == "cancel") {
    return outcome(tern_cancel(client_, ops_[command.text("op")].ticket));
  }
  if (command.verb == "disconnect") {
    groups_.clear();
    tensors_.clear();
    ops_.clear();
    return outcome(tern_disconnect(std::exchange(client_, nullptr)));
  }
  return invalid("unknown command " + command.verb);
}

std::string RankSession::connect(const Command& command) {
  const std::string socket = command.text("socket"), job = command.text("job", "test");
  tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
  options.socket_path = socket.c_str();
  options.job = job.c_str();
  options.arena_bytes = static_cast<std::uint64_t>(command.number("arena", 64 << 20));
  options.timeout_ms = command.number("timeout", 20'000);
  return outcome(tern_connect(&options, &client_));
}

std::string RankSession::mint() {
  tern_group_id id{};
  const tern_status status = tern_group_mint(client_, &id);
  return status == TERN_OK ? std::string("ok id=") + id.text : failed(status);
}

std::string RankSession::join(const Command& command) {
  tern_group_id id{};
  std::snprintf(id.text, sizeof(id.text), "%s", command.text("id").c_str());
  tern_join_options options = TERN_JOIN_OPTIONS_INIT;
  options.rank = static_cast<std::int32_t>(command.number("rank"));
  options.size = static_cast<std::int32_t>(command.number("size", 1));
  options.verify = static_cast<std::uint32_t>(command.number("verify"));
  options.seed = static_cast<std::uint64_t>(command.number("seed"));
  options.timeout_ms = command.number("timeout", 50'000);
  options.op_timeout_ms = command.number("op_timeout");
  Group group;
  if (const auto status = tern_group_join(client_, &id, &options, &group.handle);
      status != TERN_OK) {
    return failed(status);
  }
  group.rank = static_cast<std::uint32_t>(options.rank);
  group.size = static_cast<std::uint32_t>(options.size);
  groups_[command.text("group")] = group;
  tern_group_info info = TERN_GROUP_INFO_INIT;
  tern_group_get_info(group.handle, &info);
  return "ok node=" + std::to_string(info.node) + " nodes=" + std::to_string(info.node_count) +
         " epoch=" + std::to_string(info.epoch) + " last=" + std::to_string(info.last_common_op);
}

std::string RankSession::leave(const Command& command) {
  const auto found = groups_.find(command.text("group"));
  if (found == groups_.end()) return invalid("no such group");
  const tern_status status = tern_group_leave(found->second.handle);
  const std::string prefix = found->first + "/";
  std::erase_if(tensors_, [&](const auto& one) { return one.first.rfind(prefix, 0) == 0; });
  groups_.erase(found);
  return outcome(status);
}

// Tensors are known here by group and name.
std::string RankSession::declare(const Command& command) {
  const auto group = groups_.find(command.text("group"));
  if (group == groups_.end()) return invalid("no such group");
  const std::string name = command.text("name"), recipe = command.text("recipe");
  const std::string level = command.text("level");
  Tensor tensor;
  if (!parse_dtype(command.text("dtype", "f32"), tensor.dtype)) return invalid("no such dtype");
  tensor.count = static_cast<std::uint64_t>(command.number("count"));
  tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
  options.name = name.c_str();
  options.count = tensor.count;
  options.dtype = static_cast<tern_dtype>(tensor.dtype);
  options.role = role_of(command.text("role", "exact"));
  options.recipe = recipe.empty() ? nullptr : recipe.c_str();
  options.level = level.empty() ? nullptr : level.c_str();
  options.exempt = static_cast<std::uint32_t>(command.number("exempt"));
  options.priority = static_cast<std::int32_t>(command.number("priority"));
  const auto status = tern_tensor_declare(group->second.handle, &options, &tensor.handle);
  if (status != TERN_OK) return failed(status);
  tensors_[group->first + "/" + name] = tensor;
  return "ok";
}

std::string RankSession::release(const Command& command) {
  const auto found = tensors_.find(command.text("group") + "/" + command.text("name"));
  if (found == tensors_.end()) return invalid("no such tensor");
  const tern_status status = tern_tensor_release(found->second.handle);
  tensors_.erase(found);
  return outcome(status);
}

std::string RankSession::stats(const Command& command) {
  const auto found = tensors_.find(command.text("group") + "/" + command.text("name"));
  if (found == tensors_.end()) return invalid("no such tensor");
  tern_tensor_stats stats = TERN_TENSOR_STATS_INIT;
  const tern_status status = tern_tensor_get_stats(found->second.handle, &stats);
  if (status != TERN_OK) return failed(status);
  return "ok ops=" + std::to_string(stats.ops) + " ratio=" + std::to_string(stats.ratio) +
         " bytes_sent=" + std::to_string(stats.bytes_sent) +
         " fallbacks=" + std::to_string(stats.raw_fallbacks) +
         " state=" + std::to_string(stats.state_bytes) + " recipe=" + stats.recipe;
}

// ---- Operations ---------------------------------------------------------------------------------

bool RankSession::place(Op& op, const std::string& where) {
  if (op.bytes == 0) return true;
  if (where == "heap") {
    op.heap.resize(2 * op.bytes);
    op.input = op.heap.data();
    op.output = op.heap.data() + op.bytes;
    return true;
  }
  const int buffers = where == "in" ? 1 : 2;
  for (int i = 0; i < buffers; ++i) {
    void* memory = nullptr;
    if (tern_alloc(client_, op.bytes, &memory) != TERN_OK) return false;
    op.arena.push_back(memory);
  }
  op.input = static_cast<std::byte*>(op.arena.front());
  op.output = static_cast<std::byte*>(op.arena.back());
  return true;
}

tern_status RankSession::start(const Command& command, Op& op) {
  const auto group = groups_.find(command.text("group"));
  if (group == groups_.end()) return TERN_ERR_UNKNOWN_GROUP;
  op.kind = command.text("kind", "all_reduce");
  op.ranks = group->second.size;
  op.root = static_cast<std::uint32_t>(command.number("root"));
  op.draw.data = command.text("data", "whole") == "real" ? Data::real : Data::whole;
  op.draw.seed = static_cast<std::uint64_t>(command.number("draw"));
  parse_dtype(command.text("dtype", "f32"), op.draw.dtype);
  parse_reduction(command.text("reduction", "sum"), op.draw.reduction);
  auto count = static_cast<std::uint64_t>(command.number("count"));
  tern_op request = TERN_OP_INIT;
  if (const std::string name = command.text("tensor"); !name.empty()) {
    const auto tensor = tensors_.find(group->first + "/" + name);
    if (tensor == tensors_.end()) return TERN_ERR_UNKNOWN_TENSOR;
    request.tensor = tensor->second.handle;
    count = tensor->second.count;
    op.draw.dtype = tensor->second.dtype;
  }
  if (op.kind == "barrier") return tern_barrier(group->second.handle, &op.ticket);
  op.bytes = count * dtype_bytes(op.draw.dtype);
  const std::string where = command.text("place", "out");
  if (!place(op, where)) return TERN_ERR_OUT_OF_MEMORY;
  fill(op.draw, group->second.rank, {op.input, op.bytes});
  const std::string recipe = command.text("recipe");
  request.dtype = static_cast<tern_dtype>(op.draw.dtype);
  request.input = op.input;
  request.output = where == "in" ? nullptr : op.output;
  request.count = count;
  request.reduction = static_cast<tern_reduction>(op.draw.reduction);
  request.root = static_cast<std::int32_t>(op.root);
  request.recipe = recipe.empty() ? nullptr : recipe.c_str();
  return op.kind == "broadcast" ? tern_broadcast(group->second.handle, &request, &op.ticket)
                                : tern_all_reduce(group->second.handle, &request, &op.ticket);
}

void RankSession::give_back(Op& op) {
  for (void* memory : op.arena) tern_free(client_, memory);
  op.arena.clear();
}

std::string RankSession::submit(const Command& command) {
  Op& op = ops_[command.text("op")] = Op{};
  const tern_status status = start(command, op);
  if (status == TERN_OK) return "ok";
  std::string text = failed(status);
  give_back(op);
  ops_.erase(command.text("op"));
  return text;
}

// Waits, and meanwhile writes where the result is to be, as no application may.
tern_status RankSession::scribble(const Op& op, std::int64_t ms) {
  constexpr std::size_t kStride = 4096;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  std::uint8_t value = 0;
  tern_status status = TERN_ERR_TIMEOUT;
  while (status == TERN_ERR_TIMEOUT && std::chrono::steady_clock::now() < deadline) {
    ++value;
    for (std::size_t at = 0; at < op.bytes; at += kStride) {
      std::atomic_ref<std::byte>(op.output[at]).store(std::byte{value}, std::memory_order_relaxed);
    }
    status = tern_test(client_, op.ticket);
  }
  return status;
}

std::string RankSession::finish(Op& op, const Expected& expected, bool& running) {
  const std::int64_t ms = expected.within_ms;
  const tern_status status = op.scribbles ? scribble(op, ms) : tern_wait(client_, op.ticket, ms);
  running = status == TERN_ERR_TIMEOUT;
  if (status != TERN_OK) {
    std::string text = failed(status);
    if (!running) give_back(op);
    return text;
  }
  Comparison comparison;
  const std::span<const std::byte> output(op.output, op.bytes);
  if (op.kind == "broadcast") comparison = compare_broadcast(op.draw, op.root, output);
  if (op.kind == "all_reduce")
    comparison = compare_reduced(op.draw, op.ranks, expected.tolerance, output);
  char text[128];
  std::snprintf(text, sizeof(text), "ok crc=%08x wrong=%llu error=%g", wire::crc32c(output),
                static_cast<unsigned long long>(comparison.wrong), comparison.max_error);
  const std::string further = expected.mean.empty() ? "" : errors(op, expected.mean);
  give_back(op);
  return text + further;
}

std::string RankSession::wait(const Command& command) {
  const auto found = ops_.find(command.text("op"));
  if (found == ops_.end()) return invalid("no such op");
  bool running = false;
  found->second.scribbles = command.number("scribble") != 0;
  std::string text =
      finish(found->second,
             {command.number("ms", kWaitMs), command.real("tolerance", -1), command.text("mean")},
             running);
  if (!running) ops_.erase(found);
  return text;
}

std::string RankSession::kinds(const Command& command) {
  const auto group = groups_.find(command.text("group", "g"));
  if (group == groups_.end()) return invalid("no such group");
  const Group& here = group->second;
  KindStream stream({client_, here.handle, here.rank, here.size});
  return stream.run(static_cast<std::uint64_t>(command.number("rounds")));
}

// Ops in the order of their numbers, `window` of them in flight; every fifth is a large one. With
// tensors=K they are uses of K declared tensors, the first of which is the large one.
std::string RankSession::stream(const Command& command) {
  const std::int64_t ops = command.number("ops"), tensors = command.number("tensors");
  const std::string count = command.text("count", "500"), large = command.text("large", "100000");
  const std::string group = command.text("group", "g");
  const std::string recipe = command.text("recipe");
  const auto window = static_cast<std::size_t>(command.number("window", 8));
  const double tolerance = recipe.empty() ? -1 : 1e30;
  const std::string prefix = group + "/";
  const std::string declaration = "declare group=" + group +
                                  (recipe.empty() ? "" : " role=gradient recipe=" + recipe) +
                                  " name=";
  for (std::int64_t i = 0; i < tensors; ++i) {
    const std::string name = "stream" + std::to_string(i);
    if (tensors_.contains(prefix + name)) continue;
    std::string answer =
        declare(parse_command(declaration + name + " count=" + (i == 0 ? large : count)));
    if (answer != "ok") return answer;
  }
  std::deque<Op> flying;
  std::string problem;
  std::int64_t done = 0;
  std::uint32_t crc = 0;
  const auto take = [&] {
    bool running = false;
    const std::string text = finish(flying.front(), {kWaitMs, tolerance, ""}, running);
    const auto checksum = text.find("crc=");
    if (running) {
      problem = invalid("hang: an op has not ended after a minute");
    } else if (text.find("ok ") != 0 || text.find(" wrong=0 ") == std::string::npos) {
      if (problem.empty())
        problem = text.find("ok ") == 0 ? invalid("wrong result: " + text) : text;
    } else {
      ++done;
      crc = wire::crc32c(std::as_bytes(std::span(text.data() + checksum, 12)), crc);
    }
    flying.pop_front();
  };
  const std::string submission = "submit group=" + group;
  for (std::int64_t i = 0; (ops == 0 || i < ops) && problem.empty(); ++i) {
    const std::string what = tensors > 0 ? " tensor=stream" + std::to_string(i % tensors)
                                         : " count=" + (i % 5 == 4 ? large : count);
    while (flying.size() >= window) take();
    flying.emplace_back();
    const tern_status status =
        start(parse_command(submission + what + " draw=" + std::to_string(i)), flying.back());
    if (status == TERN_OK) continue;
    if (problem.empty()) problem = failed(status);
    give_back(flying.back());
    flying.pop_back();
  }
  while (!flying.empty()) take();
  if (!problem.empty()) return problem + " (after " + std::to_string(done) + " ops)";
  char text[64];
  std::snprintf(text, sizeof(text), "ok ops=%lld wrong=0 crc=%08x", static_cast<long long>(done),
                crc);
  return text;
}

}  // namespace tern::e2e
