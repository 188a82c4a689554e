#include "tools/mcp_session.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/thread.h"

struct session {
    char id[MCP_SESSION_BYTES]; /* "": unused entry */
    uint64_t owner;             /* hash of the owner's name */
    int64_t used_ns;
};

struct mcp_sessions {
    pthread_mutex_t lock;
    struct session v[MCP_MAX_SESSIONS];
};

int mcp_sessions_new(struct mcp_sessions **out, struct err *e) {
    *out = mem_zalloc(sizeof **out);
    if (!*out) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    pthread_mutex_init(&(*out)->lock, NULL);
    return 0;
}

void mcp_sessions_free(struct mcp_sessions *s) {
    if (!s) return;
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

int mcp_session_open(struct mcp_sessions *s, const char *owner, char id[MCP_SESSION_BYTES],
                     struct err *e) {
    unsigned char bits[16];
    if (getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        return err_set(e, CHIMERE_EIO, "no random numbers");
    for (size_t i = 0; i < sizeof bits; ++i) snprintf(id + 2 * i, 3, "%02x", bits[i]);
    pthread_mutex_lock(&s->lock);
    struct session *oldest = &s->v[0];
    for (int i = 0; i < MCP_MAX_SESSIONS && oldest->id[0]; ++i)
        if (!s->v[i].id[0] || s->v[i].used_ns < oldest->used_ns) oldest = &s->v[i];
    memcpy(oldest->id, id, sizeof oldest->id);
    oldest->owner = hash_bytes(owner, strlen(owner), 0);
    oldest->used_ns = clock_ns();
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static bool find(struct mcp_sessions *s, const char *id, const char *owner, bool end) {
    bool found = false;
    uint64_t whose = hash_bytes(owner, strlen(owner), 0);
    int64_t now = clock_ns(), least = now - (int64_t)MCP_SESSION_S * 1000000000;
    if (!id || strlen(id) != MCP_SESSION_BYTES - 1) return false;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < MCP_MAX_SESSIONS && !found; ++i) {
        struct session *t = &s->v[i];
        if (strcmp(t->id, id) != 0 || t->owner != whose || t->used_ns < least) continue;
        found = true;
        t->used_ns = now;
        if (end) t->id[0] = 0;
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

bool mcp_session_use(struct mcp_sessions *s, const char *id, const char *owner) {
    return find(s, id, owner, false);
}

bool mcp_session_end(struct mcp_sessions *s, const char *id, const char *owner) {
    return find(s, id, owner, true);
}
