// What a node may send that has the right to be in the group: decoders and the state machine of an
// op see its bytes. The op or the group fails with an error that names the node, the daemon counts
// and logs it, and the job beside it does not notice.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/e2e/hostile_member.h"
#include "tests/e2e/rank_process.h"
#include "wire/block.h"

namespace tern::e2e {
namespace {

using ::testing::HasSubstr;
using wire::FrameKind;
using Op = HostileMember::Op;

constexpr std::uint32_t kElements = HostileMember::kChunkBytes / sizeof(float);
constexpr std::uint32_t kChunks = 12;
constexpr std::uint32_t kSmall = kElements / 2;  // as much as fits in an announcement to two others

// A 3LC block of one whole chunk.
std::vector<std::byte> block_of(std::uint8_t flags, std::size_t digit_bytes, std::byte digits,
                                std::uint32_t elements = kElements) {
  wire::BlockHeader header;
  header.codec = static_cast<std::uint8_t>(wire::CodecId::threelc);
  header.flags = flags;
  header.elements = elements;
  header.scale_elements = kElements;
  const float scale = 1.0f;
  const std::size_t scale_bytes = digit_bytes == 0 ? 0 : sizeof(scale);
  header.payload_bytes = static_cast<std::uint32_t>(scale_bytes + digit_bytes);
  std::vector<std::byte> block(wire::kBlockHeaderBytes + header.payload_bytes, digits);
  wire::write_block_header(header, std::span(block).first<wire::kBlockHeaderBytes>());
  std::memcpy(block.data() + wire::kBlockHeaderBytes, &scale, scale_bytes);
  return block;
}
// Every byte stands for 14 bytes of zeros: fourteen times what the chunk has.
std::vector<std::byte> expanding_block() {
  return block_of(wire::kBlockZeroRun, wire::block_digit_bytes(kElements), std::byte{255});
}
std::vector<std::byte> good_block() { return block_of(wire::kBlockAllZero, 0, std::byte{0}); }

class BadMember : public ::testing::Test {
 protected:
  // Nothing of the member's is heard while it does not speak.
  BadMember() : cluster(2, {"--peer-timeout", "30s"}) {}

  void SetUp() override {
    ASSERT_TRUE(cluster.running());
    good = Ranks(cluster, {1, 1}, "good");
    ASSERT_EQ(good.join(), "");
    good.tell_all("stream group=g ops=400 tensors=3 large=60000");
    ranks = Ranks(cluster, {1, 1}, "victim");
  }
  void TearDown() override {
    EXPECT_EQ(disagreement(good.replies()), "");
    EXPECT_EQ(disagreement(good.ask_all("stream group=g ops=20")), "");
  }

  std::int64_t count(const std::string& name) {
    return cluster[0].counter(name) + cluster[1].counter(name);
  }

  // A new group of the two ranks and the member, and an op in it that the ranks have submitted.
  std::optional<Op> begin(HostileMember& member, bool announces,
                          std::uint32_t elements = kChunks * kElements) {
    const Reply minted = ranks[0].ask("mint");
    const std::string id = minted.field("id");
    for (const std::size_t rank : {0u, 1u}) {
      ranks[rank].tell("join group=h id=" + id + " size=3 rank=" + std::to_string(rank));
    }
    const std::string problem = member.join(id, ++members, 2, 3);
    EXPECT_EQ(problem, "");
    for (const Reply& reply : ranks.replies()) EXPECT_TRUE(reply.ok()) << reply;
    if (!problem.empty()) return std::nullopt;
    for (const Reply& reply :
         ranks.ask_all("declare group=h name=t role=gradient recipe=3lc:s=1 count=" +
                       std::to_string(elements))) {
      EXPECT_TRUE(reply.ok()) << reply;
    }
    for (const Reply& reply : ranks.ask_all("submit op=x group=h tensor=t data=real")) {
      EXPECT_TRUE(reply.ok()) << reply;
    }
    auto op = member.wait_for_announcements();
    EXPECT_TRUE(op) << "the op was not announced";
    if (op && announces) {
      EXPECT_TRUE(member.announce(*op));
      EXPECT_TRUE(member.wait_for(0, FrameKind::grant)) << "node 0 does not grant";
    }
    return op;
  }

