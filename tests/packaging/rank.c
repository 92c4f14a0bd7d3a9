/* A rank that does what it is told, line by line:
 *
 *     rank [ARENA_BYTES]           its first line says its process
 *     mint                         the id of a new group
 *     join ID RANK SIZE
 *     declare NAME COUNT           a gradient that the tuner compresses, without loss
 *     reduce TIMES                 and looks at every element of every result
 *
 * Answers `ok WORDS`, or `error NUMBER SENTENCE`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tern/tern.h>
#include <unistd.h>

static tern_client* client;
static tern_group* group;
static tern_tensor* tensor;
static float* memory;
static uint64_t count;
static int size, rank_number;

static tern_status join(const char* id_text) {
  tern_group_id id = {{0}};
  tern_join_options options = TERN_JOIN_OPTIONS_INIT;
  snprintf(id.text, sizeof id.text, "%s", id_text);
  options.rank = rank_number;
  options.size = size;
  return tern_group_join(client, &id, &options, &group);
}

static tern_status declare(const char* name) {
  tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
  void* place = NULL;
  tern_status status;
  options.name = name;
  options.count = count;
  options.role = TERN_GRADIENT;
  options.recipe = "auto";
  options.level = "lossless";
  status = tern_tensor_declare(group, &options, &tensor);
  if (status != TERN_OK) return status;
  status = tern_alloc(client, count * sizeof(float), &place);
  memory = place;
  return status;
}

static tern_status reduce(void) {
  tern_op op = TERN_OP_INIT;
  tern_ticket ticket;
  tern_status status;
  uint64_t i;
  for (i = 0; i < count; ++i) memory[i] = (float)((uint64_t)(rank_number + 1) * (i % 1000));
  op.tensor = tensor;
  op.input = op.output = memory;
  status = tern_all_reduce(group, &op, &ticket);
  if (status == TERN_OK) status = tern_wait(client, ticket, TERN_FOREVER);
  for (i = 0; i < count && status == TERN_OK; ++i) {
    if (memory[i] != (float)((uint64_t)(size * (size + 1) / 2) * (i % 1000))) {
      printf("error 0 element %llu is %g\n", (unsigned long long)i, memory[i]);
      exit(1);
    }
  }
  return status;
}

static void answer(tern_status status, const char* words) {
  if (status == TERN_OK) {
    printf("ok %s\n", words);
  } else {
    printf("error %d %s: %s\n", status, tern_strerror(status), tern_error_detail());
  }
}

static tern_status obey(const char* line, char* words, size_t words_bytes) {
  char text[256];
  unsigned long long number;
  tern_group_id id;
  tern_status status = TERN_OK;
  if (strcmp(line, "mint\n") == 0) {
    status = tern_group_mint(client, &id);
    if (status == TERN_OK) snprintf(words, words_bytes, "%s", id.text);
    return status;
  }
  if (sscanf(line, "join %255s %d %d", text, &rank_number, &size) == 3) return join(text);
  if (sscanf(line, "declare %127s %llu", text, &number) == 2) {
    count = number;
    return declare(text);
  }
  if (sscanf(line, "reduce %llu", &number) == 1) {
    while (number-- > 0 && status == TERN_OK) status = reduce();
    return status;
  }
  fprintf(stderr, "rank: not understood: %s", line);
  exit(2);
}

int main(int argc, char** argv) {
  char line[512], words[256] = "";
  tern_connect_options options = TERN_CONNECT_OPTIONS_INIT;
  tern_status status;
  setvbuf(stdout, NULL, _IOLBF, 0);
  options.arena_bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 64u << 20;
  options.timeout_ms = 60000;
  status = tern_connect(&options, &client);
  snprintf(words, sizeof words, "%d", (int)getpid());
  answer(status, words);
  if (status != TERN_OK) return 1;
  while (fgets(line, sizeof line, stdin) != NULL) {
    words[0] = '\0';
    status = obey(line, words, sizeof words);
    answer(status, words);
  }
  return 0;
}
