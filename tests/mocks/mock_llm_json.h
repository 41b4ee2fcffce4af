/* JSON as far as a completion request needs it: walk the members of one object or array, and count the words of a
 * string as it stands between its quotes. Nothing is copied; a request of a megabyte is read once. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_WORDS = 64, MAX_BLOCKS = 1024, MAX_DEPTH = 64 };

typedef struct {
    const char *key, *key_end; /* between the quotes; NULL in an array */
    const char *val, *val_end; /* a string keeps its quotes */
} Member;

typedef void (*Visit)(void *arg, Member m);

static const char *json_each(const char *p, const char *end, int depth, Visit visit, void *arg);

static const char *skip_space(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

/* `p` is at the opening quote; the result is just behind the closing one, or NULL. */
static const char *skip_string(const char *p, const char *end) {
    for (p++; p < end; p++) {
        if (*p == '\\') p++;
        else if (*p == '"') return p + 1;
        else if ((unsigned char)*p < 0x20) return NULL;
    }
    return NULL;
}

static const char *skip_value(const char *p, const char *end, int depth) {
    if (p >= end) return NULL;
    if (*p == '"') return skip_string(p, end);
    if (*p == '{' || *p == '[') return json_each(p, end, depth + 1, NULL, NULL);
    const char *from = p;
    if (*p == '-' || (*p >= '0' && *p <= '9')) {
        while (p < end && *p && strchr("+-.eE0123456789", *p)) p++;
        return p;
    }
    while (p < end && *p >= 'a' && *p <= 'z') p++;
    size_t n = (size_t)(p - from);
    bool known =
        (n == 4 && (!memcmp(from, "true", 4) || !memcmp(from, "null", 4))) || (n == 5 && !memcmp(from, "false", 5));
    return known ? p : NULL;
}

/* Visits each member of the object or array at `p`; the result is just behind it, or NULL when it is not valid. */
static const char *json_each(const char *p, const char *end, int depth, Visit visit, void *arg) {
    if (p >= end || (*p != '{' && *p != '[') || depth > MAX_DEPTH) return NULL;
    bool object = *p == '{';
    char close = object ? '}' : ']';
    p = skip_space(p + 1, end);
    if (p < end && *p == close) return p + 1;
    while (p < end) {
        Member m = {0};
        if (object) {
            if (*p != '"') return NULL;
            const char *after = skip_string(p, end);
            if (!after) return NULL;
            m.key = p + 1, m.key_end = after - 1;
            p = skip_space(after, end);
            if (p >= end || *p != ':') return NULL;
            p = skip_space(p + 1, end);
        }
        m.val = p;
        if (!(p = skip_value(p, end, depth))) return NULL;
        m.val_end = p;
        if (visit) visit(arg, m);
        p = skip_space(p, end);
        if (p < end && *p == close) return p + 1;
        if (p >= end || *p != ',') return NULL;
        p = skip_space(p + 1, end);
    }
    return NULL;
}

static bool key_is(Member m, const char *name) {
    size_t n = strlen(name);
    return m.key && (size_t)(m.key_end - m.key) == n && !memcmp(m.key, name, n);
}

/* The number of a member; true is 1, false is 0. Values are short, so a copy gives strtod its terminator. */
static bool json_number(Member m, double *number) {
    char text[40];
    size_t n = (size_t)(m.val_end - m.val);
    if (n >= sizeof text) return false;
    memcpy(text, m.val, n), text[n] = 0;
    if (!strcmp(text, "true") || !strcmp(text, "false")) return *number = text[0] == 't', true;
    char *rest;
    *number = strtod(text, &rest);
    return rest != text && !*rest;
}

static bool valid_utf8(const char *text, size_t n) {
    const unsigned char *p = (const unsigned char *)text, *end = p + n;
    while (p < end) {
        if (*p < 0x80) {
            p++;
            continue;
        }
        int more = *p >= 0xC2 && *p <= 0xDF ? 1 : (*p & 0xF0) == 0xE0 ? 2 : *p >= 0xF0 && *p <= 0xF4 ? 3 : 0;
        if (!more || end - p <= more) return false;
        if ((*p == 0xE0 && p[1] < 0xA0) || (*p == 0xED && p[1] > 0x9F) || (*p == 0xF0 && p[1] < 0x90) ||
            (*p == 0xF4 && p[1] > 0x8F))
            return false;
        for (p++; more--; p++)
            if ((*p & 0xC0) != 0x80) return false;
    }
    return true;
}

/* The mock's tokenizer: a word is a token. Each full block of 64 words has a hash over all words up to its end. */
typedef struct {
    long count;
    bool inside;
    uint64_t hash, blocks[MAX_BLOCKS];
    int nblocks;
} Words;

static void end_word(Words *w) {
    if (!w->inside) return;
    w->inside = false;
    w->hash = (w->hash ^ ' ') * 1099511628211ULL;
    if (++w->count % BLOCK_WORDS == 0 && w->nblocks < MAX_BLOCKS) w->blocks[w->nblocks++] = w->hash;
}

static void count_words(Words *w, Member m) {
    const char *p = m.val + 1, *end = m.val_end - 1;
    for (; p < end; p++) {
        bool space = *p == ' ';
        if (*p == '\\' && p + 1 < end) {
            p++;
            space = *p == 'n' || *p == 't' || *p == 'r' || *p == 'f';
            if (*p == 'u' && end - p > 4) {
                char code[5] = {p[1], p[2], p[3], p[4], 0};
                long point = strtol(code, NULL, 16);
                space = point == ' ' || (point >= 9 && point <= 13);
                for (int i = 0; i < 4; i++, p++) w->hash = (w->hash ^ (unsigned char)*p) * 1099511628211ULL;
            }
        }
        if (space) end_word(w);
        else w->inside = true, w->hash = (w->hash ^ (unsigned char)*p) * 1099511628211ULL;
    }
    end_word(w);
}
