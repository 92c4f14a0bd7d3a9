/* The C interface as a C11 compiler sees it, and its layout in literal numbers (64-bit). */
#include "c_abi.h"

#include <tern/tern.h>

#define LAYOUT(type, field, offset) \
  _Static_assert(offsetof(type, field) == (offset), #type "." #field)
#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)

SIZE(tern_connect_options, 40);
LAYOUT(tern_connect_options, struct_size, 0);
LAYOUT(tern_connect_options, socket_path, 8);
LAYOUT(tern_connect_options, job, 16);
LAYOUT(tern_connect_options, arena_bytes, 24);
LAYOUT(tern_connect_options, timeout_ms, 32);

SIZE(tern_group_id, 256);

SIZE(tern_join_options, 40);
LAYOUT(tern_join_options, rank, 4);
LAYOUT(tern_join_options, size, 8);
LAYOUT(tern_join_options, verify, 12);
LAYOUT(tern_join_options, seed, 16);
LAYOUT(tern_join_options, timeout_ms, 24);
LAYOUT(tern_join_options, op_timeout_ms, 32);

SIZE(tern_split_options, 32);
LAYOUT(tern_split_options, verify, 4);
LAYOUT(tern_split_options, seed, 8);
LAYOUT(tern_split_options, timeout_ms, 16);
LAYOUT(tern_split_options, op_timeout_ms, 24);

SIZE(tern_batch_op, 16);
LAYOUT(tern_batch_op, reserved, 4);
LAYOUT(tern_batch_op, op, 8);

SIZE(tern_batch, 32);
LAYOUT(tern_batch, ops, 8);
LAYOUT(tern_batch, count, 16);
LAYOUT(tern_batch, tickets, 24);

SIZE(tern_group_info, 40);
LAYOUT(tern_group_info, rank, 4);
LAYOUT(tern_group_info, size, 8);
LAYOUT(tern_group_info, node, 12);
LAYOUT(tern_group_info, node_count, 16);
LAYOUT(tern_group_info, epoch, 20);
LAYOUT(tern_group_info, last_common_op, 24);
LAYOUT(tern_group_info, number, 32);

SIZE(tern_tensor_options, 64); /* 56 in the first header */
LAYOUT(tern_tensor_options, name, 8);
LAYOUT(tern_tensor_options, count, 16);
LAYOUT(tern_tensor_options, dtype, 24);
LAYOUT(tern_tensor_options, role, 28);
LAYOUT(tern_tensor_options, recipe, 32);
LAYOUT(tern_tensor_options, level, 40);
LAYOUT(tern_tensor_options, priority, 48);
LAYOUT(tern_tensor_options, exempt, 52);
LAYOUT(tern_tensor_options, client_blocks, 56);
LAYOUT(tern_tensor_options, reserved1, 60);

SIZE(tern_block_layout, 160); /* 152 in the first header */
LAYOUT(tern_block_layout, travels_whole, 4);
LAYOUT(tern_block_layout, count, 8);
LAYOUT(tern_block_layout, chunk_elements, 16);
LAYOUT(tern_block_layout, chunks, 24);
LAYOUT(tern_block_layout, slot_bytes, 32);
LAYOUT(tern_block_layout, most_block_bytes, 40);
LAYOUT(tern_block_layout, tensor, 48);
LAYOUT(tern_block_layout, seed, 56);
LAYOUT(tern_block_layout, next_use, 64);
LAYOUT(tern_block_layout, first_owner, 72);
LAYOUT(tern_block_layout, node, 76);
LAYOUT(tern_block_layout, nodes, 80);
LAYOUT(tern_block_layout, dtype, 84);
LAYOUT(tern_block_layout, recipe, 88);
LAYOUT(tern_block_layout, is_tuned, 152);
LAYOUT(tern_block_layout, raw_first, 156);

SIZE(tern_encoded, 40);
LAYOUT(tern_encoded, all_raw, 4);
LAYOUT(tern_encoded, elements, 8);
LAYOUT(tern_encoded, energy, 16);
LAYOUT(tern_encoded, residual_energy, 24);
LAYOUT(tern_encoded, encode_ns, 32);

SIZE(tern_device_report, 104);
LAYOUT(tern_device_report, device, 4);
LAYOUT(tern_device_report, device_bytes, 8);
LAYOUT(tern_device_report, pinned_bytes, 16);
LAYOUT(tern_device_report, pinning_failures, 24);
LAYOUT(tern_device_report, operations, 32);
LAYOUT(tern_device_report, failures, 40);
LAYOUT(tern_device_report, encodes, 48);
LAYOUT(tern_device_report, encode_ns, 56);
LAYOUT(tern_device_report, last_encode_ns, 64);
LAYOUT(tern_device_report, decodes, 72);
LAYOUT(tern_device_report, decode_ns, 80);
LAYOUT(tern_device_report, last_decode_ns, 88);
LAYOUT(tern_device_report, pinning_problem, 96);

SIZE(tern_tensor_stats, 168);
LAYOUT(tern_tensor_stats, ops, 8);
LAYOUT(tern_tensor_stats, bytes_raw, 16);
LAYOUT(tern_tensor_stats, bytes_sent, 24);
LAYOUT(tern_tensor_stats, ratio, 32);
LAYOUT(tern_tensor_stats, residual_ratio, 40);
LAYOUT(tern_tensor_stats, encode_ns, 48);
LAYOUT(tern_tensor_stats, queue_ns, 56);
LAYOUT(tern_tensor_stats, wire_ns, 64);
LAYOUT(tern_tensor_stats, decode_ns, 72);
LAYOUT(tern_tensor_stats, wait_ns, 80);
LAYOUT(tern_tensor_stats, raw_fallbacks, 88);
LAYOUT(tern_tensor_stats, state_bytes, 96);
LAYOUT(tern_tensor_stats, recipe, 104);

SIZE(tern_op, 128); /* 96 in the first header */
LAYOUT(tern_op, struct_size, 0);
LAYOUT(tern_op, dtype, 4);
LAYOUT(tern_op, tensor, 8);
LAYOUT(tern_op, input, 16);
LAYOUT(tern_op, output, 24);
LAYOUT(tern_op, count, 32);
LAYOUT(tern_op, reduction, 40);
LAYOUT(tern_op, root, 44);
LAYOUT(tern_op, priority, 48);
LAYOUT(tern_op, prescale, 52);
LAYOUT(tern_op, state_scale, 56);
LAYOUT(tern_op, reserved, 60);
LAYOUT(tern_op, recipe, 64);
LAYOUT(tern_op, wait_event, 72);
LAYOUT(tern_op, signal_event, 80);
LAYOUT(tern_op, counts, 88);
LAYOUT(tern_op, receive_counts, 96);
LAYOUT(tern_op, peer, 104);
LAYOUT(tern_op, tag, 108);
LAYOUT(tern_op, received, 112);

SIZE(tern_received, 16);
LAYOUT(tern_received, source, 4);
LAYOUT(tern_received, count, 8);

SIZE(tern_push_pull_options, 56);
LAYOUT(tern_push_pull_options, struct_size, 0);
LAYOUT(tern_push_pull_options, server, 4);
LAYOUT(tern_push_pull_options, name, 8);
LAYOUT(tern_push_pull_options, count, 16);
LAYOUT(tern_push_pull_options, dtype, 24);
LAYOUT(tern_push_pull_options, reduction, 28);
LAYOUT(tern_push_pull_options, push_recipe, 32);
LAYOUT(tern_push_pull_options, pull_recipe, 40);
LAYOUT(tern_push_pull_options, priority, 48);
LAYOUT(tern_push_pull_options, reserved, 52);

_Static_assert(sizeof(tern_status) == 4, "tern_status");
_Static_assert(sizeof(tern_dtype) == 4, "tern_dtype");
_Static_assert(sizeof(tern_ticket) == 8, "tern_ticket");
_Static_assert(sizeof(tern_group_id) == 256, "tern_group_id travels between programs as it is");
_Static_assert(TERN_ERR_INTERNAL == 34, "error numbers");
_Static_assert(TERN_U8 == 6 && TERN_U64 == 16 && TERN_PRODUCT == 4 && TERN_XOR == 7 &&
                   TERN_WEIGHTS == 3,
               "enum numbers");

#define EXPECT(condition)              \
  do {                                 \
    if (!(condition)) return __LINE__; \
  } while (0)

static int run_ops(tern_client* client, tern_group* group, tern_tensor* tensor, float* values) {
  tern_op op = TERN_OP_INIT;
  tern_ticket tickets[3] = {0, 0, 0};
  size_t index = 9;
  op.tensor = tensor;
  op.input = values;
  op.output = values;
  EXPECT(tern_all_reduce(group, &op, &tickets[0]) == TERN_OK);
  EXPECT(tern_wait(client, tickets[0], TERN_FOREVER) == TERN_OK);
  EXPECT(tern_broadcast(group, &op, &tickets[0]) == TERN_OK);
  EXPECT(tern_wait_any(client, tickets, 1, TERN_FOREVER, &index) == TERN_OK && index == 0);
  EXPECT(tern_barrier(group, &tickets[1]) == TERN_OK);
  EXPECT(tern_cancel(client, tickets[1]) == TERN_OK);
  while (tern_test(client, tickets[1]) == TERN_ERR_TIMEOUT) {
  }
  EXPECT(tern_test(client, tickets[1]) == TERN_ERR_UNKNOWN_TICKET);
  EXPECT(tern_error_detail()[0] != '\0');
  return 0;
}

static int run_push_pull(tern_client* client, tern_group* group, float* values) {
  tern_push_pull_options options = TERN_PUSH_PULL_OPTIONS_INIT;
  tern_push_pull* push_pull = NULL;
  tern_tensor* tensors[2] = {NULL, NULL};
  uint64_t begin = 9, count = 9;
  tern_ticket ticket = 0;
  options.name = "m";
  options.count = 8;
  EXPECT(tern_push_pull_declare(group, &options, &push_pull) == TERN_OK);
  EXPECT(tern_push_pull_get_shard(push_pull, 0, &begin, &count) == TERN_OK);
  EXPECT(begin == 0 && count == 8);
  EXPECT(tern_push_pull_get_tensors(push_pull, &tensors[0], &tensors[1]) == TERN_OK);
  EXPECT(tensors[0] != NULL && tensors[1] != NULL && tensors[0] != tensors[1]);
  EXPECT(tern_push(push_pull, values, NULL, &ticket) == TERN_OK);
  EXPECT(tern_wait(client, ticket, TERN_FOREVER) == TERN_OK);
  EXPECT(tern_pull(push_pull, NULL, values, &ticket) == TERN_OK);
  EXPECT(tern_wait(client, ticket, TERN_FOREVER) == TERN_OK);
  EXPECT(tern_push_pull_release(push_pull) == TERN_OK);
  EXPECT(tern_push_pull_release(NULL) == TERN_OK);
  return 0;
}

static int run_batch(tern_client* client, tern_group* group, float* values) {
  tern_op op = TERN_OP_INIT;
  tern_batch_op ops[2] = {{TERN_OP_ALL_REDUCE, 0, NULL}, {TERN_OP_BARRIER, 0, NULL}};
  tern_batch batch = TERN_BATCH_INIT;
  tern_ticket ticket = 0;
  op.output = values;
  op.count = 8;
  ops[0].op = &op;
  batch.ops = ops;
  batch.count = 2;
  EXPECT(tern_submit_batch(group, &batch, &ticket) == TERN_OK && ticket != 0);
  EXPECT(tern_wait(client, ticket, TERN_FOREVER) == TERN_OK);
  return 0;
}

static int run_split(tern_group* group) {
  tern_split_options options = TERN_SPLIT_OPTIONS_INIT;
  tern_group* child = NULL;
  EXPECT(tern_group_split(group, 0, 0, &options, &child) == TERN_OK && child != NULL);
  EXPECT(tern_group_leave(child) == TERN_OK);
  return 0;
}

static int run_group(tern_client* client, tern_group* group) {
  tern_group_info info = TERN_GROUP_INFO_INIT;
  tern_tensor_options declare = TERN_TENSOR_OPTIONS_INIT;
  tern_tensor_stats stats = TERN_TENSOR_STATS_INIT;
  tern_tensor* tensor = NULL;
  void* memory = NULL;
  int fd = -1;
  int line;
  EXPECT(tern_group_get_info(group, &info) == TERN_OK && info.size == 1);
  EXPECT(tern_group_set_level(group, "lossless") == TERN_OK);
  EXPECT(tern_group_set_level(group, NULL) == TERN_OK);
  declare.name = "t";
  declare.count = 8;
  EXPECT(tern_tensor_declare(group, &declare, &tensor) == TERN_OK);
  EXPECT(tern_alloc(client, 8 * sizeof(float), &memory) == TERN_OK);
  EXPECT(tern_fd(client, &fd) == TERN_OK && fd >= 0);
  line = run_ops(client, group, tensor, (float*)memory);
  if (line == 0) line = run_batch(client, group, (float*)memory);
  if (line == 0) line = run_split(group);
  if (line != 0) return line;
  EXPECT(tern_tensor_get_stats(tensor, &stats) == TERN_OK && stats.ops == 3);
  EXPECT(tern_tensor_release(tensor) == TERN_OK);
  line = run_push_pull(client, group, (float*)memory);
  if (line != 0) return line;
  EXPECT(tern_free(client, memory) == TERN_OK);
  EXPECT(tern_region_create(client, 8 * sizeof(float), &memory) == TERN_OK && memory != NULL);
  ((float*)memory)[7] = 1.0f;
  EXPECT(tern_free(client, memory) == TERN_OK);
  return 0;
}

int tern_c_abi_run(const char* socket_path) {
  tern_connect_options connect = TERN_CONNECT_OPTIONS_INIT;
  tern_join_options join = TERN_JOIN_OPTIONS_INIT;
  tern_client* client = NULL;
  tern_group* group = NULL;
  tern_device_report device = TERN_DEVICE_REPORT_INIT;
  tern_group_id id;
  int line;
  EXPECT(tern_version()[0] == '0' && tern_strerror(TERN_OK)[0] != '\0');
  connect.socket_path = socket_path;
  EXPECT(tern_connect(&connect, &client) == TERN_OK);
  EXPECT(tern_report_device(client, &device) == TERN_OK);
  EXPECT(tern_group_mint(client, &id) == TERN_OK);
  EXPECT(tern_group_join(client, &id, &join, &group) == TERN_OK);
  line = run_group(client, group);
  if (line != 0) return line;
  EXPECT(tern_group_leave(group) == TERN_OK);
  EXPECT(tern_disconnect(client) == TERN_OK);
  return 0;
}
