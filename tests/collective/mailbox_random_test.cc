#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "collective/mailbox.h"

namespace tern::collective {
namespace mailbox_random_test {

constexpr std::uint64_t kSecond = 1'000'000'000;
const Failure kOk{};

GroupShape shape_of(std::uint32_t node) {
  GroupShape shape;
  shape.node = node;
  shape.chunk_bytes = 1024;
  shape.eager_bytes = 100;
  shape.ranks = {{0, 1}, {2}, {3}};
  return shape;
}

// Whatever the ranks submit and peers say, in any order: it keeps its bounds, and after the end of
// the group nothing is left. TERN_SEED repeats a seed.
class Anything {
 public:
  explicit Anything(std::uint64_t seed) : random_(seed) {}

  void run() {
    for (int i = 0; i < 3000; ++i) one_event();
    mailbox_.end(Errc::protocol_error, "a peer breaks the protocol");
    for (const auto& [node, piece] : filling_) {
      mailbox_.on_piece(piece.first, piece.second, Mailbox::Piece::abandoned);
    }
    for (int i = 0; i < 100'000 && !mailbox_.idle(); ++i) {
      step();
      free_piece();
    }
    EXPECT_TRUE(mailbox_.idle());
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  std::uint32_t rank() { return static_cast<std::uint32_t>(below(5)); }  // rank 4 is nobody
  std::uint64_t number() { return below(20) == 0 ? random_() : below(12); }
  std::uint32_t other_node() { return static_cast<std::uint32_t>(below(2) + 1); }
  std::uint64_t count() { return below(3) == 0 ? below(3) : below(5000); }
  Failure failure() { return below(3) == 0 ? kOk : Failure{Errc::mismatch, kNoRank, "it says so"}; }

  void one_event() {
    switch (below(12)) {
      case 0: {
        const auto local = static_cast<std::uint32_t>(below(2));
        const auto peer = static_cast<std::uint32_t>(below(4));
        mailbox_.submit({true, local, {local, peer, tag(), DType::u8, count()}, now_});
        break;
      }
      case 1: {
        const auto local = static_cast<std::uint32_t>(below(2));
        const auto peer = below(3) == 0 ? kAnySource : static_cast<std::uint32_t>(below(4));
        mailbox_.submit({false, local, {peer, local, tag(), DType::u8, count()}, now_});
        break;
      }
      case 2:
        offer();
        break;
      case 3:
        mailbox_.on_accept(other_node(), number());
        break;
      case 4:
        mailbox_.on_end(other_node(), number(), failure());
        break;
      case 5:
        mailbox_.on_withdraw(other_node(), number(), {Errc::cancelled, 2, "cancelled"});
        break;
      case 6: {
        // A link brings one frame at a time.
        const std::uint64_t bytes = below(1500);
        const std::uint32_t node = other_node();
        Mailbox::Place place;
        if (!filling_.contains(node) && mailbox_.expect_piece(node, number(), bytes, place)) {
          filling_[node] = {place, bytes};
        }
        break;
      }
      case 7:
        if (!filling_.empty()) {
          const auto [place, bytes] = filling_.begin()->second;
          filling_.erase(filling_.begin());
          mailbox_.on_piece(place, bytes, static_cast<Mailbox::Piece>(below(3)));
        }
        break;
      case 8: {
        const auto id = static_cast<PassId>(below(16));
        if (mailbox_.in_use(id)) mailbox_.fail(id, {Errc::cancelled, 0, "cancelled"});
        break;
      }
      case 9:
        now_ += kSecond;
        mailbox_.expire(now_, 300 * kSecond);
        if (below(300) == 0) mailbox_.on_rank_left(other_node(), rank());
        break;
      default:
        step();
        free_piece();
    }
  }
  std::uint32_t tag() { return static_cast<std::uint32_t>(below(2)); }
  void offer() {
    Mailbox::Arriving made;
    made.node = other_node();
    made.number = static_cast<PassId>(number());
    made.envelope = {rank(), rank(), tag(), DType::u8, count()};
    made.eager = made.envelope.count < 100;
    made.damaged = below(20) == 0;
    mailbox_.on_offer(made);
  }
  void step() {
    const PassStep step = mailbox_.next(static_cast<std::uint32_t>(below(2)));
    if (step.action == PassAction::none) return;
    if (step.action == PassAction::piece) pieces_.push_back(step.pass);
    if (step.action == PassAction::deliver && below(10) == 0) {
      return mailbox_.fail(step.pass, {Errc::rank_lost, 0, "a page"});
    }
    mailbox_.done(step);
  }
  void free_piece() {
    if (pieces_.empty() || below(2) == 0) return;
    mailbox_.piece_freed(pieces_.back());
    pieces_.pop_back();
  }

  std::mt19937_64 random_;
  std::uint64_t now_ = kSecond;
  GroupShape shape_ = shape_of(0);
  Mailbox mailbox_{shape_};
  std::vector<PassId> pieces_;                                                 // under way
  std::map<std::uint32_t, std::pair<Mailbox::Place, std::uint64_t>> filling_;  // by node
};

TEST(MailboxUnderAttack, SurvivesAnything) {
  const char* const only = std::getenv("TERN_SEED");
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    if (only != nullptr && seed != std::strtoull(only, nullptr, 10)) continue;
    SCOPED_TRACE(testing::Message() << "TERN_SEED=" << seed);
    Anything(seed).run();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace mailbox_random_test
}  // namespace tern::collective
