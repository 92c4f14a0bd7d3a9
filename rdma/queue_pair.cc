// The set-up of a DataPath.

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "rdma/data_path.h"

namespace tern::rdma {
namespace {

// Room for copies of heads, and of bodies that are not registered, that are under way.
constexpr std::size_t kStagingBytes = 512 << 10;
static_assert(kStagingBytes >= 2 * std::size_t{64 << 10});

constexpr std::uint8_t kForever = 7;       // retries when the peer has no slot: credits prevent it
constexpr std::uint8_t kWaitForSlot = 12;  // 0.64 ms between these
constexpr std::uint8_t kHopLimit = 64;

std::uint32_t random_packet_number() {
  std::uint32_t number = 0;
  TERN_CHECK(::getrandom(&number, sizeof number, 0) == sizeof number);
  return number & 0xffffff;
}

std::string mtu_text(std::uint8_t mtu) { return std::to_string(128u << mtu); }

}  // namespace

std::size_t DataPath::staging_bytes() const noexcept {
  return std::max(kStagingBytes, 4 * std::size_t{slot_bytes_});
}

DataPath::DataPath(std::shared_ptr<Device> device, const RdmaSettings& settings, LaneMemory& memory)
    : device_(std::move(device)), settings_(settings), memory_(memory) {
  constexpr std::size_t kPage = 4096;
  slot_bytes_ = std::min(settings_.slot_bytes + kHeadRoom, wire::kMaxRdmaSlotBytes);
  slot_stride_ = (slot_bytes_ + kPage - 1) / kPage * kPage;
}

Result<std::shared_ptr<DataPath>> DataPath::create(std::shared_ptr<Device> device,
                                                   const RdmaSettings& settings,
                                                   LaneMemory& memory) {
  std::shared_ptr<DataPath> path(new DataPath(std::move(device), settings, memory));
  for (const auto step : {&DataPath::create_memory, &DataPath::create_queues}) {
    if (const Status done = (path.get()->*step)(); !done) return tl::unexpected(done.error());
  }
  return path;
}

Status DataPath::create_memory() {
  const std::size_t slot_count = settings_.receive_slots + kSpareSlots;
  slots_ = Mapping::make(slot_count * slot_stride_);
  staging_ = Mapping::make(staging_bytes());
  if (slots_.bytes().empty() || staging_.bytes().empty()) {
    return tern::fail(Errc::out_of_memory, "no memory for the buffers of an RDMA connection");
  }
  auto slots = device_->register_memory(slots_.bytes().data(), slots_.bytes().size(),
                                        IBV_ACCESS_LOCAL_WRITE);
  if (!slots) return tl::unexpected(slots.error());
  slots_region_ = std::move(*slots);
  auto staging = device_->register_memory(staging_.bytes().data(), staging_.bytes().size(), 0);
  if (!staging) return tl::unexpected(staging.error());
  staging_region_ = std::move(*staging);
  return {};
}

Status DataPath::create_queues() {
  const std::uint32_t slot_count = settings_.receive_slots + kSpareSlots;
  send_depth_ = std::min(kSendDepth, device_->max_queue_depth());
  if (slot_count > device_->max_queue_depth()) {
    return tern::fail(Errc::invalid_argument, device_->name() + " has queues of " +
                                                  std::to_string(device_->max_queue_depth()) +
                                                  " messages: lower rdma_receive_slots");
  }
  completions_.reset(ibv_create_cq(device_->context(), static_cast<int>(slot_count + send_depth_),
                                   this, device_->channel(), 0));
  if (!completions_) {
    return fail_errno(Errc::io_error, device_->name() + " gives no completion queue", errno);
  }
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = completions_.get();
  attributes.cap.max_send_wr = send_depth_;
  attributes.cap.max_recv_wr = slot_count;
  attributes.cap.max_send_sge = kMaxSges;
  attributes.cap.max_recv_sge = 1;
  attributes.qp_type = IBV_QPT_RC;
  // A device that carries less inline makes no queue pair, and tells its limit nowhere.
  const ibv_qp_cap wanted = attributes.cap;
  for (std::uint32_t bytes = kInlineBytes; !pair_; bytes = bytes > 32 ? bytes / 2 : 0) {
    attributes.cap = wanted;
    attributes.cap.max_inline_data = bytes;
    pair_.reset(ibv_create_qp(device_->domain(), &attributes));
    if (!pair_ && bytes == 0) {
      return fail_errno(Errc::io_error, device_->name() + " gives no queue pair", errno);
    }
  }
  inline_bytes_ = std::min(attributes.cap.max_inline_data, kInlineBytes);

  posted_.resize(send_depth_ + 1);
  arrived_.resize(slot_count);
  free_slots_.reserve(slot_count);
  for (std::uint32_t slot = 0; slot < slot_count; ++slot) free_slots_.push_back(slot);
  describe_itself();

  ibv_qp_attr initial{};
  initial.qp_state = IBV_QPS_INIT;
  initial.port_num = device_->port();
  initial.qp_access_flags = 0;  // the peer may neither read nor write any memory
  if (const int error =
          ibv_modify_qp(pair_.get(), &initial,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
      error != 0) {
    return fail_errno(Errc::io_error, device_->name() + ": the queue pair cannot be set up", error);
  }
  repost();
  if (has_failed()) return tern::fail(Errc::io_error, failure_);
  return {};
}

void DataPath::describe_itself() {
  wire::RdmaBody& body = local_;
  gid_index_ = device_->gid_index();
  body.gid_type = static_cast<std::uint8_t>(device_->gid_type());
  body.mtu = static_cast<std::uint8_t>(device_->mtu());
  body.qp_number = pair_->qp_num;
  body.packet_number = random_packet_number();
  body.lid = device_->lid();
  std::memcpy(body.gid.data(), device_->gid().raw, body.gid.size());
  body.receive_slots = settings_.receive_slots;
  body.slot_bytes = slot_bytes_;
  body.features =
      wire::kRdmaMarks | wire::kRdmaProbes | (settings_.payload_crc ? 0 : wire::kRdmaNoPayloadCrc);
}

ibv_qp_attr DataPath::path_to(const wire::RdmaBody& remote) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(local_.mtu, remote.mtu));
  attributes.dest_qp_num = remote.qp_number;
  attributes.rq_psn = remote.packet_number;
  attributes.min_rnr_timer = kWaitForSlot;
  attributes.ah_attr.port_num = device_->port();
  attributes.ah_attr.sl = settings_.service_level;
  attributes.ah_attr.dlid = remote.lid;
  attributes.ah_attr.is_global = 1;
  std::memcpy(attributes.ah_attr.grh.dgid.raw, remote.gid.data(), remote.gid.size());
  attributes.ah_attr.grh.sgid_index = gid_index_;
  attributes.ah_attr.grh.hop_limit = kHopLimit;
  attributes.ah_attr.grh.traffic_class = settings_.traffic_class;
  return attributes;
}

