// A peer that has verbs and no manners: what it sends of its queue pair, and over it. The side
// under test is the accepting one; the other is made by hand.

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "net/tcp/tcp_transport.h"
#include "rdma/rdma_transport.h"
#include "tests/net/transport_conformance.h"
#include "tests/rdma/verbs_under_test.h"

namespace tern::rdma {
namespace {

constexpr int kRounds = 20'000;

// The hostile end: a plain TCP connection that speaks the set-up itself, and a queue pair of its
// own.
class HostilePeer : public ::testing::Test, private net::ConnectionSink {
 protected:
  void SetUp() override {
    auto made = net::TcpAcceptor::create(loop_, clock_, {{"127.0.0.1", 0}}, accepted_);
    ASSERT_TRUE(made) << made.error().text;
    acceptor_ = std::move(*made);
    accepted_.take = [this](std::unique_ptr<net::Incoming> incoming, const wire::HelloBody&) {
      victim_ = rdma_.adopt(std::move(incoming), sink_);
    };
    auto device = Device::open(verbs_->settings());
    ASSERT_TRUE(device) << device.error().text;
    device_ = std::move(*device);
    connection_ = tcp_.connect(acceptor_->endpoint(), *this);
    ASSERT_TRUE(until([&] { return offered_; }));
  }
  void TearDown() override {
    pair_.reset();
    connection_.reset();
    victim_.reset();
  }

  bool until(const std::function<bool()>& done) {
    for (int i = 0; i < kRounds; ++i) {
      if (done()) return true;
      acceptor_->poll();
      tcp_.poll();
      rdma_.poll();
      if (rdma_.prepare_sleep()) loop_.wait(500'000);
    }
    return done();
  }

  // The queue pair of the hostile end, joined to the offer's.
  void make_pair() {
    completions_.reset(ibv_create_cq(device_->context(), 256, nullptr, nullptr, 0));
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = completions_.get();
    attributes.cap = {128, 16, 1, 1, 0};
    attributes.qp_type = IBV_QPT_RC;
    pair_.reset(ibv_create_qp(device_->domain(), &attributes));
    ASSERT_TRUE(pair_);
    memory_.resize(1 << 20);
    auto region = device_->register_memory(memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE);
    ASSERT_TRUE(region);
    region_ = std::move(*region);
    ibv_qp_attr step{};
    step.qp_state = IBV_QPS_INIT;
    step.port_num = device_->port();
    ASSERT_EQ(ibv_modify_qp(pair_.get(), &step,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              0);
    for (std::uint64_t i = 0; i < 16; ++i) {
      ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory_.data()), 65536, region_->lkey};
      ibv_recv_wr request{i, nullptr, &sge, 1};
      ibv_recv_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_recv(pair_.get(), &request, &bad), 0);
    }
    step = {};
    step.qp_state = IBV_QPS_RTR;
    step.path_mtu = device_->mtu();
    step.dest_qp_num = offer_.qp_number;
    step.rq_psn = offer_.packet_number;
    step.min_rnr_timer = 12;
    step.ah_attr.port_num = device_->port();
    step.ah_attr.is_global = 1;
    std::memcpy(step.ah_attr.grh.dgid.raw, offer_.gid.data(), offer_.gid.size());
    step.ah_attr.grh.sgid_index = device_->gid_index();
    step.ah_attr.grh.hop_limit = 64;
    ASSERT_EQ(ibv_modify_qp(pair_.get(), &step,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              0);
    step = {};
    step.qp_state = IBV_QPS_RTS;
    step.sq_psn = 5;
    step.timeout = 10;
    step.retry_cnt = 3;
    step.rnr_retry = 3;
    ASSERT_EQ(ibv_modify_qp(pair_.get(), &step,
                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
              0);
  }
  wire::RdmaBody own_body() const {
    wire::RdmaBody body = offer_;
    body.qp_number = pair_->qp_num;
    body.packet_number = 5;
    body.receive_slots = 16;
    return body;
  }
  void send_setup(const wire::RdmaBody& body) {
    frame_ = wire::make_rdma(wire::FrameKind::rdma_accept, body);
    connection_->send({std::as_bytes(std::span(&frame_, 1)), {}});
  }
  void accept() {
    make_pair();
    send_setup(own_body());
    // The victim's probe, and an answer.
    ibv_wc probe{};
    ASSERT_TRUE(until([&] { return ibv_poll_cq(completions_.get(), 1, &probe) == 1; }));
    ASSERT_EQ(probe.status, IBV_WC_SUCCESS);
    EXPECT_EQ(probe.byte_len, 128u << device_->mtu()) << "it is no packet as large as any";
    post(probe.byte_len, 0);
    ASSERT_TRUE(until([&] { return ready_; }));
    EXPECT_STREQ(victim_->carriage().name, "rdma");
  }
  void post(std::uint32_t bytes, std::uint32_t consumed,
            ibv_wr_opcode opcode = IBV_WR_SEND_WITH_IMM) {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory_.data()), bytes, region_->lkey};
    ibv_send_wr request{};
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = opcode;
    request.imm_data = htonl(consumed);
    request.send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
    request.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(target_.data());
    request.wr.rdma.rkey = 0x100;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(pair_.get(), &request, &bad), 0);
  }
  void expect_closed(const char* text) {
    ASSERT_TRUE(until([&] { return sink_.closed == 1; }));
    EXPECT_NE(sink_.closed_text.find(text), std::string::npos) << sink_.closed_text;
    EXPECT_TRUE(sink_.payloads.empty());
  }