  struct Case {
    const char* name;
    bool announces;  // the member has, as it should, and node 0 has granted
    std::function<void(HostileMember&, Op&)> strike;
    tern_status code;
    const char* says;               // on every rank, and in a daemon's log
    const char* counter;            // goes up by one
    std::uint64_t eager_bytes = 0;  // that the member allows
    std::uint32_t elements = kChunks * kElements;
  };
  // How much the op has: it travels with its announcements, or each owner's chunk does.
  static Case whole(Case one) {
    one.eager_bytes = HostileMember::kChunkBytes;
    one.elements = kSmall;
    return one;
  }
  static Case by_chunks(Case one) {
    one.eager_bytes = HostileMember::kChunkBytes;
    one.elements = 3 * kSmall;
    return one;
  }
  void expect(const Case& one) {
    SCOPED_TRACE(one.name);
    HostileMember member(0, one.eager_bytes);
    auto op = begin(member, one.announces, one.elements);
    ASSERT_TRUE(op);
    const std::int64_t before = count(one.counter);
    one.strike(member, *op);
    for (const Reply& reply : ranks.ask_all("wait op=x")) {
      EXPECT_EQ(reply.code, one.code) << reply;
      EXPECT_THAT(reply.text, HasSubstr(one.says));
    }
    EXPECT_TRUE(eventually([&] { return count(one.counter) > before; })) << one.counter;
    EXPECT_EQ(count(one.counter), before + 1) << one.counter;
    EXPECT_TRUE(cluster[0].logs(one.says)) << one.says;
    for (const Reply& reply : ranks.ask_all("leave group=h")) EXPECT_TRUE(reply.ok()) << reply;
  }

  // A frame of the op to node 0.
  struct Said {
    FrameKind kind;
    std::uint32_t chunk;
    std::span<const std::byte> payload;
  };
  static void send(HostileMember& member, const Op& op, const Said& said) {
    wire::FrameHeader header = op.header;
    header.chunk = said.chunk;
    HostilePeer& lane = member.lane(0);
    lane.send(lane.next(said.kind, header, said.payload));
  }
  // Announces the op to node 0, with these values.
  static void announce(HostileMember& member, const Op& op, std::uint8_t flags,
                       const std::vector<std::byte>& values) {
    wire::AnnounceBody body = op.said;
    body.flags |= flags;
    body.eager_bytes = static_cast<std::uint32_t>(values.size());
    const auto bytes = std::as_bytes(std::span(&body, 1));
    std::vector<std::byte> payload(bytes.begin(), bytes.end());
    payload.insert(payload.end(), values.begin(), values.end());
    send(member, op, {FrameKind::announce, 0, payload});
  }
  static std::uint32_t chunk_of(const HostileMember& member, const Op& op, std::uint32_t owner) {
    return op.chunks_of(owner, member.nodes()).front();
  }