Status DataPath::start(const wire::RdmaBody& remote) {
  if (remote.gid_type != local_.gid_type) {
    return tern::fail(
        Errc::mismatch,
        "the GIDs of the two ends are of different kinds (InfiniBand, RoCE v1 or RoCE "
        "v2): set rdma_gid_index on both nodes");
  }
  remote_slots_ = remote.receive_slots;
  remote_marks_ = (remote.features & wire::kRdmaMarks) != 0;
  expects_probe_ = remote_probes_ = (remote.features & wire::kRdmaProbes) != 0;
  remote_slot_bytes_ = std::min(remote.slot_bytes, slot_bytes_);
  ibv_qp_attr attributes = path_to(remote);
  path_mtu_ = attributes.path_mtu;
  int error = ibv_modify_qp(pair_.get(), &attributes,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) {
    return fail_errno(Errc::unreachable,
                      device_->name() +
                          " cannot address the peer's GID: check that both devices are on one "
                          "network, rdma_gid_index, and that the path carries packets of " +
                          mtu_text(remote.mtu) + " bytes",
                      error);
  }
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = local_.packet_number;
  attributes.timeout = settings_.timeout;
  attributes.retry_cnt = settings_.retry_count;
  attributes.rnr_retry = kForever;
  error = ibv_modify_qp(pair_.get(), &attributes,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) {
    return fail_errno(Errc::io_error, device_->name() + ": the queue pair cannot send", error);
  }
  return {};
}

}  // namespace tern::rdma
