/* What really happened, as the server saw it: one record a request, in nanoseconds of CLOCK_MONOTONIC. */
#include <stdarg.h>
#include <sys/mman.h>
#include <time.h>

enum { MAX_RECORDS = 1 << 20, MAX_STAMPS = 1 << 22 };

typedef struct {
    char *data;
    size_t len, cap, off; /* `off` bytes of `len` are written already */
} Buf;

static void buf_room(Buf *b, size_t more) {
    if (b->len + more <= b->cap) return;
    b->cap = (b->len + more) * 2 + 1024;
    if (!(b->data = realloc(b->data, b->cap))) abort();
}

static inline void buf_put(Buf *b, const void *data, size_t n) {
    buf_room(b, n);
    memcpy(b->data + b->len, data, n);
    b->len += n;
}

__attribute__((format(printf, 2, 3))) static void buf_print(Buf *b, const char *format, ...) {
    buf_room(b, 1024);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(b->data + b->len, b->cap - b->len, format, args);
    va_end(args);
    if (n > 0 && b->len + (size_t)n < b->cap) b->len += (size_t)n;
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* A moment of real time, as the kernel stamps what it receives, on the monotonic clock; how far the two are apart is
 * looked at again every second. */
static int64_t from_realtime_ns(struct timespec real) {
    static int64_t ahead_ns, looked_ns;
    int64_t at_ns = now_ns();
    if (!looked_ns || at_ns - looked_ns > 1000000000LL) {
        int64_t quickest = INT64_MAX;
        for (int i = 0; i < 5; i++) {
            struct timespec t;
            int64_t before = now_ns();
            clock_gettime(CLOCK_REALTIME, &t);
            int64_t after = now_ns();
            if (after - before >= quickest) continue;
            quickest = after - before;
            ahead_ns = t.tv_sec * 1000000000LL + t.tv_nsec - (before + after) / 2;
        }
        looked_ns = at_ns;
    }
    return real.tv_sec * 1000000000LL + real.tv_nsec - ahead_ns;
}

typedef struct {
    uint64_t request; /* its number since the start, also in the answer's id */
    int64_t received_ns; /* by the kernel: before this process got round to reading it */
    int64_t arrival_ns, start_ns, due_ns, first_ns, last_ns, end_ns; /* 0: did not happen */
    int64_t late_ns, min_gap_ns, max_gap_ns;                         /* late: the worst of all writes against the law */
    int64_t stamps; /* place of the first stamp in the pool, -1 when the pool was full */
    int status, prompt_tokens, cached_tokens, asked_tokens, output_tokens, events, kept, held;
    const char *outcome;
} Record;

static const double bounds_s[] = {0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5};
enum { BOUNDS = sizeof bounds_s / sizeof *bounds_s };
typedef struct {
    double sum_s;
    uint64_t count, upto[BOUNDS];
} Histogram; /* as Prometheus counts: each bucket holds all below its bound */

static void histogram_add(Histogram *h, int64_t ns) {
    double s = (double)ns / 1e9;
    h->sum_s += s, h->count++;
    for (int i = 0; i < BOUNDS; i++) h->upto[i] += s <= bounds_s[i];
}

static Record *records; /* ring; untouched pages cost nothing */
static int64_t *stamps;
static struct {
    uint64_t requests, completed, failed, gone, prompt_tokens, output_tokens, cache_queries, cache_hits;
    uint64_t max_concurrent, max_connections;
    Histogram queue, ttft;
    int64_t used_stamps;
} seen;
static uint64_t next_request, first_request; /* of all; of those since the last reset */

static void *untouched(size_t size) {
    void *place = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) perror("mock_llm: memory"), exit(1);
    return place;
}

static void truth_open(void) {
    records = untouched(MAX_RECORDS * sizeof *records);
    stamps = untouched(MAX_STAMPS * sizeof *stamps);
}

static void truth_reset(void) {
    memset(&seen, 0, sizeof seen);
    first_request = next_request;
}

/* The record of a request; NULL when a reset or a million later requests have taken it away. */
static Record *record_of(uint64_t request) {
    Record *r = &records[request % MAX_RECORDS];
    return request >= first_request && r->request == request ? r : NULL;
}

