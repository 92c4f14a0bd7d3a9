#include "tests/attack/victim.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/fd.h"
#include "ctl/control_client.h"
#include "tests/rounds.h"

namespace tern::attack {
namespace {

constexpr std::uint64_t kSmallCount = (64 << 10) / sizeof(float);
constexpr std::uint64_t kLargeCount = (16 << 20) / sizeof(float);
constexpr int kTurnsOfGroup = 3, kSmallOpsOfTurn = 16;
constexpr std::int64_t kLostAfterMs = 60'000;
constexpr int kVersionEveryMs = 20;

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

// A whole number, so that a sum is exact; another one in every op.
float value_of(std::uint64_t seed, std::size_t rank, std::uint64_t at) {
  return static_cast<float>((at * (3 + rank) + seed) & 1023);
}

}  // namespace

double Times::quantile_ms(double part) const {
  if (ns.empty()) return 0;
  auto sorted = ns;
  std::sort(sorted.begin(), sorted.end());
  const auto at = static_cast<std::size_t>(std::ceil(part * static_cast<double>(sorted.size())));
  return static_cast<double>(sorted[std::max<std::size_t>(at, 1) - 1]) / 1e6;
}

// Ends the pauses of who asks for the version.
class Victim::Wakeup {
 public:
  void ring() { ::eventfd_write(event_.get(), 1); }
  void pause(int ms) {
    pollfd entry{event_.get(), POLLIN, 0};
    ::poll(&entry, 1, ms);
  }

