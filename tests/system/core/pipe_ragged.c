/* Ragged fields, collates, and bytes that nobody wrote. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include "../../rig/inside.h"
#include "../../rig/pipe_rig.h"
#include "../../rig/sanitizers.h"

/* An item has `tokens`, 0..7 rows of 3 u16, `label`, and `notes`, 0..5 bytes. */
#define TOKENS_MAX 7u
#define NOTES_MAX 5u
static const dlp_field fields[3] = {{"tokens", DLP_U16, 2, {TOKENS_MAX, 3}, 1, 0},
                                    {"label", DLP_U32, 0, {0}, 0, 0},
                                    {"notes", DLP_U8, 1, {NOTES_MAX}, 1, 0}};

static uint64_t tokens_of(uint64_t index) { return index * 7 % (TOKENS_MAX + 1); }
static uint64_t notes_of(uint64_t index) { return index * 5 % (NOTES_MAX + 1); }
static uint16_t token(uint64_t index, uint64_t i) { return (uint16_t)(1 + index * 31 + i); }

enum { FINE, DIRTY_TAIL, TOO_LONG, FIXED_LENGTH, FORGETS };
enum { NOTHING, TOKENS, NOTES };

static int ragged_fetch(void *user, dlp_item *it) {
    int how = *(const int *)user;
    uint32_t label = (uint32_t)it->index + 1;
    uint16_t *tokens = it->data[0];
    if (how == DIRTY_TAIL) { /* written past what it says it wrote */
        memset(it->data[0], 0xee, TOKENS_MAX * 3 * 2);
        memset(it->data[2], 0xee, NOTES_MAX);
    }
    for (uint64_t i = 0; i < 3 * tokens_of(it->index); i++) tokens[i] = token(it->index, i);
    memset(it->data[2], (int)(it->index | 1), notes_of(it->index));
    memcpy(it->data[1], &label, sizeof label);
    it->length[0] = tokens_of(it->index);
    it->length[2] = notes_of(it->index);
    if (how == FORGETS + TOKENS) it->length[0] = 0;
    if (how == FORGETS + NOTES) it->length[2] = 0;
    if (how == TOO_LONG && it->index == 21) it->length[2] = NOTES_MAX + 1;
    if (how == FIXED_LENGTH && it->index == 21) it->length[1] = 1;
    return 0;
}

static int row_tokens_same(const uint16_t *row, uint64_t index, uint64_t wide) {
    int ok = 1;
    for (uint64_t i = 0; i < 3 * wide; i++)
        ok &= row[i] == (i < 3 * tokens_of(index) ? token(index, i) : 0);
    return ok;
}

static int row_notes_same(const uint8_t *row, uint64_t index, uint64_t wide) {
    int ok = 1;
    for (uint64_t i = 0; i < wide; i++)
        ok &= row[i] == (i < notes_of(index) ? (uint8_t)(index | 1) : 0);
    return ok;
}

enum { IN_PLACE, PAD, PACK };

static int lengths_same(const dlp_batch *b) {
    int ok = b->fields[0].lengths != NULL && b->fields[1].lengths == NULL &&
             b->fields[2].lengths != NULL;
    for (uint32_t r = 0; ok && r < b->count; r++) {
        uint32_t label;
        memcpy(&label, (const uint8_t *)b->fields[1].data + 4 * r, 4);
        ok = b->fields[0].lengths[r] == tokens_of(b->index[r]) &&
             b->fields[2].lengths[r] == notes_of(b->index[r]) && label == b->index[r] + 1;
    }
    return ok;
}

static int wide_same(const dlp_batch *b, int how) {
    uint64_t wide[2] = {TOKENS_MAX, NOTES_MAX};
    int ok = 1;
    if (how == PAD) {
        wide[0] = wide[1] = 0;
        for (uint32_t r = 0; r < b->count; r++) {
            if (tokens_of(b->index[r]) > wide[0]) wide[0] = tokens_of(b->index[r]);
            if (notes_of(b->index[r]) > wide[1]) wide[1] = notes_of(b->index[r]);
        }
    }
    ok &= b->fields[0].ndim == 3 && b->fields[0].shape[0] == b->count && b->fields[0].shape[2] == 3;
    ok &= b->fields[0].shape[1] == (int64_t)wide[0] && b->fields[2].ndim == 2;
    ok &= b->fields[2].shape[0] == b->count && b->fields[2].shape[1] == (int64_t)wide[1];
    ok &= b->fields[0].bytes == b->count * wide[0] * 6 && b->fields[2].bytes == b->count * wide[1];
    ok &= b->fields[0].offsets == NULL && b->fields[2].offsets == NULL;
    for (uint32_t r = 0; ok && r < b->count; r++) {
        ok &= row_tokens_same((const uint16_t *)b->fields[0].data + r * 3 * wide[0], b->index[r],
                              wide[0]);
        ok &=
            row_notes_same((const uint8_t *)b->fields[2].data + r * wide[1], b->index[r], wide[1]);
    }
    return ok;
}

