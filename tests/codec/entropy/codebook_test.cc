#include "codec/entropy/codebook.h"

#include "entropy_harness.h"

namespace tern::codec::entropy {
namespace codebook_test {

Codebook trained(const std::string& name = "weights-1", std::string_view on = "gaussian") {
  std::array<std::uint64_t, 256> histogram{};
  for (const std::byte byte : draw(on, 5000)) ++histogram[std::to_integer<std::size_t>(byte)];
  return train_codebook(name, histogram);
}

TEST(Codebook, EverySymbolHasACode) {
  const Codebook book = trained();
  EXPECT_EQ(std::count(book.lengths.begin(), book.lengths.end(), 0), 0);
  const Codebook flat = train_codebook("x", {});
  EXPECT_EQ(std::count(flat.lengths.begin(), flat.lengths.end(), 8), 256);
  std::array<std::uint64_t, 256> huge{};
  huge.fill(~std::uint64_t{0});
  EXPECT_EQ(train_codebook("x", huge).lengths[0], 8);
}

TEST(Codebook, TextIsReadBack) {
  const Codebook book = trained();
  const Result<Codebook> read = parse_codebook(codebook_text(book));
  ASSERT_TRUE(read.has_value()) << read.error().text;
  EXPECT_EQ(read->name, "weights-1");
  EXPECT_EQ(read->lengths, book.lengths);
  EXPECT_EQ(read->hash(), book.hash());
}

TEST(Codebook, EveryCutAndEveryChangeOfTheTextIsRefusedOrHarmless) {
  const Codebook book = trained();
  const std::string text = codebook_text(book);
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    const Result<Codebook> read = parse_codebook(text.substr(0, cut));
    // Without the last line's end it is still whole.
    if (cut + 1 < text.size()) {
      EXPECT_FALSE(read.has_value()) << cut;
    }
  }
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = '5';
    const Result<Codebook> read = parse_codebook(changed);
    if (read.has_value()) {
      EXPECT_EQ(read->lengths, book.lengths);
    }
  }
  EXPECT_FALSE(parse_codebook(text + "7").has_value());
}

TEST(Codebook, RefusesWhatIsNoBook) {
  Codebook book = trained();
  book.name = "Capital";
  EXPECT_FALSE(install_codebooks({book}).has_value());
  book.name = std::string(24, 'a');
  EXPECT_FALSE(install_codebooks({book}).has_value());
  book.name = "fine";
  book.lengths[0] = 0;
  EXPECT_FALSE(install_codebooks({book}).has_value());
  EXPECT_FALSE(install_codebooks({trained("twice"), trained("twice")}).has_value());
}

TEST(Codebook, BlocksNameTheirBook) {
  ASSERT_TRUE(install_codebooks({trained("one"), trained("two", "sparse")}).has_value());
  EXPECT_TRUE(has_codebook("two"));
  EXPECT_FALSE(has_codebook("three"));
  Scratch scratch;
  const ByteVector in = draw("sparse", 2000);
  const ByteVector coded = encoded(static_params("two"), in, scratch);
  ASSERT_FALSE(coded.empty());
  std::uint64_t hash = 0;
  std::memcpy(&hash, coded.data(), sizeof(hash));
  EXPECT_EQ(hash, trained("two", "sparse").hash());
  EXPECT_EQ(decoded(Kind::huffman_static, coded, in.size(), scratch).bytes, in);
  ASSERT_TRUE(install_codebooks({trained("one")}).has_value());
  EXPECT_EQ(decoded(Kind::huffman_static, coded, in.size(), scratch).status, Status::unknown_book);
  ASSERT_TRUE(install_codebooks({}).has_value());
}

}  // namespace codebook_test
}  // namespace tern::codec::entropy
