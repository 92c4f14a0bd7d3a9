/* Tern's C interface: a parameter server on the ranks. Included by tern.h.
 */
#ifndef TERN_PUSH_PULL_H
#define TERN_PUSH_PULL_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- A parameter server on the ranks --------------------------------------------------------- */

#define TERN_EVERY_RANK (-1)

/* Of a model whose shards have owners among the ranks. The shards are contiguous and lie in the
 * order of the ranks. */
typedef struct {
  uint32_t struct_size;
  int32_t server;   /* TERN_EVERY_RANK: each owns a shard, and all shards are equal but for one
                       element; or the rank that owns all of the model */
  const char* name; /* of the model, stable across steps and runs, 1..122 bytes; required. Two
                       tensors are declared, "NAME.push" and "NAME.pull". */
  uint64_t count;   /* parameters, > 0; the same on all ranks */
  tern_dtype dtype;
  tern_reduction reduction; /* of the gradients: TERN_SUM or TERN_AVERAGE */
  const char* push_recipe;  /* of the gradients and of the differences; as the recipe of */
  const char* pull_recipe;  /* tern_tensor_options: NULL and "auto" may lose, "raw" is exact. */
  int32_t priority;         /* higher goes first; 0 normal */
  uint32_t reserved;
} tern_push_pull_options;
#define TERN_PUSH_PULL_OPTIONS_INIT \
  { sizeof(tern_push_pull_options), TERN_EVERY_RANK, NULL, 0, TERN_F32, TERN_SUM, NULL, NULL, 0, 0 }

/* Declares what the pushes and pulls of a model need. The call is local, as tern_tensor_declare is,
 * and has its errors. A step of all ranks:
 *  - tern_push: the owner of each shard gets the reduction of all ranks' gradients of it.
 *  - Owners apply their optimizer to their shards of the model, and take the difference that it
 *    makes, the new value less the old one.
 *  - tern_pull: all ranks get the differences of all shards.
 *  - Every rank adds them to its copy of the model, owners do so too.
 *
 * An owner has two things: the model that it optimizes, exact, of its own shard, and a copy of the
 * whole, which is what gradients are computed with. All copies begin alike, as the model, and have
 * the same bits on all ranks after every pull. By a lossy pull_recipe with error feedback a copy is
 * behind the model by what pulls have left out, which the owner's node remembers and sends later:
 * model - copy is this residual, exactly where no addition rounds, and else within the roundings of
 * the additions that the program makes (docs/collectives.md).
 *
 * After a push or pull that failed, copies may differ from each other. Release this and declare
 * another one under another name, whose residual is empty, and give all ranks the owners' models
 * (tern_all_gather with the shards as counts). */
TERN_API tern_status tern_push_pull_declare(tern_group* group,
                                            const tern_push_pull_options* options,
                                            tern_push_pull** push_pull);

/* Ends the declaration, as tern_tensor_release does. NULL is ignored. tern_group_leave frees the
 * handle too. */
TERN_API tern_status tern_push_pull_release(tern_push_pull* push_pull);

/* The shard that `rank` owns: its first parameter and how many there are, perhaps none. */
TERN_API tern_status tern_push_pull_get_shard(tern_push_pull* push_pull, int32_t rank,
                                              uint64_t* begin, uint64_t* count);

/* The two tensors, for tern_tensor_get_stats. They belong to the push_pull and end with it. */
TERN_API tern_status tern_push_pull_get_tensors(tern_push_pull* push_pull, tern_tensor** push,
                                                tern_tensor** pull);

/* `gradient` has `count` elements on every rank, `shard` those of the rank's own shard. A rank that
 * owns nothing gives NULL for the shard. An owner may give NULL for one of the two: in place, the
 * shard lies at its own place in the gradient. The rest is as for tern_reduce_scatter. */
TERN_API tern_status tern_push(tern_push_pull* push_pull, const void* gradient, void* shard,
                               tern_ticket* ticket);

/* `difference` has the elements of the rank's own shard, `all` has `count` elements on every rank.
 * NULL for the difference: it lies at its own place in `all`, and becomes what the others get. The
 * rest is as for tern_all_gather. */
TERN_API tern_status tern_pull(tern_push_pull* push_pull, const void* difference, void* all,
                               tern_ticket* ticket);

#ifdef __cplusplus
}
#endif

#endif /* TERN_PUSH_PULL_H */
