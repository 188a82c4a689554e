/* expert_profile.h: how often the experts in slots or on disk were used, kept in a file, so that the next start fills
 * the slots, or in the background the pool.
 *
 * The file is in the user's data folder, in experts/, named by the model's hash and the first of its layers. It is
 * written when the model is closed, and every ten minutes if experts were used; by rename, so that a reader sees the
 * old file or the new one. Older uses count less: half after EXPERT_PROFILE_HALF tokens. A file that is damaged or of
 * another model is ignored, and a file that cannot be written is not kept; both are logged in one line. */
#ifndef CHIMERE_ENGINE_EXPERT_PROFILE_H
#define CHIMERE_ENGINE_EXPERT_PROFILE_H

#include "model/model.h"

enum { EXPERT_PROFILE_HALF = 65536 };

struct expert_profile;

/* Fills the slots of m, or begins to fill its pool, before its first batch, and starts the thread that writes the
 * file. m must outlive *out. *out is NULL if m has no experts in slots or on disk. */
int expert_profile_open(struct expert_profile **out, struct model *m, struct layer_part part,
                        struct err *e);
/* Writes the file. The engines of the model are closed already. */
void expert_profile_close(struct expert_profile *p);

/* Uses of experts [n_layer, n_expert] and their file, little-endian: "CHIMEXPR", u32 version (1), u32 CRC-32C of the
 * rest, u64 hash of the model, u32 n_layer, u32 n_expert; then the uses as u32. */
struct expert_uses {
    uint64_t hash;
    uint32_t n_layer, n_expert;
    uint32_t *n; /* owned by the caller */
};
/* Reads into u->n, which has room for n_layer times n_expert. CHIMERE_ENOENT: there is no file. CHIMERE_EFORMAT: it is
 * damaged. CHIMERE_EMISMATCH: it is of another model. */
int expert_uses_read(const char *path, const struct expert_uses *u, struct err *e);
int expert_uses_write(const char *path, const struct expert_uses *u, struct err *e);

#endif
