#include "cuda/mailbox.h"

#include <gtest/gtest.h>
#include <poll.h>

namespace tern::cuda {
namespace mailbox_test {

bool is_readable(const Mailbox& mailbox) {
  pollfd entry{mailbox.fd(), POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

TEST(Mailbox, IsReadableWhileANoteIsThere) {
  const auto mailbox = Mailbox::create(4);
  ASSERT_TRUE(mailbox.has_value());
  EXPECT_FALSE(is_readable(**mailbox));
  (*mailbox)->post({3, 7});
  (*mailbox)->post({1, 9});
  EXPECT_TRUE(is_readable(**mailbox));
  std::vector<Mailbox::Note> notes;
  (*mailbox)->take(notes);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0].place, 3u);
  EXPECT_EQ(notes[1].number, 9u);
  EXPECT_FALSE(is_readable(**mailbox));
}

TEST(Mailbox, AWakeBringsNothing) {
  const auto mailbox = Mailbox::create(4);
  ASSERT_TRUE(mailbox.has_value());
  (*mailbox)->wake();
  EXPECT_TRUE(is_readable(**mailbox));
  std::vector<Mailbox::Note> notes = {{1, 1}};
  (*mailbox)->take(notes);
  EXPECT_TRUE(notes.empty());
}

}  // namespace mailbox_test
}  // namespace tern::cuda