static int packed_same(const dlp_batch *b) {
    uint64_t at[2] = {0, 0};
    const uint64_t *o0 = b->fields[0].offsets, *o2 = b->fields[2].offsets;
    int ok = o0 != NULL && o2 != NULL && b->fields[1].offsets == NULL;
    for (uint32_t r = 0; ok && r < b->count; r++) {
        ok &= o0[r] == at[0] && o2[r] == at[1];
        ok &= row_tokens_same((const uint16_t *)b->fields[0].data + 3 * at[0], b->index[r],
                              tokens_of(b->index[r]));
        ok &= row_notes_same((const uint8_t *)b->fields[2].data + at[1], b->index[r],
                             notes_of(b->index[r]));
        at[0] += tokens_of(b->index[r]);
        at[1] += notes_of(b->index[r]);
    }
    ok = ok && o0[b->count] == at[0] && o2[b->count] == at[1];
    ok = ok && b->fields[0].ndim == 2 && b->fields[0].shape[0] == (int64_t)at[0] &&
         b->fields[0].shape[1] == 3;
    ok = ok && b->fields[2].ndim == 1 && b->fields[2].shape[0] == (int64_t)at[1];
    return ok && b->fields[0].bytes == at[0] * 6 && b->fields[2].bytes == at[1];
}

static void rig_ragged(rig *r, const dlp_field *f, int *how, int collate) {
    rig_init(r, 203, 10);
    rig_order(r, DLP_ORDER_SHUFFLED);
    r->dataset.fields = f;
    r->dataset.n_fields = 3;
    r->dataset.fetch = ragged_fetch;
    r->dataset.user = how;
    if (collate == PAD) r->batch.collate = dlp_collate_pad;
    if (collate == PACK) r->batch.collate = dlp_collate_pack;
}

/* A map that sees what fetch wrote, lengths too, and leaves them. */
static int look_map(void *user, dlp_item *it) {
    (void)user;
    CHECK(it->length[0] == tokens_of(it->index) && it->length[2] == notes_of(it->index) &&
          it->length[1] == 0);
    CHECK(row_tokens_same(it->data[0], it->index, TOKENS_MAX));
    return 0;
}

