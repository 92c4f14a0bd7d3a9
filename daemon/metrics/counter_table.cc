#include "daemon/metrics/counter_table.h"

#include <algorithm>
#include <array>
#include <string>

#include "counters/kind_names.h"
#include "counters/turn_bounds.h"
#include "plan/plans.h"

namespace tern::daemon {
namespace {

using counters::CounterText;
using counters::Kind;
using Conductor = ConductorCounters;

constexpr std::array kOfConductor{
    CounterRow<Conductor>{{"clients_accepted", "1", "clients that completed the hand-shake"},
                          &Conductor::clients_accepted},
    CounterRow<Conductor>{{"clients_refused", "1", "clients refused by policy, quota or version"},
                          &Conductor::clients_refused},
    CounterRow<Conductor>{{"clients_lost", "1", "clients that ended without saying goodbye"},
                          &Conductor::clients_lost},
    CounterRow<Conductor>{{"bad_packets", "1", "clients disconnected for breaking the protocol"},
                          &Conductor::bad_packets},
    CounterRow<Conductor>{{"joins", "1", "ranks of this node that asked to join a group"},
                          &Conductor::joins},
    CounterRow<Conductor>{{"joins_refused", "1", "joins that failed"}, &Conductor::joins_refused},
    CounterRow<Conductor>{{"groups_ended", "1", "epochs of groups that have ended"},
                          &Conductor::groups_ended},
    CounterRow<Conductor>{
        {"hellos_refused", "1", "connections of other daemons refused at their hello"},
        &Conductor::hellos_refused},
    CounterRow<Conductor>{
        {"bad_control_messages", "1", "control messages that were not understood"},
        &Conductor::bad_control_messages},
    CounterRow<Conductor>{{"state_resets", "1", "codec states that were set to zero"},
                          &Conductor::state_resets},
    CounterRow<Conductor>{
        {"peers_not_trusted", "1",
         "connections that TLS or the settings of one end refused, in either direction"},
        &Conductor::peers_not_trusted},
    CounterRow<Conductor>{
        {"quota_refusals", "1", "requests of local users that a limit of [limits] refused"},
        &Conductor::quota_refusals},
    CounterRow<Conductor>{
        {"bad_control_frames", "1",
         "frames between conductors that broke the protocol or were cut off; each closed its "
         "connection"},
        &Conductor::bad_control_frames},
    CounterRow<Conductor>{
        {"declarations_refused", "1", "declarations of tensors that were refused, limits excepted"},
        &Conductor::declarations_refused},
    CounterRow<Conductor>{{"conductor_longest_turn_ns", "ns",
                           "the longest turn of the conductor since the start", Kind::gauge},
                          &Conductor::conductor_longest_turn_ns},
    CounterRow<Conductor>{
        {"lane_longest_turn_ns", "ns",
         "the longest turn of a lane since the start, as of the conductor's last", Kind::gauge},
        &Conductor::lane_longest_turn_ns},
    CounterRow<Conductor>{{"device_reports", "1", "reports of clients about their devices"},
                          &Conductor::device_reports},
    CounterRow<Conductor>{
        {"clients_not_pinned", "1", "clients that said that they could not pin memory"},
        &Conductor::clients_not_pinned},
    CounterRow<Conductor>{{"device_bytes", "bytes",
                           "memory of devices that connected clients say they hold", Kind::gauge},
                          &Conductor::device_bytes},
    CounterRow<Conductor>{
        {"device_pinned_bytes", "bytes",
         "memory of the host that connected clients say they have pinned for devices", Kind::gauge},
        &Conductor::device_pinned_bytes},
    CounterRow<Conductor>{{"conductor_turns_100us", "1", "turns of the conductor of up to 100 us"},
                          &Conductor::turns_100us},
    CounterRow<Conductor>{{"conductor_turns_250us", "1", "turns of the conductor of 100 to 250 us"},
                          &Conductor::turns_250us},
    CounterRow<Conductor>{{"conductor_turns_500us", "1", "turns of the conductor of 250 to 500 us"},
                          &Conductor::turns_500us},
    CounterRow<Conductor>{{"conductor_turns_1ms", "1", "turns of the conductor of 0.5 to 1 ms"},
                          &Conductor::turns_1ms},
    CounterRow<Conductor>{{"conductor_turns_2500us", "1", "turns of the conductor of 1 to 2.5 ms"},
                          &Conductor::turns_2500us},
    CounterRow<Conductor>{{"conductor_turns_5ms", "1", "turns of the conductor of 2.5 to 5 ms"},
                          &Conductor::turns_5ms},
    CounterRow<Conductor>{{"conductor_turns_10ms", "1", "turns of the conductor of 5 to 10 ms"},
                          &Conductor::turns_10ms},
    CounterRow<Conductor>{{"conductor_turns_20ms", "1", "turns of the conductor of 10 to 20 ms"},
                          &Conductor::turns_20ms},
    CounterRow<Conductor>{{"conductor_turns_50ms", "1", "turns of the conductor of 20 to 50 ms"},
                          &Conductor::turns_50ms},
    CounterRow<Conductor>{{"conductor_turns_100ms", "1", "turns of the conductor of 50 to 100 ms"},
                          &Conductor::turns_100ms},
    CounterRow<Conductor>{{"conductor_turns_250ms", "1", "turns of the conductor of 100 to 250 ms"},
                          &Conductor::turns_250ms},
    CounterRow<Conductor>{{"conductor_turns_1s", "1", "turns of the conductor of 250 ms to 1 s"},
                          &Conductor::turns_1s},
    CounterRow<Conductor>{
        {"conductor_turns_longer", "1", "turns of the conductor of more than 1 s"},
        &Conductor::turns_longer},
    CounterRow<Conductor>{{"conductor_turn_ns", "ns",
                           "time of the conductor in turns, less what it waited for a processor"},
                          &Conductor::turn_ns},
    CounterRow<Conductor>{
        {"conductor_turns_over_budget", "1", "turns of the conductor that took longer than 20 ms"},
        &Conductor::turns_over_budget},
};

constexpr std::array kOfLanes{
    CounterRow<LaneCounters>{
        {"ops_completed", "1", "operations that succeeded, per lane they ran on"},
        &LaneCounters::ops_completed},
    CounterRow<LaneCounters>{{"ops_failed", "1", "operations that failed, per lane they ran on"},
                             &LaneCounters::ops_failed},
    CounterRow<LaneCounters>{{"entries", "1", "entries taken from submission rings"},
                             &LaneCounters::entries},
    CounterRow<LaneCounters>{
        {"bad_entries", "1", "entries refused: out of the arena, unknown dtype and the like"},
        &LaneCounters::bad_entries},
    CounterRow<LaneCounters>{
        {"unknown_group_frames", "1", "frames of groups that are not (any more) known"},
        &LaneCounters::unknown_group_frames},
    CounterRow<LaneCounters>{
        {"bad_frames", "1",
         "frames that broke the protocol or were cut off; each closed its connection"},
        &LaneCounters::bad_frames},
    CounterRow<LaneCounters>{
        {"bad_blocks", "1", "blocks that could not be decoded, or be their chunk's"},
        &LaneCounters::bad_blocks},
    CounterRow<LaneCounters>{{"bad_payloads", "1", "payloads that did not match their checksum"},
                             &LaneCounters::bad_payloads},
    CounterRow<LaneCounters>{{"links_lost", "1", "links between lanes that were lost"},
                             &LaneCounters::links_lost},
    CounterRow<LaneCounters>{
        {"dropped_records", "1", "flight records dropped because the conductor was behind"},
        &LaneCounters::dropped_records},
    CounterRow<LaneCounters>{
        {"nonfinite_chunks", "1", "chunks sent raw because of a NaN or an infinity"},
        &LaneCounters::nonfinite_chunks},
    CounterRow<LaneCounters>{
        {"client_blocks", "1", "blocks that clients have encoded, of tensors with client_blocks"},
        &LaneCounters::client_blocks},
    CounterRow<LaneCounters>{
        {"links_turned_away", "1",
         "links of other daemons turned away because too many wait for a group"},
        &LaneCounters::links_turned_away},
    CounterRow<LaneCounters>{{"sleeps", "1", "times a lane went to sleep"}, &LaneCounters::sleeps},
    CounterRow<LaneCounters>{{"lane_busy_ns", "ns", "time of lanes in rounds that did work"},
                             &LaneCounters::busy_ns},
    CounterRow<LaneCounters>{{"lane_codec_ns", "ns", "time of lanes in encoding and decoding"},
                             &LaneCounters::codec_ns},
    CounterRow<LaneCounters>{
        {"block_bytes", "bytes", "bytes of blocks that lanes have sent and received"},
        &LaneCounters::block_bytes},
    CounterRow<LaneCounters>{{"blocks", "1", "blocks that lanes have sent and received"},
                             &LaneCounters::blocks},
    CounterRow<LaneCounters>{{"samples", "1", "samples of tensors taken for the tuner"},
                             &LaneCounters::samples},
    CounterRow<LaneCounters>{
        {"lane_ops", "1", "operations in flight, per lane they run on", Kind::gauge},
        &LaneCounters::ops_now},
    CounterRow<LaneCounters>{{"lane_unacked_blocks", "1",
                              "blocks sent that not all receivers have acknowledged", Kind::gauge},
                             &LaneCounters::unacked_now},
    CounterRow<LaneCounters>{
        {"lane_waiting_blocks", "1",
         "blocks of other nodes that wait to be added, or room for them", Kind::gauge},
        &LaneCounters::waiting_now},
    CounterRow<LaneCounters>{{"lane_turns_100us", "1", "turns of lanes of up to 100 us"},
                             &LaneCounters::turns_100us},
    CounterRow<LaneCounters>{{"lane_turns_250us", "1", "turns of lanes of 100 to 250 us"},
                             &LaneCounters::turns_250us},
    CounterRow<LaneCounters>{{"lane_turns_500us", "1", "turns of lanes of 250 to 500 us"},
                             &LaneCounters::turns_500us},
    CounterRow<LaneCounters>{{"lane_turns_1ms", "1", "turns of lanes of 0.5 to 1 ms"},
                             &LaneCounters::turns_1ms},
    CounterRow<LaneCounters>{{"lane_turns_2500us", "1", "turns of lanes of 1 to 2.5 ms"},
                             &LaneCounters::turns_2500us},
    CounterRow<LaneCounters>{{"lane_turns_5ms", "1", "turns of lanes of 2.5 to 5 ms"},
                             &LaneCounters::turns_5ms},
    CounterRow<LaneCounters>{{"lane_turns_10ms", "1", "turns of lanes of 5 to 10 ms"},
                             &LaneCounters::turns_10ms},
    CounterRow<LaneCounters>{{"lane_turns_20ms", "1", "turns of lanes of 10 to 20 ms"},
                             &LaneCounters::turns_20ms},
    CounterRow<LaneCounters>{{"lane_turns_50ms", "1", "turns of lanes of 20 to 50 ms"},
                             &LaneCounters::turns_50ms},
    CounterRow<LaneCounters>{{"lane_turns_100ms", "1", "turns of lanes of 50 to 100 ms"},
                             &LaneCounters::turns_100ms},
    CounterRow<LaneCounters>{{"lane_turns_250ms", "1", "turns of lanes of 100 to 250 ms"},
                             &LaneCounters::turns_250ms},
    CounterRow<LaneCounters>{{"lane_turns_1s", "1", "turns of lanes of 250 ms to 1 s"},
                             &LaneCounters::turns_1s},
    CounterRow<LaneCounters>{{"lane_turns_longer", "1", "turns of lanes of more than 1 s"},
                             &LaneCounters::turns_longer},
    CounterRow<LaneCounters>{
        {"lane_turn_ns", "ns", "time of lanes in turns, less what they waited for a processor"},
        &LaneCounters::turn_ns},
    CounterRow<LaneCounters>{{"lane_turns_over_budget", "1",
                              "turns of lanes that took longer than 10 ms beside one block"},
                             &LaneCounters::turns_over_budget},
};

constexpr std::array kOfTuner{
    CounterText{"tuner_decisions", "1", "times the tuner chose a recipe"},
    CounterText{"tuner_switches", "1", "times it chose another one than before, trials excepted"},
    CounterText{"tuner_ns", "ns", "time the conductor has spent on the tuner"},
    CounterText{"tuner_shadow_ns", "ns", "time spent measuring recipes that were not in use"},
    CounterText{"tuner_shadow_disturbed", "1",
                "measurements in whose middle something else needed the core"},
};

// The file has as many words for each as the struct has fields.
static_assert(sizeof(ConductorCounters) == kOfConductor.size() * sizeof(std::uint64_t));
static_assert(sizeof(LaneCounters) == kOfLanes.size() * sizeof(std::uint64_t));

// Readers know a bucket by its counter's name.
static_assert(std::equal(kTurnBuckets.begin(), kTurnBuckets.end(), counters::kTurnBounds.begin(),
                         counters::kTurnBounds.end(), [](const auto& bucket, const auto& bound) {
                           return bucket.up_to_ns == bound.up_to_ns;
                         }));

template <typename Rows>
counters::Block block_of(const Rows& rows, std::uint32_t instances) {
  counters::Block block;
  for (const auto& row : rows) block.texts.push_back(row.text);
  block.instances = instances;
  return block;
}

}  // namespace

std::span<const CounterRow<ConductorCounters>> conductor_counters() { return kOfConductor; }
std::span<const CounterRow<LaneCounters>> lane_counters() { return kOfLanes; }
std::span<const CounterText> tuner_counters() { return kOfTuner; }

std::span<const CounterText> kind_counters() {
  struct Table {
    Table() {
      const auto plans = plan::known();
      words.reserve(2 * plans.size());  // the texts are views of these
      for (const plan::Plan* const plan : plans) {
        const std::string& name = words.emplace_back(counters::kind_counter_name(plan->name));
        const std::string& help = words.emplace_back(
            std::string(plan->name) + " operations that succeeded, per lane they ran on");
        texts.push_back({name, "1", help});
      }
    }
    std::vector<std::string> words;
    std::vector<CounterText> texts;
  };
  static const Table kTable;
  return kTable.texts;
}

std::vector<counters::Block> counter_blocks(std::uint32_t lanes) {
  counters::Block of_tuner;
  of_tuner.texts.assign(kOfTuner.begin(), kOfTuner.end());
  counters::Block of_kinds;
  of_kinds.texts.assign(kind_counters().begin(), kind_counters().end());
  of_kinds.instances = lanes;
  return {block_of(kOfConductor, 1), of_tuner, block_of(kOfLanes, lanes), of_kinds};
}

}  // namespace tern::daemon
