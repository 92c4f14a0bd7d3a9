/* Sums a small tensor over all ranks: first_program ID_FILE RANK SIZE. Rank 0 writes the file that
 * the others read; run it first, or copy the file to the other nodes. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <tern/tern.h>

static void check(tern_status status) {
  if (status == TERN_OK) return;
  fprintf(stderr, "first_program: %s: %s\n", tern_strerror(status), tern_error_detail());
  exit(1);
}

int main(int argc, char** argv) {
  if (argc != 4) return fprintf(stderr, "usage: first_program ID_FILE RANK SIZE\n"), 2;
  tern_join_options join = TERN_JOIN_OPTIONS_INIT;
  join.rank = atoi(argv[2]);
  join.size = atoi(argv[3]);

  tern_client* client;
  check(tern_connect(NULL, &client));

  tern_group_id id = {{0}};
  if (join.rank == 0) check(tern_group_mint(client, &id));
  /* The id is the group's secret: a file of this run, for this user's eyes alone. */
  umask(077);
  if (join.rank == 0) remove(argv[1]);
  FILE* file = fopen(argv[1], join.rank == 0 ? "w" : "r");
  if (file == NULL) return perror(argv[1]), 1;
  if (join.rank == 0)
    fputs(id.text, file);
  else if (fgets(id.text, sizeof id.text, file) == NULL)
    return perror(argv[1]), 1;
  fclose(file);

  tern_group* group;
  check(tern_group_join(client, &id, &join, &group));
  if (join.rank == 0) remove(argv[1]); /* all have read it, and the next run has another */

  float values[3] = {1.0f, 10.0f, (float)join.rank};
  tern_op op = TERN_OP_INIT;
  op.input = op.output = values;
  op.count = 3;
  tern_ticket ticket;
  check(tern_all_reduce(group, &op, &ticket));
  check(tern_wait(client, ticket, TERN_FOREVER));
  printf("rank %d of %d: %g %g %g\n", join.rank, join.size, values[0], values[1], values[2]);

  check(tern_group_leave(group));
  check(tern_disconnect(client));
  return 0;
}
