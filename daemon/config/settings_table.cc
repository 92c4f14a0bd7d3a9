#include <array>

#include "daemon/config/settings.h"

namespace tern::daemon {
namespace {

using Kind = SettingKind;

constexpr std::uint64_t kKiB = 1ULL << 10;
constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kGiB = 1ULL << 30;
constexpr std::uint64_t kTiB = 1ULL << 40;
constexpr std::uint64_t kUs = 1'000;
constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kHour = 3'600 * kSecond;
constexpr std::uint64_t kDay = 24 * kHour;
// The longest path of a Unix socket: sizeof(sockaddr_un::sun_path) less the zero.
constexpr std::uint64_t kSocketPath = 107;

enum class Reload : bool { no, yes };
constexpr Reload kRestart = Reload::no;
constexpr Reload kReload = Reload::yes;

constexpr Setting number(std::string_view section, std::string_view name, Kind kind,
                         SettingField field, std::uint64_t min, std::uint64_t max, Reload reload,
                         std::string_view help) {
  return {section, name, kind, field, min, max, "", false, reload == Reload::yes, help};
}

constexpr Setting power(std::string_view section, std::string_view name, SettingField field,
                        std::uint64_t min, std::uint64_t max, Reload reload,
                        std::string_view help) {
  return {section, name, Kind::size, field, min, max, "", true, reload == Reload::yes, help};
}

constexpr Setting choice(std::string_view section, std::string_view name, SettingField field,
                         std::string_view choices, Reload reload, std::string_view help) {
  return {section, name, Kind::choice, field, 0, 0, choices, false, reload == Reload::yes, help};
}

constexpr Setting plain(std::string_view section, std::string_view name, Kind kind,
                        SettingField field, Reload reload, std::string_view help) {
  return {section, name, kind, field, 0, 0, "", false, reload == Reload::yes, help};
}

constexpr std::array kSettings{
    number("network", "listen", Kind::endpoint, &Config::listen, 1, 0, kRestart,
           "Address for the daemons of other nodes; port 0 lets the kernel choose."),
    number("network", "advertise", Kind::endpoint, &Config::advertise, 0, 0, kRestart,
           "Address that other nodes are told; empty: as listen. Port 0: the port that listens."),
    choice("network", "transport", &Config::transport, "auto|tcp|rdma", kRestart,
           "How tensors travel between nodes; auto: over RDMA where both ends can, else over TCP."),
    number("network", "peer_transports", Kind::text, &Config::peer_transports, 0, 4'000, kRestart,
           "Exceptions from transport by address of the peer: 10.0.0.7=tcp,10.0.0.8=rdma."),
    number("network", "handshake_timeout", Kind::duration, &Config::handshake_timeout_ns, 10 * kMs,
           600 * kSecond, kRestart, "A client or peer that has not said hello by then is dropped."),
    number("network", "peer_timeout", Kind::duration, &Config::peer_timeout_ns, 10 * kMs,
           3'600 * kSecond, kRestart, "A peer that is silent for so long is taken for lost."),
    number("network", "resume_timeout", Kind::duration, &Config::resume_timeout_ns, 0,
           3'600 * kSecond, kRestart,
           "A broken link may be re-opened for so long before its operations fail; 0: never."),
    number("network", "heartbeat", Kind::duration, &Config::heartbeat_ns, kMs, 600 * kSecond,
           kRestart,
           "An idle link carries a sign of life this often; at most half of peer_timeout."),
    number("network", "socket_send_buffer", Kind::size, &Config::socket_send_buffer_bytes, 0, kGiB,
           kRestart, "Kernel buffer of each link for sending; 0: the kernel decides."),
    number("network", "socket_receive_buffer", Kind::size, &Config::socket_receive_buffer_bytes, 0,
           kGiB, kRestart, "Kernel buffer of each link for receiving; 0: the kernel decides."),

    choice("security", "peer_security", &Config::peer_security, "local|tls|key|plaintext", kRestart,
           "How nodes know each other: tls by certificates, key by a key that all share, plaintext "
           "not at all; local: plaintext too, but only while listen is on this machine."),
    number("security", "tls_ca_file", Kind::text, &Config::tls_ca_file, 0, 4'000, kReload,
           "Certificates of the cluster's authorities, in PEM; only who they vouch for is a peer."),
    number("security", "tls_certificate_file", Kind::text, &Config::tls_certificate_file, 0, 4'000,
           kReload, "This node's certificate, in PEM; its names include the host of advertise."),
    number("security", "tls_key_file", Kind::text, &Config::tls_key_file, 0, 4'000, kReload,
           "The certificate's private key, in PEM; closed to other users."),
    number("security", "cluster_key_file", Kind::text, &Config::cluster_key_file, 0, 4'000, kReload,
           "Keys of 64 hexadecimal digits, a line each: the first is offered, each is accepted."),
    plain("security", "rdma_unencrypted", Kind::flag, &Config::rdma_unencrypted, kRestart,
          "Allows RDMA, which never encrypts tensors, although peer_security is tls or key."),

    number(
        "rdma", "rdma_devices", Kind::text, &Config::rdma_devices, 0, 1'000, kRestart,
        "Devices, with commas, each perhaps with :port; lanes are striped over them; empty: all."),
    number(
        "rdma", "rdma_gid_index", Kind::count, &Config::rdma_gid_index, 0, 255, kRestart,
        "Row of the port's GID table; 255: the best, RoCE v2 with an IPv4 address before others."),
    number("rdma", "rdma_mtu", Kind::size, &Config::rdma_mtu_bytes, 0, 4'096, kRestart,
           "Payload of a packet, at most; 0: what the port is set to. The smaller of two ends "
           "counts."),
    number("rdma", "rdma_service_level", Kind::count, &Config::rdma_service_level, 0, 15, kRestart,
           "InfiniBand service level; on RoCE the priority of lossless traffic."),
    number("rdma", "rdma_traffic_class", Kind::count, &Config::rdma_traffic_class, 0, 255, kRestart,
           "Traffic class of the packets; on RoCE v2 the IP header's DSCP times four."),
    number("rdma", "rdma_timeout_exponent", Kind::count, &Config::rdma_timeout_exponent, 1, 31,
           kRestart, "A packet is sent again after 4.096 us times two to this power."),
    number("rdma", "rdma_retry_count", Kind::count, &Config::rdma_retry_count, 0, 7, kRestart,
           "A packet is sent again so often before its queue pair fails and TCP takes over; to "
           "Soft-RoCE 7 means for ever."),
    number("rdma", "rdma_receive_slots", Kind::count, &Config::rdma_receive_slots, 8, 4'096,
           kRestart, "Buffers of each connection for what arrives."),
    power("rdma", "rdma_slot_bytes", &Config::rdma_slot_bytes, 4 * kKiB, kMiB, kRestart,
          "Size of such a buffer; a frame is cut into pieces of it."),
    number("rdma", "rdma_max_registered", Kind::size, &Config::rdma_max_registered_bytes, 0,
           1'024 * kTiB, kRestart,
           "Memory of clients and lanes that each lane may register; frames beyond are copied."),
    plain("rdma", "rdma_payload_crc", Kind::flag, &Config::rdma_payload_crc, kRestart,
          "Checks payloads that come over RDMA; off on both ends: queue pairs alone protect them."),
    number("rdma", "rdma_retry", Kind::duration, &Config::rdma_retry_ns, 10 * kMs, kDay, kRestart,
           "After a failure RDMA is tried again so much later."),

    number("local", "socket", Kind::text, &Config::socket, 1, kSocketPath, kRestart,
           "Path of the socket on which clients connect."),
    plain("local", "socket_mode", Kind::mode, &Config::socket_mode, kRestart,
          "File mode of socket: who may connect at all."),
    number("local", "control_socket", Kind::text, &Config::control_socket, 1, kSocketPath, kRestart,
           "Path of the socket of ternctl."),
    plain("local", "control_socket_mode", Kind::mode, &Config::control_socket_mode, kRestart,
          "File mode of control_socket: who may ask at all; users see their own jobs."),
    number("local", "observers", Kind::text, &Config::observers, 0, 4'000, kReload,
           "Users, and with @ groups, that see the jobs of all users: alice, 1000, @gpu, @1001."),
    number("local", "administrators", Kind::text, &Config::administrators, 0, 4'000, kReload,
           "The same for those that may also change the policy; root and the daemon's user may."),
    plain("local", "allowed_uids", Kind::id_list, &Config::allowed_uids, kReload,
          "Users that may connect; with allowed_gids also empty: all."),
    plain("local", "allowed_gids", Kind::id_list, &Config::allowed_gids, kReload,
          "Groups whose members may connect; with allowed_uids also empty: all."),

    number("lanes", "lanes", Kind::count, &Config::lanes, 1, 16, kRestart,
           "Data threads; chunks are striped over them."),
    plain("lanes", "pin_lanes", Kind::flag, &Config::pin_lanes, kRestart,
          "Binds each lane to a core of the daemon's affinity mask."),
    number("lanes", "spin", Kind::duration, &Config::spin_ns, 0, 100'000 * kUs, kRestart,
           "An idle lane polls for so long before it sleeps; never when cores are few."),
    number("lanes", "send_slabs", Kind::count, &Config::send_slabs, 16, 65'536, kRestart,
           "Buffers of each lane for blocks that are sent; each has room for the largest block."),
    number("lanes", "receive_slabs", Kind::count, &Config::receive_slabs, 16, 65'536, kRestart,
           "Buffers of each lane for blocks that arrive before their turn."),
    number("lanes", "result_slabs", Kind::count, &Config::result_slabs, 16, 65'536, kRestart,
           "Buffers of each lane for encoded results until every peer has them."),

    power("ops", "chunk_bytes", &Config::chunk_bytes, 16 * kKiB, 4 * kMiB, kRestart,
          "Slice of a tensor that is encoded and sent as one; agreed when a group is joined."),
    number(
        "ops", "eager_bytes", Kind::size, &Config::eager_bytes, 0, 64 * kKiB, kRestart,
        "Operations up to this size, and up to chunk_bytes, that no recipe compresses travel with "
        "their announcement. With N nodes the limit is this by N - 1, but not below 8 KiB."),
    number("ops", "max_ops_in_flight", Kind::count, &Config::max_ops_in_flight, 1, 512, kRestart,
           "Operations of one group under way at a time; how far ranks may be apart."),
    number("ops", "op_timeout", Kind::duration, &Config::op_timeout_ns, 10 * kMs, 7 * kDay, kReload,
           "An operation that not all ranks submit within this time fails everywhere."),
    number("ops", "join_timeout_max", Kind::duration, &Config::join_timeout_max_ns, kSecond,
           7 * kDay, kReload,
           "The longest time that a client may ask to wait for the ranks of its group."),
    plain("ops", "verify", Kind::flag, &Config::verify, kReload,
          "Compares the results' checksums across ranks in every group, asked for or not."),

    number("codec", "kernel_target", Kind::text, &Config::kernel_target, 1, 31, kRestart,
           "Instruction set of the codecs: auto takes the best, scalar the plainest."),
    number("codec", "default_gradient_recipe", Kind::text, &Config::default_gradient_recipe, 1, 63,
           kReload, "Recipe of gradients and deltas that are declared without one."),
    number(
        "codec", "codebook_dir", Kind::text, &Config::codebook_dir, 0, 4'000, kRestart,
        "Directory of the static Huffman codebooks, *.book; the same on all nodes; empty: none."),
    number("codec", "lossy_min_bytes", Kind::size, &Config::lossy_min_bytes, 0, kGiB, kReload,
           "Tensors smaller than this travel raw whatever their recipe says."),
    number("codec", "state_ttl", Kind::duration, &Config::state_ttl_ns, 0, 30 * kDay, kReload,
           "Codec state is kept for so long after the last rank of its job has left."),

    number(
        "tuner", "candidates", Kind::text, &Config::candidates, 0, 2'000, kRestart,
        "Recipes that auto chooses among, separated by spaces, raw first; empty: the usual ones."),
    number("tuner", "policy", Kind::text, &Config::policy, 0, 4'000, kReload,
           "Rules for tensors that say nothing of their own: PATTERN what ...; PATTERN what ..."),
    number("tuner", "choice_directory", Kind::text, &Config::choice_directory, 0, 4'000, kRestart,
           "Where each epoch's log of choices goes, for recipe=replay:FILE; empty: none is kept."),
    number("tuner", "state_directory", Kind::text, &Config::state_directory, 0, 4'000, kRestart,
           "Where what the tuner has learnt is kept across restarts; empty: in $STATE_DIRECTORY, "
           "else nowhere."),

    number("limits", "max_clients", Kind::count, &Config::max_clients, 1, 4'096, kReload,
           "Connected local processes."),
    number("limits", "max_clients_per_user", Kind::count, &Config::max_clients_per_user, 1, 4'096,
           kReload, "Connected local processes of one user."),
    number("limits", "max_groups", Kind::count, &Config::max_groups, 1, 4'096, kReload,
           "Groups with a rank on this node."),
    number("limits", "max_groups_per_user", Kind::count, &Config::max_groups_per_user, 1, 4'096,
           kReload, "Groups with a rank of one user on this node."),
    number("limits", "max_tensors", Kind::count, &Config::max_tensors, 1, 1'048'576, kReload,
           "Declared tensors in all groups together."),
    number("limits", "max_tensors_per_user", Kind::count, &Config::max_tensors_per_user, 1,
           1'048'576, kReload, "Declared tensors in all groups of one user together."),
    number("limits", "max_ops_in_flight_per_user", Kind::count, &Config::max_ops_in_flight_per_user,
           1, 1'048'576, kReload,
           "Operations under way that the groups of one user have agreed on, together; at least "
           "max_ops_in_flight, which each of them reserves."),
    number("limits", "max_links_per_user", Kind::count, &Config::max_links_per_user, 0, 1'048'576,
           kReload,
           "Links that the groups of one user take: for each, its lanes times its other nodes."),
    number("limits", "max_arena_bytes", Kind::size, &Config::max_arena_bytes, kMiB, 1'024 * kTiB,
           kReload, "Arenas of one user together."),
    number("limits", "max_state_bytes", Kind::size, &Config::max_state_bytes, 0, 1'024 * kTiB,
           kReload, "Codec state of one user together."),

    choice("diagnostics", "log_level", &Config::log_level, "error|warning|info|debug", kReload,
           "The least severe lines that are logged."),
    number(
        "diagnostics", "metrics_listen", Kind::endpoint, &Config::metrics_listen, 0, 0, kRestart,
        "Address on which Prometheus may fetch metrics by HTTP, without encryption; empty: none."),
    number("diagnostics", "flight_directory", Kind::text, &Config::flight_directory, 0, 4'000,
           kReload,
           "Where the flight recorder writes; empty: in $STATE_DIRECTORY, else beside "
           "control_socket."),
};

}  // namespace

std::span<const Setting> settings() { return kSettings; }

}  // namespace tern::daemon
