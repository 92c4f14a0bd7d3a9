/* What a program sees when its daemon dies: it reduces, waits for a rank that never comes, is told
 * that the daemon is lost, connects again and reduces again. Each step is a line. */
#include <stdio.h>
#include <stdlib.h>
#include <tern/tern.h>

static void check(const char* what, tern_status status) {
  if (status == TERN_OK) return;
  printf("%s failed: %s %s\n", what, tern_strerror(status), tern_error_detail());
  exit(1);
}

static void reduce(tern_client* client) {
  tern_group_id id;
  tern_join_options join = TERN_JOIN_OPTIONS_INIT;
  tern_group* group;
  float values[3] = {1, 2, 3};
  tern_op op = TERN_OP_INIT;
  tern_ticket ticket;
  check("mint", tern_group_mint(client, &id));
  check("join", tern_group_join(client, &id, &join, &group));
  op.input = op.output = values;
  op.count = 3;
  check("all_reduce", tern_all_reduce(group, &op, &ticket));
  check("wait", tern_wait(client, ticket, TERN_FOREVER));
  printf("reduced %g %g %g\n", values[0], values[1], values[2]);
  check("leave", tern_group_leave(group));
}

int main(void) {
  tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
  tern_client* client;
  tern_group_id id;
  tern_join_options join = TERN_JOIN_OPTIONS_INIT;
  tern_group* group;
  tern_status status;
  setvbuf(stdout, NULL, _IOLBF, 0);
  /* An emulated machine on a busy one takes longer than the default to start a daemon. */
  options.timeout_ms = 120000;
  /* It has little memory, of which one user may not take the most. */
  options.arena_bytes = 16 << 20;
  check("connect", tern_connect(&options, &client));
  reduce(client);
  check("mint", tern_group_mint(client, &id));
  join.size = 2;
  join.timeout_ms = 600000;
  printf("waits\n");
  status = tern_group_join(client, &id, &join, &group);
  printf("%s\n", status == TERN_ERR_DAEMON_LOST ? "daemon lost" : tern_strerror(status));
  tern_disconnect(client);
  check("connect", tern_connect(&options, &client));
  reduce(client);
  check("disconnect", tern_disconnect(client));
  printf("done\n");
  return 0;
}