  Cluster cluster;
  Ranks good, ranks;
  std::uint64_t members = 0;
};

TEST_F(BadMember, SendsBlocksThatCannotBeDecoded) {
  const std::vector<Case> cases{
      {"a contribution that expands too far", true,
       [](HostileMember& member, Op& op) {
         send(member, op, {FrameKind::contribution, chunk_of(member, op, 0), expanding_block()});
       },
       TERN_ERR_CORRUPT_DATA, "contribution of node 2", "bad_blocks"},
      {"a result that expands too far", true,
       [](HostileMember& member, Op& op) {
         send(member, op, {FrameKind::result, chunk_of(member, op, 2), expanding_block()});
       },
       TERN_ERR_CORRUPT_DATA, "result of node 2", "bad_blocks"},
      {"a contribution of another chunk's size", true,
       [](HostileMember& member, Op& op) {
         send(member, op,
              {FrameKind::contribution, chunk_of(member, op, 0),
               block_of(wire::kBlockAllZero, 0, std::byte{0}, kElements / 2)});
       },
       TERN_ERR_CORRUPT_DATA, "contribution of node 2", "bad_blocks"},
      {"a contribution that is no block", true,
       [](HostileMember& member, Op& op) {
         send(member, op,
              {FrameKind::contribution, chunk_of(member, op, 0),
               std::vector<std::byte>(100, std::byte{0xa5})});
       },
       TERN_ERR_CORRUPT_DATA, "contribution of node 2", "bad_blocks"},
      {"a payload that does not match its checksum", true,
       [](HostileMember& member, Op& op) {
         wire::FrameHeader header = op.header;
         header.chunk = chunk_of(member, op, 0);
         auto frame = member.lane(0).next(FrameKind::contribution, header, good_block());
         frame.back() ^= std::byte{1};
         member.lane(0).send(frame);
       },
       TERN_ERR_CORRUPT_DATA, "a payload from node 2", "bad_payloads"}};
  for (const Case& one : cases) expect(one);
}

TEST_F(BadMember, BreaksTheProtocolOfAnOp) {
  const std::vector<std::byte> none;
  const auto breaks = [](const char* name, bool announces, auto strike) {
    return Case{name,
                announces,
                strike,
                TERN_ERR_PROTOCOL_ERROR,
                "lost node 2 (127.0.0.1:3, ranks 2)",
                "bad_frames"};
  };
  const std::vector<Case> cases{
      breaks("a contribution that nobody granted", true,
             [](HostileMember& member, Op& op) {
               send(member, op, {FrameKind::contribution, chunk_of(member, op, 1), good_block()});
             }),
      breaks("a contribution before its time", false,
             [](HostileMember& member, Op& op) {
               send(member, op, {FrameKind::contribution, chunk_of(member, op, 0), good_block()});
             }),
      breaks("a contribution larger than any block", true,
             [](HostileMember& member, Op& op) {
               send(member, op,
                    {FrameKind::contribution, chunk_of(member, op, 0),
                     std::vector<std::byte>(2 << 20, std::byte{0})});
             }),
      breaks("a result of another owner's chunk", true,
             [](HostileMember& member, Op& op) {
               send(member, op, {FrameKind::result, chunk_of(member, op, 1), good_block()});
             }),
      breaks("a grant of another owner's chunk", true,
             [&](HostileMember& member, Op& op) {
               wire::FrameHeader header = op.header;
               header.chunk = chunk_of(member, op, 1);
               header.count = 1;
               member.lane(0).send(member.lane(0).next(FrameKind::grant, header, none));
             }),
      breaks("a grant of more than there is", true,
             [&](HostileMember& member, Op& op) {
               wire::FrameHeader header = op.header;
               header.chunk = chunk_of(member, op, 2);
               header.count = 0xffff'ffff;
               member.lane(0).send(member.lane(0).next(FrameKind::grant, header, none));
             }),
      breaks("an announcement of an unknown type", false,
             [](HostileMember& member, Op& op) {
               op.said.dtype = 99;
               send(member, op, {FrameKind::announce, 0, std::as_bytes(std::span(&op.said, 1))});
             }),
      breaks("a failure without a code", true,
             [](HostileMember& member, Op& op) {
               const wire::OpFailBody body{};
               send(member, op, {FrameKind::op_fail, 0, std::as_bytes(std::span(&body, 1))});
             }),
      breaks("checksums that nobody wants", true,
             [](HostileMember& member, Op& op) {
               const wire::VerifyBody body{2, 0};
               send(member, op, {FrameKind::verify, 0, std::as_bytes(std::span(&body, 1))});
             }),
      breaks("a frame in another node's name", true,
             [](HostileMember& member, Op& op) {
               op.header.source_node = 1;
               send(member, op, {FrameKind::contribution, chunk_of(member, op, 0), good_block()});
             }),
      breaks("a frame of another epoch", true, [](HostileMember& member, Op& op) {
        op.header.epoch += 1;
        send(member, op, {FrameKind::contribution, chunk_of(member, op, 0), good_block()});
      })};
  for (const Case& one : cases) expect(one);
}

// Of an op whose contributions come with the announcements, whole or to each owner its chunk.
TEST_F(BadMember, AnnouncesBlocksThatCannotBeDecoded) {
  const auto corrupts = [](const char* name, const std::vector<std::byte>& block) {
    return Case{name,
                false,
                [block](HostileMember& member, Op& op) {
                  announce(member, op, wire::kAnnounceBlock, block);
                },
                TERN_ERR_CORRUPT_DATA,
                "node 2",
                "bad_blocks"};
  };
  const std::vector<Case> cases{
      corrupts(
          "that expands too far",
          block_of(wire::kBlockZeroRun, wire::block_digit_bytes(kSmall), std::byte{255}, kSmall)),
      corrupts("of another size", block_of(wire::kBlockAllZero, 0, std::byte{0}, kSmall - 1)),
      corrupts("that is none", std::vector<std::byte>(100, std::byte{0xa5}))};
  for (Case one : cases) {
    one.says = "what node 2 contributes with its announcement";
    expect(whole(one));
    one.says = "contribution of node 2";
    expect(by_chunks(one));
  }
}

TEST_F(BadMember, BreaksTheProtocolOfASmallOp) {
  const auto breaks = [](const char* name, std::uint8_t flags, std::size_t bytes) {
    return whole({name, false,
                  [flags, bytes](HostileMember& member, Op& op) {
                    announce(member, op, flags, std::vector<std::byte>(bytes));
                  },
                  TERN_ERR_PROTOCOL_ERROR, "lost node 2 (127.0.0.1:3, ranks 2)", "bad_frames"});
  };
  const std::vector<Case> cases{
      breaks("a block shorter than its header", wire::kAnnounceBlock, wire::kBlockHeaderBytes - 1),
      breaks("a block longer than any", wire::kAnnounceBlock, std::size_t{64} << 10),
      breaks("it wants the two legs", 0, 0),
      breaks("elements of another number", 0, sizeof(float) * (kSmall - 1))};
  for (const Case& one : cases) expect(one);
}

// Of an op of which each owner hears its chunk with the announcement.
TEST_F(BadMember, BreaksTheProtocolOfAnnouncedChunks) {
  const auto breaks = [](const char* name, auto strike) {
    return by_chunks({name, false, strike, TERN_ERR_PROTOCOL_ERROR,
                      "lost node 2 (127.0.0.1:3, ranks 2)", "bad_frames"});
  };
  const auto announces = [](std::uint8_t flags, std::size_t bytes) {
    return [flags, bytes](HostileMember& member, Op& op) {
      announce(member, op, flags, std::vector<std::byte>(bytes));
    };
  };
  const std::vector<Case> cases{
      breaks("a block shorter than its header",
             announces(wire::kAnnounceBlock, wire::kBlockHeaderBytes - 1)),
      breaks("a block longer than any", announces(wire::kAnnounceBlock, std::size_t{64} << 10)),
      breaks("nothing of its chunk", announces(0, 0)),
      breaks("elements without a header", announces(0, sizeof(float) * kSmall)),
      breaks("a grant",
             [](HostileMember& member, Op& op) {
               wire::FrameHeader header = op.header;
               header.chunk = chunk_of(member, op, 2);
               header.count = 1;
               member.lane(0).send(
                   member.lane(0).next(FrameKind::grant, header, std::span<const std::byte>()));
             }),
      breaks("a contribution besides", [](HostileMember& member, Op& op) {
        const auto block = block_of(wire::kBlockAllZero, 0, std::byte{0}, kSmall);
        announce(member, op, wire::kAnnounceBlock, block);
        send(member, op, {FrameKind::contribution, chunk_of(member, op, 0), block});
      })};
  for (const Case& one : cases) expect(one);
}

TEST_F(BadMember, SaysWhatIsNotSo) {
  HostileMember member;
  auto op = begin(member, false);
  ASSERT_TRUE(op);
  op->said.count += 1;
  ASSERT_TRUE(member.announce(*op));
  for (const Reply& reply : ranks.ask_all("wait op=x")) {
    EXPECT_EQ(reply.code, TERN_ERR_MISMATCH) << reply;
    EXPECT_THAT(reply.text, HasSubstr("rank 2"));
  }
  // Only that op has failed.
  EXPECT_TRUE(ranks[0].ask("declare group=h name=u count=10").ok());
  for (const Reply& reply : ranks.ask_all("leave group=h")) EXPECT_TRUE(reply.ok()) << reply;
}

// The connection is cut; the link would resume, but the member does not come back.
TEST_F(BadMember, ReplaysAFrameOrStopsInItsMiddle) {
  const auto lost = [](const char* name, auto strike) {
    return Case{name,        true, strike, TERN_ERR_PEER_LOST, "lost node 2 (127.0.0.1:3, ranks 2)",
                "links_lost"};
  };
  const auto contribution = [](HostileMember& member, Op& op) {
    wire::FrameHeader header = op.header;
    header.chunk = chunk_of(member, op, 0);
    return member.lane(0).next(FrameKind::contribution, header, good_block());
  };
  const std::vector<Case> cases{lost("the same frame twice",
                                     [&](HostileMember& member, Op& op) {
                                       const auto frame = contribution(member, op);
                                       member.lane(0).send(frame);
                                       member.lane(0).send(frame);
                                     }),
                                lost("half a frame", [&](HostileMember& member, Op& op) {
                                  const auto frame = contribution(member, op);
                                  member.lane(0).send(std::span(frame).first(frame.size() - 7));
                                  member.lane(0).shut();
                                })};
  for (const Case& one : cases) expect(one);
}

}  // namespace
}  // namespace tern::e2e
