#pragma once

// The mailbox of a node whose steps are only looked at.

#include <gtest/gtest.h>

#include <string>

#include "collective/mailbox.h"

namespace tern::collective {
namespace mailbox_test {

inline constexpr std::uint64_t kSecond = 1'000'000'000;
inline const Failure kOk{};

inline GroupShape shape_of(std::uint32_t node) {
  GroupShape shape;
  shape.node = node;
  shape.chunk_bytes = 1024;
  shape.eager_bytes = 100;
  shape.ranks = {{0, 1}, {2}, {3}};
  return shape;
}

// Node 0, with the ranks 0 and 1; what its steps would tell others is only looked at.
class MailboxOfNode0 : public testing::Test {
 protected:
  PassId send(std::uint32_t from, std::uint32_t to, std::uint64_t count, std::uint32_t tag = 7) {
    return mailbox.submit({true, from, {from, to, tag, DType::u8, count}, now});
  }
  PassId recv(std::uint32_t at, std::uint32_t from, std::uint64_t count, std::uint32_t tag = 7) {
    return mailbox.submit({false, at, {from, at, tag, DType::u8, count}, now});
  }
  // From rank 2 of node 1.
  Mailbox::Arriving offer(PassId number, std::uint64_t count, std::uint32_t to = 0) {
    Mailbox::Arriving made;
    made.node = 1;
    made.number = number;
    made.envelope = {2, to, 7, DType::u8, count};
    made.eager = count <= 100;
    return made;
  }
  PassStep step(PassAction expected, std::uint32_t pieces = 1) {
    const PassStep made = mailbox.next(pieces);
    EXPECT_EQ(made.action, expected);
    return made;
  }
  PassStep carry_out(PassAction expected, std::uint32_t pieces = 1) {
    const PassStep made = step(expected, pieces);
    mailbox.done(made);
    return made;
  }
  // The pass is completed next, and so.
  void expect_end(PassId id, Errc code, const std::string& text = "") {
    const PassStep made = step(PassAction::complete);
    EXPECT_EQ(made.pass, id);
    EXPECT_EQ(mailbox.pass(id).outcome.code, code);
    EXPECT_EQ(mailbox.pass(id).outcome.text, text);
    mailbox.done(made);
  }
  void expect_idle() {
    step(PassAction::none);
    EXPECT_TRUE(mailbox.idle());
  }

  std::uint64_t now = 5 * kSecond;
  GroupShape shape = shape_of(0);
  Mailbox mailbox{shape};
};

}  // namespace mailbox_test
}  // namespace tern::collective