  void on_open(net::Connection& connection) override {
    wire::HelloBody body;
    body.node = {9, 9};
    body.session = 1;
    body.features = wire::kFeatureRdma;
    hello_ = wire::make_hello(wire::FrameKind::hello, body);
    connection.send({std::as_bytes(std::span(&hello_, 1)), {}});
  }
  bool on_header(net::Connection&, const wire::FrameHeader& header,
                 net::PayloadPlace& place) override {
    payload_.resize(header.payload_bytes);
    place.body = payload_;
    return true;
  }
  void on_frame(net::Connection&, const wire::FrameHeader& header, const net::PayloadPlace&,
                bool) override {
    const auto kind = static_cast<wire::FrameKind>(header.kind);
    if (kind == wire::FrameKind::rdma_offer) {
      const wire::ParsedRdma parsed = wire::parse_rdma(header, payload_);
      EXPECT_EQ(parsed.error, wire::RdmaError::none);
      offer_ = parsed.body;
      offered_ = true;
    }
    if (kind == wire::FrameKind::rdma_ready) ready_ = true;
    if (kind == wire::FrameKind::rdma_decline) declined_ = true;
  }
  void on_closed(net::Connection&, Errc, const char*) override {}

  SteadyClock clock_;
  std::unique_ptr<VerbsUnderTest> verbs_ = VerbsUnderTest::make();
  net::EventLoop loop_;
  net::TcpTransport tcp_{loop_, {}};
  net::TcpTransport victim_tcp_{loop_, {}};
  RdmaTransport rdma_{victim_tcp_, loop_, clock_, verbs_->settings()};
  net::RecordingAcceptorSink accepted_;
  std::unique_ptr<net::Acceptor> acceptor_;
  net::RawSink sink_;
  std::unique_ptr<net::Connection> victim_;

  std::unique_ptr<net::Connection> connection_;
  wire::HelloFrame hello_;
  wire::RdmaFrame frame_;
  std::vector<std::byte> payload_;
  wire::RdmaBody offer_;
  bool offered_ = false, ready_ = false, declined_ = false;
  std::vector<std::byte> memory_;
  std::vector<std::byte> target_ = std::vector<std::byte>(4096, std::byte{7});
  std::shared_ptr<Device> device_;
  MemoryRegion region_;
  CompletionQueue completions_;
  QueuePair pair_;
};

TEST_F(HostilePeer, AbsurdLimitsAreRefused) {
  make_pair();
  wire::RdmaBody body = own_body();
  body.receive_slots = 0xffffffff;
  send_setup(body);
  expect_closed("absurd limits");
}

TEST_F(HostilePeer, AForeignVersionIsRefused) {
  make_pair();
  wire::RdmaBody body = own_body();
  body.version = 9;
  send_setup(body);
  expect_closed("another version of RDMA");
}

// Of an earlier version, rather.
TEST_F(HostilePeer, APeerThatKnowsNoProbesIsSentAnEmptyMessage) {
  make_pair();
  wire::RdmaBody body = own_body();
  body.features &= ~wire::kRdmaProbes;
  send_setup(body);
  ASSERT_TRUE(until([&] { return ready_; }));
  ibv_wc first{};
  ASSERT_EQ(ibv_poll_cq(completions_.get(), 1, &first), 1);
  EXPECT_EQ(first.byte_len, 0u);
  EXPECT_STREQ(victim_->carriage().name, "rdma");
}