static void ragged__every_collate__lengths_rows_zeros(void) {
    for (int kind = 0; kind < 192; kind++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        int collate = kind % 3, how = kind / 3 & 1 ? DIRTY_TAIL : FINE, rc;
        if (how == DIRTY_TAIL && inside_debug()) continue; /* an error there: overrun.c */
        rig_ragged(&r, fields, &how, collate);
        rig_workers(&r, kind / 6 & 1 ? 3 : 0, kind / 12 & 1);
        r.pipe.epochs = 2;
        r.dataset.writes_all_bytes = kind / 24 & 1;
        r.n_item_maps = kind / 48 & 1;
        r.item_map[0].map.item = look_map;
        r.n_transfers = kind / 96 & 1;
        if (rig_open(&r, &p) != DLP_OK) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            CHECK(lengths_same(b));
            CHECK(collate == PACK ? packed_same(b) : wide_same(b, collate));
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(rc == DLP_END);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

static int first_error(rig *r, dlp_error *err) {
    dlp_pipe *p;
    dlp_batch *b;
    int rc;
    if (rig_open(r, &p) != DLP_OK) return 0;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK)
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    *err = *dlp_pipe_error(p);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return rc;
}

static void ragged__more_than_max_per_batch__error_names_item(void) {
    for (int collate = PAD; collate <= PACK; collate++)
        for (int workers = 0; workers < 3; workers += 2) {
            rig r;
            dlp_field tight[3];
            dlp_error err;
            int how = FINE;
            char item[32];
            uint64_t rows = 0, first = 0, longest = 0, index;
            memcpy(tight, fields, sizeof tight);
            tight[0].max_per_batch = 36;
            rig_ragged(&r, tight, &how, collate);
            rig_order(&r, DLP_ORDER_SEQUENTIAL);
            rig_workers(&r, workers, 0);
            for (index = 0; index < 203; index++) { /* the first item that does not fit its batch */
                if (index % 10 == 0) rows = longest = 0;
                if (tokens_of(index) > tokens_of(longest) || index % 10 == 0) longest = index;
                if (collate == PACK && (rows += tokens_of(index)) > 36) break;
                if (collate == PAD && tokens_of(longest) * 10 > 36) break;
            }
            first = index;
            for (index = first / 10 * 10; collate == PAD && index < first / 10 * 10 + 10; index++)
                if (tokens_of(index) > tokens_of(first)) first = index;
            snprintf(item, sizeof item, "item %d", (int)first);
            CHECK(first_error(&r, &err) == DLP_ERR_CALLBACK);
            CHECK(strstr(err.message, "tokens") != NULL && strstr(err.message, item) != NULL);
            CHECK(strcmp(err.stage, "batch") == 0);
            tight[0].max_per_batch = 70;
            CHECK(first_error(&r, &err) == DLP_END);
        }
}

static void ragged__wrong_length__error_names_field_and_item(void) {
    for (int how = TOO_LONG; how <= FIXED_LENGTH; how++)
        for (int workers = 0; workers < 3; workers += 2) {
            rig r;
            dlp_error err;
            rig_ragged(&r, fields, &how, workers ? PAD : IN_PLACE);
            rig_workers(&r, workers, 0);
            CHECK(first_error(&r, &err) == DLP_ERR_LENGTH);
            CHECK(err.has_item && err.index == 21 && strcmp(err.stage, "fetch") == 0);
            CHECK(strstr(err.message, how == TOO_LONG ? "notes" : "label") != NULL);
            CHECK(strcmp(err.field, how == TOO_LONG ? "notes" : "label") == 0);
        }
}

/* A callback that sets lengths and fails says nothing of the item after it. */
static int fails_with_length(void *user, dlp_item *it) {
    (void)user;
    if (it->index % 5 == 2) {
        it->length[1] = 9;
        return -1;
    }
    return rig_fetch(NULL, it);
}

static void ragged__length_of_a_failed_item__forgotten(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    rig_init(&r, 50, 10);
    r.dataset.fetch = fails_with_length;
    r.fetch.on_error = DLP_ON_ERROR_DROP;
    if (rig_open(&r, &p) != DLP_OK) return;
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        for (uint32_t i = 0; i < b->count; i++) CHECK(b->valid[i] == (b->index[i] % 5 != 2));
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* A map may run on an item again. It sets a wrong length first. */
static int too_long_map(void *user, dlp_item *it) {
    (void)user;
    CHECK(it->length[0] == tokens_of(it->index) && it->length[2] == notes_of(it->index));
    if (it->attempt == 0) it->length[it->index % 3] = UINT64_C(1) << 40;
    return 0;
}

static void ragged__wrong_length_of_a_map__its_next_attempt_finds_the_right_one(void) {
    for (int workers = 0; workers < 2; workers++) {
        int how = FINE, rc;
        dlp_pipe *p;
        dlp_batch *b;
        rig r;
        rig_ragged(&r, fields, &how, IN_PLACE);
        rig_workers(&r, workers, 0);
        r.n_item_maps = 1;
        r.item_map[0].map.item = too_long_map;
        r.item_map[0].workers.idempotent = 1;
        r.item_map[0].workers.retries = 1;
        if (rig_open(&r, &p) != DLP_OK) return;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            CHECK(lengths_same(b) && wide_same(b, IN_PLACE));
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(rc == DLP_END && dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- a collate with fields of its own ---- */

static const dlp_field out_fields[2] = {{"sum", DLP_U64, 0, {0}, 0, 0},
                                        {"grid", DLP_U16, 2, {4, 2}, 0, 0}};

static int own_collate(void *user, dlp_collate *c) {
    uint64_t *sum = c->out[0].data;
    uint16_t *grid = c->out[1].data;
    (void)user;
    CHECK(c->n_in == 2 && c->n_out == 2 && c->in[0].stride == 24 && c->out[1].capacity == 10 * 16);
    CHECK(c->out[1].ndim == 3 && c->out[1].shape[0] == c->count && c->out[1].shape[1] == 4);
    for (uint32_t r = 0; r < c->count; r++) {
        const uint64_t *words =
            (const uint64_t *)(const void *)((const uint8_t *)c->in[0].data + r * c->in[0].stride);
        sum[r] = words[0] * 1000 + (words[1] & UINT32_MAX);
        grid[r * 6] = (uint16_t)c->index[r];
    }
    c->out[1].shape[1] = 3;
    if (c->epoch == 1) c->out[1].shape[1] = 5; /* more than there is room for */
    return 0;
}

static void keep_warning(void *user, const char *message) {
    char *all = user;
    if (strstr(message, "length") != NULL) strcat(strcat(all, message), "\n");
}

/* fetch writes rows of a ragged field and forgets to set their number: the first batch comes with a
   warning that names the field, in each way in which a batch is made. */
static void ragged__length_never_set__warned_after_the_first_batch(void) {
    static const char *const names[] = {NULL, "\"tokens\"", "\"notes\""};
    for (int forgets = NOTHING; forgets <= NOTES; forgets++)
        for (int collate = IN_PLACE; collate <= PACK; collate++)
            for (int workers = 0; workers < 3; workers += 2) {
                rig r;
                dlp_pipe *p;
                dlp_batch *b;
                char all[1000] = "";
                int how = FORGETS + forgets, n = 0;
                if (forgets != NOTHING && inside_debug()) continue; /* an error there */
                rig_ragged(&r, fields, &how, collate);
                r.fetch.num_workers = workers;
                r.pipe.log = keep_warning;
                r.pipe.log_user = all;
                if (rig_open(&r, &p) != DLP_OK) return;
                for (; dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK; n++) {
                    const char *newline = strchr(all, '\n');
                    CHECK((newline != NULL) == (forgets != NOTHING));
                    if (forgets != NOTHING)
                        CHECK(strstr(all, names[forgets]) && newline[1] == 0 && /* one, whole */
                              strstr(all, "item->length[") && newline - all < 159);
                    CHECK(dlp_pipe_release(p, b) == DLP_OK);
                }
                CHECK(n > 1 && dlp_pipe_close(p) == DLP_OK);
            }
}

static void ragged__custom_collate__its_own_fields(void) {
    for (int workers = 0; workers < 3; workers++)
        for (int dispatch = 0; dispatch < 2; dispatch++) {
            rig r;
            dlp_pipe *p;
            dlp_batch *b;
            int n = 0, rc;
            rig_init(&r, 100, 10);
            rig_workers(&r, workers, dispatch);
            r.batch.collate = own_collate;
            r.batch.out_fields = out_fields;
            r.batch.n_out_fields = 2;
            r.pipe.epochs = 2;
            if (rig_open(&r, &p) != DLP_OK) return;
            while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
                const uint64_t *sum = b->fields[0].data;
                const uint16_t *grid = b->fields[1].data;
                CHECK(b->n_fields == 2 && strcmp(b->fields[1].name, "grid") == 0 &&
                      b->fields[1].bytes == b->count * 12);
                CHECK(b->fields[1].shape[1] == 3 && b->fields[1].shape[2] == 2 &&
                      b->fields[1].lengths == NULL);
                for (uint32_t i = 0; i < b->count; i++) {
                    CHECK(sum[i] == b->index[i] * 1000 + b->position + i &&
                          grid[i * 6] == b->index[i]);
                    for (uint32_t k = 1; k < 6; k++) CHECK(grid[i * 6 + k] == 0);
                }
                n++;
                /* the caller's until release */
                memset(b->fields[1].data, 0xee, b->fields[1].bytes);
                CHECK(dlp_pipe_release(p, b) == DLP_OK);
            }
            CHECK(n == 10 && rc == DLP_ERR_LENGTH &&
                  strstr(dlp_pipe_error(p)->message, "grid") != NULL);
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
}

/* What a collate may set, but for one value. */
static int wrong_;

static int wrong_collate(void *user, dlp_collate *c) {
    const int pads = wrong_ < 3 || wrong_ == 9;
    const int rc = pads ? dlp_collate_pad(user, c) : dlp_collate_pack(user, c);
    for (uint32_t f = 0; f < c->n_out; f++) {
        struct dlp_collate_out *out = &c->out[f];
        if (!out->field->ragged) continue;
        if (wrong_ == 1) out->lengths[c->count - 1] = UINT64_C(1) << 60;
        if (wrong_ == 2) out->lengths[0] = (uint64_t)out->shape[1] + 1;
        if (wrong_ == 4) out->offsets[c->count] = UINT64_C(1) << 60;
        if (wrong_ == 5) out->offsets[c->count]++;
        if (wrong_ == 6) out->offsets[1] = out->offsets[2] + 1;
        if (wrong_ == 7) out->lengths[0] = UINT64_C(1) << 60;
        if (wrong_ == 8) /* one row of all items */
            memmove(&out->shape[1], &out->shape[0], sizeof *out->shape * (size_t)out->ndim++);
        if (wrong_ == 8) out->shape[0] = 1;
        if (wrong_ >= 9 && out->ndim == 2 + pads) { /* the last two dimensions change places */
            const int64_t rows = out->shape[out->ndim - 2];
            out->shape[out->ndim - 2] = out->shape[out->ndim - 1];
            out->shape[out->ndim - 1] = rows;
        }
    }
    return rc;
}

static void ragged__collate_sets_wrong_lengths_or_offsets__error_names_the_field(void) {
    for (wrong_ = 0; wrong_ < 11; wrong_++)
        for (int workers = 0; workers < 3; workers += 2) {
            int how = FINE, rc;
            dlp_pipe *p;
            dlp_batch *b;
            rig r;
            rig_ragged(&r, fields, &how, PAD);
            rig_workers(&r, workers, 0);
            r.batch.collate = wrong_collate;
            if (rig_open(&r, &p) != DLP_OK) return;
            while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) dlp_pipe_release(p, b);
            const int fine = wrong_ % 8 == 0 || wrong_ == 3 || wrong_ >= 9;
            CHECK(rc == (fine ? DLP_END : DLP_ERR_LENGTH));
            if (rc != DLP_END)
                CHECK(strstr(dlp_pipe_error(p)->message, "the collate gave") != NULL);
            if (rc != DLP_END) CHECK(dlp_pipe_error(p)->field[0] != 0);
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
}

/* A built-in collate and out_fields that are not the dataset's: refused, not written past the
   end. */
static void ragged__builtin_collate_with_other_fields__refused(void) {
    static const dlp_field small[2] = {{"words", DLP_U8, 1, {3}, 0, 0},
                                       {"label", DLP_U8, 0, {0}, 0, 0}};
    for (int collate = PAD; collate <= PACK; collate++) {
        rig r;
        dlp_error err;
        rig_init(&r, 203, 100);
        r.batch.collate = collate == PAD ? dlp_collate_pad : dlp_collate_pack;
        r.batch.out_fields = small;
        r.batch.n_out_fields = 2;
        CHECK(first_error(&r, &err) == DLP_ERR_CALLBACK);
        CHECK(strstr(err.message, "out_fields") != NULL);
        r.batch.out_fields = rig_fields; /* the same again: fine */
        CHECK(first_error(&r, &err) == DLP_END);
    }
}

/* ---- bytes that nobody wrote ---- */

static int lazy_fetch(void *user, dlp_item *it) { /* writes a byte, and that not always */
    (void)user;
    if (it->index % 3 == 0) memset(it->data[0], 0xff, 1 + it->index % 24);
    if (it->index % 4 == 0) memset(it->data[1], 0xff, 4);
    return it->index % 7 == 5 ? DLP_SKIP : 0;
}

static void ragged__bytes_not_written__zero(void) {
    for (int kind = 0; kind < 24; kind++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        rig_init(&r, 203, 20);
        rig_order(&r, DLP_ORDER_SHUFFLED);
        rig_workers(&r, kind % 3, kind / 3 & 1);
        r.dataset.fetch = lazy_fetch;
        r.fetch.on_error = DLP_ON_ERROR_DROP;
        r.pipe.epochs = 3;
        r.n_transfers = kind / 6 & 1;
        if (kind / 12) r.batch.collate = dlp_collate_pad;
        if (rig_open(&r, &p) != DLP_OK) return;
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            for (uint32_t i = 0; i < b->count; i++) {
                const uint8_t *words = (const uint8_t *)b->fields[0].data + 24 * i;
                const uint8_t *label = (const uint8_t *)b->fields[1].data + 4 * i;
                uint64_t left = b->index[i] % 7 == 5,
                         set = b->index[i] % 3 == 0 ? 1 + b->index[i] % 24 : 0;
                int ok = b->valid[i] == !left;
                for (uint64_t k = 0; k < 24; k++) ok &= words[k] == (!left && k < set ? 0xff : 0);
                for (uint64_t k = 0; k < 4; k++)
                    ok &= label[k] == (!left && b->index[i] % 4 == 0 ? 0xff : 0);
                CHECK(ok);
            }
            /* what the slot holds when it comes back */
            memset(b->fields[0].data, 0xaa, b->fields[0].bytes);
            memset(b->fields[1].data, 0xaa, b->fields[1].bytes);
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(dlp_pipe_error(p)->code == 0);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- rooms that are larger than their items ---- */

enum { ROOM_ITEMS = 400, ROOM_ROWS = 8 };
enum { TOUCH_NOTHING, TOUCH_ALL, TOUCH_PADDING, TOUCHES };
typedef struct room_case {
    uint64_t room;
    int writes_all, workers, fetcher, map, batch_map, touch;
} room_case;

static uint64_t room_length(const room_case *c, uint64_t index) {
    const uint64_t k = dlp_hash(7, index, 0, 0), most = c->room < 300 ? c->room : 300;
    return index % 37 == 3 ? c->room : index % 11 == 2 ? 0 : k % (most + 1);
}
static uint8_t room_byte(uint64_t index, uint64_t k) {
    return (uint8_t)(1 + (index * 7 + k) % 255);
}
/* Bytes of its item that fetch does not write. They are zeros, unless it has promised them. */
static int room_hole(const room_case *c, uint64_t index, uint64_t k) {
    return !c->writes_all && (index + k) % 64 < 3;
}

/* Every fifth item fails once, after it has filled its room. Every 13th is left out so. */
static int room_fetch(void *user, dlp_item *it) {
    const room_case *c = user;
    const uint64_t n = room_length(c, it->index);
    uint8_t *at = it->data[0];
    if (it->index % 13 == 6 || (it->index % 5 == 1 && it->attempt == 0)) {
        memset(at, 0xee, c->room);
        it->length[0] = it->index % 3;
        return it->index % 13 == 6 ? DLP_SKIP : -1;
    }
    for (uint64_t k = 0; k < n; k++)
        if (!room_hole(c, it->index, k)) at[k] = room_byte(it->index, k);
    it->length[0] = n;
    return 0;
}
/* A map that halves each second item. */
static int room_map(void *user, dlp_item *it) {
    (void)user;
    if (it->index % 2 == 0) it->length[0] /= 2;
    return 0;
}
static uint64_t room_rows(const room_case *c, uint64_t index) {
    const uint64_t n = room_length(c, index);
    return c->map && index % 2 == 0 ? n / 2 : n;
}
static int room_pads(void *user, dlp_batch *b, void *state) {
    const room_case *c = user;
    (void)state;
    for (uint32_t r = 0; r < b->count; r++) {
        const uint64_t n = b->fields[0].lengths[r];
        memset((uint8_t *)b->fields[0].data + r * c->room + n, 0xbb, c->room - n);
    }
    return 0;
}

static int room_row_same(const room_case *c, const uint8_t *row, uint64_t index, int valid) {
    const uint64_t n = valid ? room_rows(c, index) : 0;
    const uint8_t pad = c->batch_map ? 0xbb : 0;
    for (uint64_t k = 0; k < n; k++)
        if (row[k] != (room_hole(c, index, k) ? 0 : room_byte(index, k))) return 0;
    for (uint64_t k = n; k < c->room; k++)
        if (row[k] != pad) return 0;
    return 1;
}

/* What the consumer may do with its arrays. */
static void room_touch(const room_case *c, const dlp_batch *b) {
    uint8_t *data = b->fields[0].data;
    if (c->touch == TOUCH_ALL) memset(data, 0xaa, b->fields[0].bytes);
    for (uint32_t r = 0; r < b->count && c->touch == TOUCH_PADDING; r++) {
        const uint64_t n = b->fields[0].lengths[r], wide = n + 90 < c->room ? n + 90 : c->room;
        memset(data + r * c->room + n, 0xcc, wide - n);
    }
}

static void room_run(room_case *c) {
    const dlp_field field = {"bytes", DLP_U8, 1, {(int64_t)c->room}, 1, 0};
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    int rc, ok = 1;
    rig_init(&r, ROOM_ITEMS, ROOM_ROWS);
    rig_order(&r, DLP_ORDER_SHUFFLED);
    rig_workers(&r, c->workers, 0);
    r.dataset.fields = &field;
    r.dataset.n_fields = 1;
    r.dataset.fetch = room_fetch;
    r.dataset.user = c;
    r.dataset.writes_all_bytes = (uint32_t)c->writes_all;
    r.fetch.retries = 1;
    r.fetch.on_error = DLP_ON_ERROR_DROP;
    r.pipe.epochs = 2;
    if (c->fetcher) r.fetcher = DLP_FETCH_THREADS;
    if (c->fetcher) r.in_flight = 3;
    r.n_item_maps = c->map;
    r.item_map[0].map.item = room_map;
    r.n_batch_maps = c->batch_map;
    r.batch_map[0].map.batch = room_pads;
    r.batch_map[0].map.user = c;
    if (rig_open(&r, &p) != DLP_OK) return;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        for (uint32_t i = 0; i < b->count; i++) {
            CHECK(b->valid[i] == (b->index[i] % 13 != 6));
            CHECK(b->fields[0].lengths[i] == (b->valid[i] ? room_rows(c, b->index[i]) : 0));
            ok &= room_row_same(c, (const uint8_t *)b->fields[0].data + i * c->room, b->index[i],
                                b->valid[i]);
        }
        room_touch(c, b);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(rc == DLP_END && ok);
    if (rc != DLP_END || !ok)
        printf("room %d, all %d, workers %d, fetcher %d, map %d, %d, touch %d\n", (int)c->room,
               c->writes_all, c->workers, c->fetcher, c->map, c->batch_map, c->touch);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void rooms__items_of_any_length_fail_or_are_left_out__zeros_behind_them(void) {
    static const uint64_t rooms[] = {40, 330, 5000};
    for (int k = 0; k < 3 * 2 * 2 * 2 * 2 * TOUCHES; k++) {
        room_case c = {.room = rooms[k % 3],
                       .writes_all = k / 3 & 1,
                       .map = k / 6 & 1,
                       .batch_map = k / 12 & 1,
                       .workers = k / 24 & 1 ? 2 : 0,
                       .touch = k / 48};
        c.fetcher = c.workers > 0 && (k & 1);
        room_run(&c);
    }
}

/* Return the pages of the batch's first field that have memory. */
static size_t pages_of(const dlp_batch *b) {
    static unsigned char there[8192];
    const uint64_t bytes = b->fields[0].bytes & ~UINT64_C(4095);
    size_t n = 0;
    uint8_t *at = (uint8_t *)b->fields[0].data + 4096 - (uintptr_t)b->fields[0].data % 4096;
    if (mincore(at, bytes - 4096, there) != 0) return 0;
    for (size_t i = 0; i < bytes / 4096 - 1; i++) n += there[i] & 1u;
    return n;
}

static int short_fetch(void *user, dlp_item *it) {
    (void)user;
    it->length[0] = 1 + it->index % 1000;
    memset(it->data[0], (int)it->index, it->length[0]);
    return 0;
}

/* The bytes of a room behind its items are not so much as touched. */
static void rooms__short_items__no_memory_behind_them(void) {
    static const dlp_field field = {"bytes", DLP_U8, 1, {1 << 20}, 1, 0};
    for (int k = 0; k < 4 && !inside_debug(); k++) {
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        size_t most = 0;
        rig_init(&r, 200, 16);
        rig_workers(&r, k & 1 ? 2 : 0, 0);
        r.dataset.fields = &field;
        r.dataset.n_fields = 1;
        r.dataset.fetch = short_fetch;
        r.dataset.writes_all_bytes = k >= 2;
        if (rig_open(&r, &p) != DLP_OK) return;
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            if (pages_of(b) > most) most = pages_of(b);
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(most > 0 && most <= 3 * 16);
        if (most > 3 * 16) printf("%d pages for 16 items of at most 1000 bytes\n", (int)most);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- items that makers make, in rooms of 1 MiB ---- */

static int made_wrong; /* by several workers */
static void made_check(int wrong) {
    if (wrong) __atomic_fetch_add(&made_wrong, 1, __ATOMIC_RELAXED);
}
static void made_look(const dlp_item *it, uint64_t n) {
    const uint8_t *at = it->data[0];
    made_check(it->length[0] != n);
    for (uint64_t k = 0; k < 2000; k++) made_check(at[k] != (k < n ? (uint8_t)n : 0));
}
static uint64_t made_length(uint64_t input) { return 1 + input * 7 % 200; }

static int made_fetch(void *user, dlp_item *it) {
    (void)user;
    if (it->index % 5 == 1 && it->attempt == 0) return memset(it->data[0], 0xee, 2000), -1;
    it->length[0] = made_length(it->index);
    memset(it->data[0], (int)it->length[0], it->length[0]);
    return 0;
}
static int made_keep(void *user, const dlp_item *it) {
    (void)user;
    made_look(it, made_length(it->index));
    return it->index % 7 != 3;
}
/* Makes an item, and one of half of its length. */
static int made_expand(void *user, dlp_expand *x) {
    (void)user;
    for (uint64_t n = x->item->length[0], k = 0; k < 2; k++, n /= 2) {
        dlp_item *to = dlp_expand_add(x);
        if (to == NULL) break;
        for (uint64_t i = 0; i < 2000; i++) made_check(((const uint8_t *)to->data[0])[i] != 0);
        memset(to->data[0], (int)n, n);
        to->length[0] = n;
    }
    return 0;
}
static int made_map(void *user, dlp_item *it) {
    (void)user;
    made_look(it, it->length[0]);
    return 0;
}

static long pages_taken(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_minflt;
}

/* Makers, too, touch the bytes of their items and not the rooms, and find zeros behind them. */
static void rooms__made_items__no_memory_behind_them(void) {
    static const dlp_field field = {"bytes", DLP_U8, 1, {1 << 20}, 1, 0};
    for (int k = 0; k < 4; k++) {
        const dlp_node nodes[] = {
            {.name = "list", .verb = DLP_LIST, .list = {.n_items = 300}},
            {.name = "fetch",
             .verb = DLP_FETCH,
             .fetch =
                 {.fetch = made_fetch, .fields = &field, .n_fields = 1, .writes_all_bytes = k & 1},
             .workers = {.num_workers = k >= 2 ? 2 : 0, .retries = 1}},
            {.name = "keep", .verb = DLP_FILTER, .filter = {.keep = made_keep}},
            {.name = "make", .verb = DLP_EXPAND, .expand = {.expand = made_expand, .max_out = 2}},
            {.name = "look", .verb = DLP_MAP, .map = {.item = made_map}},
            {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}}};
        const long before = pages_taken();
        uint64_t rows = 0;
        dlp_error e;
        dlp_pipe *p;
        dlp_batch *b;
        int rc;
        made_wrong = 0;
        rc = dlp_pipe_open(&p, DLP_NODES(nodes), NULL, &e);
        CHECK(rc == DLP_OK);
        if (rc != DLP_OK) return;
        for (; (rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK; dlp_pipe_release(p, b))
            for (uint32_t r = 0; r < b->count; r++, rows++) {
                const uint64_t n = b->fields[0].lengths[r];
                const uint8_t *at = (const uint8_t *)b->fields[0].data + ((uint64_t)r << 20);
                for (uint64_t i = 0; i < 2000; i++) made_check(at[i] != (i < n ? (uint8_t)n : 0));
            }
        CHECK(rc == DLP_END && rows == 2 * 257 && made_wrong == 0);
        if (rc != DLP_END || rows != 514)
            printf("%d rows, %s\n", (int)rows, dlp_pipe_error(p)->message);
        CHECK(dlp_pipe_close(p) == DLP_OK);
        if (!inside_debug() && !RIG_TSAN && !RIG_ASAN) CHECK(pages_taken() - before < 20 * 256);
    }
}

static void keep_rooms(void *user, const char *message) {
    char *all = user;
    if (strstr(message, "rooms of") != NULL) strcat(strcat(all, message), "\n");
}

static int mean_fetch(void *user, dlp_item *it) {
    it->length[0] = it->index == 5 ? *(const uint64_t *)user : it->index % 3;
    return 0;
}

/* The plan tells the room of a field, in words and in its text, or has none to tell. */
static void plan_rooms(dlp_pipe *p, const char *words) {
    static char text[8000];
    dlp_plan plan;
    CHECK(dlp_pipe_plan(p, &plan) == DLP_OK && strcmp(plan.rooms, words) == 0);
    CHECK(dlp_plan_format(&plan, text, sizeof text) < (int)sizeof text);
    CHECK((strstr(text, "\nrooms: ") != NULL) == (words[0] != 0) && strstr(text, words) != NULL);
}

/* A room of over 32 times the mean is told once, with both numbers, and one of less is not. The
   plan tells it, too. */
static void rooms__many_times_the_mean__warned_once(void) {
    static const uint64_t rooms[] = {1 << 16, 4000, 1 << 16};
    for (int k = 0; k < 6; k++) {
        uint64_t room = rooms[k / 2], longest = k / 2 == 2 ? room : 100;
        const dlp_field field = {"bytes", DLP_U8, 1, {(int64_t)room}, 1, 0};
        const bool told = room >= 4096;
        rig r;
        dlp_pipe *p;
        dlp_batch *b;
        char all[1000] = "", first[200];
        rig_init(&r, k & 1 ? 60 : 900, 20); /* one epoch has fewer than are looked at */
        r.dataset.fields = &field;
        r.dataset.n_fields = 1;
        r.dataset.fetch = mean_fetch;
        r.dataset.user = &longest;
        r.pipe.epochs = 3;
        r.pipe.log = keep_rooms;
        r.pipe.log_user = all;
        if (rig_open(&r, &p) != DLP_OK) return;
        plan_rooms(p, "");
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) dlp_pipe_release(p, b);
        if (!told) plan_rooms(p, "");
        if (told) {
            snprintf(first, sizeof first, "%.*s", (int)strcspn(all, "\n"), all);
            plan_rooms(p, first);
        }
        if (told && longest == 100)
            CHECK(strcmp(all,
                         k & 1
                             ? "field \"bytes\": rooms of 65536 bytes, but the first items have 3 "
                               "on average; memory goes by the room. Cut long items\n"
                             : "field \"bytes\": rooms of 65536 bytes, but the first items have 2 "
                               "on average; memory goes by the room. Cut long items\n") == 0);
        CHECK((all[0] != 0) == told && (!told || strchr(all, '\n')[1] == 0));
        if ((all[0] != 0) != told) printf("%d: %s\n", k, all);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

int main(void) {
    ragged__every_collate__lengths_rows_zeros();
    ragged__more_than_max_per_batch__error_names_item();
    ragged__wrong_length__error_names_field_and_item();
    ragged__length_of_a_failed_item__forgotten();
    ragged__wrong_length_of_a_map__its_next_attempt_finds_the_right_one();
    ragged__length_never_set__warned_after_the_first_batch();
    ragged__custom_collate__its_own_fields();
    ragged__collate_sets_wrong_lengths_or_offsets__error_names_the_field();
    ragged__builtin_collate_with_other_fields__refused();
    ragged__bytes_not_written__zero();
    rooms__items_of_any_length_fail_or_are_left_out__zeros_behind_them();
    rooms__short_items__no_memory_behind_them();
    rooms__made_items__no_memory_behind_them();
    rooms__many_times_the_mean__warned_once();
    return test_end("pipe_ragged");
}