 private:
  Fd event_{::eventfd(0, EFD_CLOEXEC)};
};

Victim::Victim(std::array<std::string, 2> sockets, std::string control_socket)
    : control_socket_(std::move(control_socket)) {
  for (std::size_t rank = 0; rank < 2 && problem_.empty(); ++rank) {
    problem_ = connect(ranks_[rank], sockets[rank]);
  }
}

Victim::~Victim() {
  if (!threads_.empty()) stop();
  for (Rank& rank : ranks_) tern_disconnect(rank.client);
}

std::string Victim::connect(Rank& rank, const std::string& socket) {
  tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
  options.socket_path = socket.c_str();
  options.job = "victim";
  options.arena_bytes = 40 << 20;
  options.timeout_ms = std::int64_t{20'000} * tests::kSlowdown;
  if (tern_connect(&options, &rank.client) != TERN_OK) return tern_error_detail();
  for (Buffer* const buffer : {&rank.small, &rank.large}) {
    buffer->count = buffer == &rank.small ? kSmallCount : kLargeCount;
    for (float** const memory : {&buffer->input, &buffer->output}) {
      void* taken = nullptr;
      if (tern_alloc(rank.client, buffer->count * sizeof(float), &taken) != TERN_OK) {
        return tern_error_detail();
      }
      *memory = static_cast<float*>(taken);
    }
  }
  return "";
}

void Victim::start() {
  books_ = Books{};
  stopping_ = false;
  over_ = false;
  wakeup_ = std::make_unique<Wakeup>();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    threads_.emplace_back([this, rank] { work(rank); });
  }
  threads_.emplace_back([this] { ask_versions(); });
}

nlohmann::json Victim::stop() {
  stopping_ = true;
  wakeup_->ring();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  const Books& books = books_;
  return {{"ops", books.ops},
          {"lost", books.lost},
          {"wrong", books.wrong},
          {"small_p50_ms", books.small.quantile_ms(0.5)},
          {"small_p99_ms", books.small.quantile_ms(0.99)},
          {"large_p50_ms", books.large.quantile_ms(0.5)},
          {"large_p99_ms", books.large.quantile_ms(0.99)},
          {"joins", books.joins.ns.size()},
          {"joins_failed", books.joins_failed},
          {"join_p50_ms", books.joins.quantile_ms(0.5)},
          {"join_max_ms", books.joins.quantile_ms(1)},
          {"versions", books.versions.ns.size()},
          {"versions_failed", books.versions_failed},
          {"version_max_ms", books.versions.quantile_ms(1)},
          {"first_failure", books.first_failure}};
}

bool Victim::both_well() {
  both_.arrive_and_wait();
  const bool well = ranks_[0].status == TERN_OK && ranks_[1].status == TERN_OK;
  both_.arrive_and_wait();  // before either writes its status again
  return well;
}

// One group after another, and one even if the end comes before these threads get a processor.
// Every step is taken by both, or by neither.
void Victim::work(std::size_t number) {
  Rank& rank = ranks_[number];
  for (bool first = true;; first = false) {
    if (number == 0) over_ = stopping_ && !first;
    both_.arrive_and_wait();
    if (over_) return;
    join(number);
    const bool joined = both_well();
    if (number == 0 && !joined) ++books_.joins_failed;
    if (joined) run_ops(number);
    if (rank.group != nullptr) tern_group_leave(std::exchange(rank.group, nullptr));
  }
}

// Rank 0 takes the time, from the minting to the answer to both.
void Victim::join(std::size_t number) {
  Rank& rank = ranks_[number];
  const std::uint64_t begin = now_ns();
  if (number == 0) rank.status = tern_group_mint(rank.client, &id_);
  if (number == 1) rank.status = TERN_OK;
  if (!both_well()) return;
  tern_join_options options = TERN_JOIN_OPTIONS_INIT;
  options.rank = static_cast<std::int32_t>(number);
  options.size = 2;
  options.timeout_ms = std::int64_t{20'000} * tests::kSlowdown;
  rank.status = tern_group_join(rank.client, &id_, &options, &rank.group);
  const std::string detail = rank.status == TERN_OK ? "" : tern_error_detail();
  both_.arrive_and_wait();
  if (number != 0) return;
  books_.joins.ns.push_back(now_ns() - begin);
  if (!detail.empty() && books_.first_failure.empty()) books_.first_failure = "join: " + detail;
}

void Victim::run_ops(std::size_t number) {
  for (int turn = 0; turn < kTurnsOfGroup; ++turn) {
    for (int op = 0; op < kSmallOpsOfTurn; ++op) {
      if (!run_op(number, &Rank::small, books_.small)) return;
    }
    if (!run_op(number, &Rank::large, books_.large)) return;
  }
}

bool Victim::run_op(std::size_t number, Buffer Rank::*member, Times& times) {
  Rank& rank = ranks_[number];
  const Buffer& buffer = rank.*member;
  const std::uint64_t seed = seed_;
  for (std::uint64_t i = 0; i < buffer.count; ++i) buffer.input[i] = value_of(seed, number, i);
  tern_op op = TERN_OP_INIT;
  op.input = buffer.input;
  op.output = buffer.output;
  op.count = buffer.count;
  tern_ticket ticket = 0;
  both_.arrive_and_wait();
  const std::uint64_t begin = now_ns();
  rank.status = tern_all_reduce(rank.group, &op, &ticket);
  if (rank.status == TERN_OK) rank.status = tern_wait(rank.client, ticket, kLostAfterMs);
  const std::uint64_t took = now_ns() - begin;
  const std::string detail = rank.status == TERN_OK ? "" : tern_error_detail();
  rank.wrong = 0;
  for (std::uint64_t i = 0; i < buffer.count && rank.status == TERN_OK; ++i) {
    const float due = value_of(seed, 0, i) + value_of(seed, 1, i);
    rank.wrong += buffer.output[i] == due ? 0 : 1;
  }
  const bool well = both_well();
  if (number == 0) {
    ++books_.ops;
    ++seed_;
    times.ns.push_back(took);
    books_.lost += well ? 0 : 1;
    books_.wrong += ranks_[0].wrong + ranks_[1].wrong;
    if (!detail.empty() && books_.first_failure.empty()) books_.first_failure = "op: " + detail;
  }
  both_.arrive_and_wait();
  return well;
}

void Victim::ask_versions() {
  do {  // once even if it gets no processor before the end
    const std::uint64_t begin = now_ns();
    const auto answer = ctl::ask_daemon(control_socket_, "version", nlohmann::json::object(),
                                        std::chrono::seconds(20));
    books_.versions.ns.push_back(now_ns() - begin);
    books_.versions_failed += answer ? 0 : 1;
    wakeup_->pause(kVersionEveryMs);
  } while (!stopping_);
}

}  // namespace tern::attack