static Record *record_new(int64_t received_ns, int64_t arrival_ns, int asked_tokens) {
    Record *r = &records[next_request % MAX_RECORDS];
    *r = (Record){.request = next_request,
                  .received_ns = received_ns,
                  .arrival_ns = arrival_ns,
                  .asked_tokens = asked_tokens,
                  .outcome = "running",
                  .stamps = -1};
    if (seen.used_stamps + asked_tokens <= MAX_STAMPS) r->stamps = seen.used_stamps, seen.used_stamps += asked_tokens;
    next_request++;
    seen.requests++;
    return r;
}

static void record_event(Record *r, int64_t at_ns, int64_t due_ns, int tokens) {
    seen.output_tokens += (uint64_t)tokens;
    if (!r) return;
    if (!r->events) {
        r->first_ns = at_ns;
        histogram_add(&seen.ttft, at_ns - r->arrival_ns);
    } else {
        int64_t gap = at_ns - r->last_ns;
        if (r->events == 1 || gap < r->min_gap_ns) r->min_gap_ns = gap;
        if (gap > r->max_gap_ns) r->max_gap_ns = gap;
    }
    if (at_ns - due_ns > r->late_ns) r->late_ns = at_ns - due_ns;
    if (r->stamps >= 0 && r->kept < r->asked_tokens) stamps[r->stamps + r->kept++] = at_ns;
    r->last_ns = at_ns, r->events++, r->output_tokens += tokens;
}

static void truth_print(Buf *b) {
    buf_print(
        b,
        "request,received_ns,arrival_ns,start_ns,due_ns,first_ns,last_ns,end_ns,late_ns,min_gap_ns,max_gap_ns,status,"
        "prompt_tokens,cached_tokens,asked_tokens,output_tokens,events,held,outcome,event_ns\n");
    uint64_t from = next_request - first_request > MAX_RECORDS ? next_request - MAX_RECORDS : first_request;
    for (uint64_t i = from; i < next_request; i++) {
        Record *r = &records[i % MAX_RECORDS];
        buf_print(b, "%lu,%ld,%ld,%ld,%ld,%ld,%ld,%ld,%ld,%ld,%ld,%d,%d,%d,%d,%d,%d,%d,%s,", r->request, r->received_ns, r->arrival_ns,
                  r->start_ns, r->due_ns, r->first_ns, r->last_ns, r->end_ns, r->late_ns, r->min_gap_ns, r->max_gap_ns,
                  r->status, r->prompt_tokens, r->cached_tokens, r->asked_tokens, r->output_tokens, r->events,
                  r->held, r->outcome);
        for (int k = 0; k < r->kept; k++) buf_print(b, k ? ";%ld" : "%ld", stamps[r->stamps + k]);
        buf_put(b, "\n", 1);
    }
}

/* Block hashes of all prompts so far: an open-addressed set that grows. */
static uint64_t *cache;
static size_t cache_size, cache_used;

static bool cache_add(uint64_t hash) {
    if (cache_used * 2 >= cache_size) {
        uint64_t *old = cache;
        size_t old_size = cache_size;
        cache_size = old_size ? old_size * 2 : 1024, cache_used = 0;
        if (!(cache = calloc(cache_size, sizeof *cache))) abort();
        for (size_t i = 0; i < old_size; i++)
            if (old[i]) cache_add(old[i]);
        free(old);
    }
    hash |= 1; /* 0 marks a free place */
    size_t at = hash * 0x9E3779B97F4A7C15ULL % cache_size;
    for (; cache[at]; at = (at + 1) % cache_size)
        if (cache[at] == hash) return false;
    cache[at] = hash;
    cache_used++;
    return true;
}

/* How many leading words of the prompt were seen before, in whole blocks; remembers it for the next. */
static int cached_words(const Words *w) {
    int cached = 0;
    bool hit = true;
    for (int i = 0; i < w->nblocks; i++) {
        hit = !cache_add(w->blocks[i]) && hit;
        cached += hit ? BLOCK_WORDS : 0;
    }
    seen.cache_queries += (uint64_t)w->count, seen.cache_hits += (uint64_t)cached;
    return cached;
}

static void cache_clear(void) {
    free(cache);
    cache = NULL, cache_size = cache_used = 0;
}