TEST_F(HostilePeer, AGidOfAnotherKindLeavesTheConnectionOnTcp) {
  make_pair();
  wire::RdmaBody body = own_body();
  body.gid_type = static_cast<std::uint8_t>(wire::GidType::roce_v1);
  send_setup(body);
  ASSERT_TRUE(until([&] { return declined_; }));
  EXPECT_STREQ(victim_->carriage().name, "tcp");
  EXPECT_NE(std::string(victim_->carriage().note).find("rdma_gid_index"), std::string::npos);
}

TEST_F(HostilePeer, AQueuePairThatIsNotThereLeavesTheConnectionOnTcp) {
  make_pair();
  wire::RdmaBody body = own_body();
  body.qp_number = 0xfffffe;
  send_setup(body);
  ASSERT_TRUE(until([&] { return declined_ || sink_.closed == 1; }));
  EXPECT_FALSE(ready_);
  EXPECT_EQ(rdma_.counters().opened, 0u);
}

TEST_F(HostilePeer, AMessageLongerThanItsSlotClosesTheConnection) {
  accept();
  post(offer_.slot_bytes + 1, 0);
  expect_closed("RDMA failed");
}

TEST_F(HostilePeer, AWriteToMemoryThatWasNeverGrantedChangesNothing) {
  accept();
  post(64, 0, IBV_WR_RDMA_WRITE);
  expect_closed("RDMA failed");
  EXPECT_EQ(target_, std::vector<std::byte>(4096, std::byte{7}));
}

TEST_F(HostilePeer, ConsumingWhatWasNotSentClosesTheConnection) {
  accept();
  post(0, 1000);
  expect_closed("consumed more than was sent");
}

TEST_F(HostilePeer, AMessageWithoutItsCountClosesTheConnection) {
  accept();
  post(88, 0, IBV_WR_SEND);
  expect_closed("without its count");
}

TEST_F(HostilePeer, BytesThatAreNoFrameCloseTheConnection) {
  accept();
  post(4096, 0);
  ASSERT_TRUE(until([&] { return sink_.closed == 1; }));
  EXPECT_EQ(sink_.closed_reason, Errc::corrupt_data) << sink_.closed_text;
}

TEST_F(HostilePeer, AMessageBeyondTheEndOfItsFrameClosesTheConnection) {
  accept();
  wire::FrameHeader header = net::block_header(1);
  header.payload_bytes = 10;
  wire::seal_frame_header(header);
  std::memcpy(memory_.data(), &header, sizeof header);
  post(sizeof header + 11, 0);
  expect_closed("beyond the end");
}

TEST_F(HostilePeer, MoreMessagesThanWereGrantedHurtTheSenderAlone) {
  accept();
  wire::FrameHeader header = net::block_header(1);
  header.payload_bytes = 1 << 20;
  wire::seal_frame_header(header);
  std::memcpy(memory_.data(), &header, sizeof header);
  // Nobody polls the victim meanwhile, so that nothing is posted anew.
  for (std::uint32_t i = 0; i < offer_.receive_slots + 40; ++i) post(sizeof header, 0);
  bool refused = false;
  for (int i = 0; i < kRounds && !refused; ++i) {
    ibv_wc done;
    if (ibv_poll_cq(completions_.get(), 1, &done) == 1) refused = done.status != IBV_WC_SUCCESS;
    if (!refused) loop_.wait(500'000);
  }
  EXPECT_TRUE(refused);
}

TEST_F(HostilePeer, AFrameOnTheControlConnectionAfterTheMoveClosesIt) {
  accept();
  wire::FrameHeader header = net::block_header(1);
  wire::seal_frame_header(header);
  connection_->send({std::as_bytes(std::span(&header, 1)), {}});
  ASSERT_TRUE(until([&] { return sink_.closed == 1; }));
}

// Verbs fail while the connection below lives.
TEST_F(HostilePeer, AQueuePairThatVanishesFailsOver) {
  accept();
  pair_.reset();
  const wire::FrameHeader header = net::block_header(1);
  victim_->send({std::as_bytes(std::span(&header, 1)), {}});
  expect_closed("RDMA failed");
  EXPECT_EQ(rdma_.counters().failovers, 1u);
}

TEST_F(HostilePeer, ASecondAcceptClosesTheConnection) {
  accept();
  send_setup(own_body());
  expect_closed("order of the RDMA set-up");
}

}  // namespace
}  // namespace tern::rdma
