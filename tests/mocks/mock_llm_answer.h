/* The words of the protocol: heads, events and pages, shaped like vLLM's. Everything is appended to a buffer. */

static uint64_t random_state[2]; /* [0] the law, [1] the flaws: planting a flaw does not change the service times */

static uint64_t random_bits(int stream) {
    uint64_t z = random_state[stream] += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

static double random_share(int stream) {
    return (double)(random_bits(stream) >> 11) * 0x1p-53;
}

static bool happens(double share) {
    return share > 0 && random_share(1) < share;
}

static void random_seed(void) {
    random_state[0] = (uint64_t)options.seed * 2 + 1, random_state[1] = ~random_state[0];
    random_bits(0), random_bits(1);
}

enum { SSE = 1, JSON = 2, CUT_BYTES = 9 /* off the end of malformed JSON, where all is ASCII */ };

/* What an answer is made of, fixed when its request arrives. */
typedef struct {
    char about[320]; /* `"id":...,"object":...,"created":...,"model":...,` */
    size_t about_len;
    bool chat, stream, usage, split, keep_alive;
    int malformed, tokens, prompt_tokens, cached_tokens;
    const char *finish;
} Answer;

static const char *const words[] = {" load", " grüße", " tail",  " 数据", " mean", " naïve", " queue", " 🐝",
                                    " wait", " rate",  " event", " été",  " byte", " token", " slot",  " knee"};
enum { WORD_COUNT = sizeof words / sizeof *words };

static void put_text(Buf *b, const char *text) {
    buf_put(b, text, strlen(text));
}

static void put_words(Buf *b, int from, int count) {
    for (int i = from; i < from + count; i++) put_text(b, words[i % WORD_COUNT]);
}

static void put_chunk(Buf *b, const char *data, size_t n) {
    char size[20];
    int at = sizeof size;
    size[--at] = '\n', size[--at] = '\r';
    for (size_t left = n; left; left >>= 4) size[--at] = "0123456789abcdef"[left & 15];
    buf_put(b, size + at, sizeof size - (size_t)at);
    buf_put(b, data, n);
    buf_put(b, "\r\n", 2);
}

/* Where the next odd chunk ends: at any byte, by preference inside a character of several bytes. */
static size_t odd_piece(const char *data, size_t n) {
    size_t piece = 1 + random_bits(1) % 40;
    for (size_t i = 1; i < n && i < 80 && random_bits(1) % 64; i++)
        if (((unsigned char)data[i] & 0xC0) == 0x80) return i;
    return piece;
}

static void put_body(const Answer *a, Buf *b, const char *data, size_t n) {
    while (a->split) {
        size_t piece = odd_piece(data, n);
        if (piece >= n) break;
        put_chunk(b, data, piece);
        data += piece, n -= piece;
    }
    put_chunk(b, data, n);
}

static void put_usage(const Answer *a, Buf *b, int tokens) {
    buf_print(b,
              "\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,\"prompt_tokens_details\":{"
              "\"cached_tokens\":%d}}",
              a->prompt_tokens, tokens, a->prompt_tokens + tokens, a->cached_tokens);
}

static void put_finish(Buf *b, const char *finish) {
    put_text(b, ",\"logprobs\":null,\"finish_reason\":");
    if (finish) buf_put(b, "\"", 1), put_text(b, finish), buf_put(b, "\"", 1);
    else put_text(b, "null");
    put_text(b, ",\"stop_reason\":null}]");
}

static Buf event; /* scratch */

static void event_begin(const Answer *a) {
    event.len = 0;
    put_text(&event, a->malformed == SSE ? "{" : "data: {");
    buf_put(&event, a->about, a->about_len);
}

static void event_end(const Answer *a, Buf *b) {
    if (a->malformed == JSON) event.len -= CUT_BYTES;
    else put_text(&event, "}");
    put_text(&event, a->malformed == SSE ? "\n" : "\n\n");
    put_body(a, b, event.data, event.len);
}

static void put_role_event(const Answer *a, Buf *b) {
    event_begin(a);
    put_text(&event, "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
    put_finish(&event, NULL);
    event_end(a, b);
}

static void put_token_event(const Answer *a, Buf *b, int from, int count, const char *finish) {
    event_begin(a);
    put_text(&event,
             a->chat ? "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" : "\"choices\":[{\"index\":0,\"text\":\"");
    put_words(&event, from, count);
    put_text(&event, a->chat ? "\"}" : "\"");
    put_finish(&event, finish);
    event_end(a, b);
}

static void put_plain_event(const Answer *a, Buf *b, const char *text) {
    put_body(a, b, text, strlen(text));
}

static void put_stream_end(const Answer *a, Buf *b, int tokens) {
    if (a->usage) {
        event_begin(a);
        put_text(&event, "\"choices\":[],");
        put_usage(a, &event, tokens);
        event_end(a, b);
    }
    put_plain_event(a, b, "data: [DONE]\n\n");
    put_text(b, "0\r\n\r\n");
}

static void put_stream_error(const Answer *a, Buf *b) {
    put_plain_event(
        a, b,
        "data: {\"error\":{\"message\":\"planted\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}\n\n");
    put_plain_event(a, b, "data: [DONE]\n\n");
    put_text(b, "0\r\n\r\n");
}

static void put_stream_head(const Answer *a, Buf *b) {
    put_text(b, "HTTP/1.1 200 OK\r\nserver: mock-llm\r\ncontent-type: text/event-stream; "
                "charset=utf-8\r\ntransfer-encoding: chunked\r\n");
    put_text(b, a->keep_alive ? "\r\n" : "connection: close\r\n\r\n");
}

/* A whole page with its head; `more` are further header lines, each with its line end. */
static void put_page(Buf *b, bool keep_alive, int status, const char *type, const char *more, const char *data,
                     size_t n) {
    const char *reason = status == 200   ? "OK"
                         : status == 307 ? "Temporary Redirect"
                         : status == 429 ? "Too Many Requests"
                         : status < 500  ? "Bad Request"
                                         : "Error";
    buf_print(b, "HTTP/1.1 %d %s\r\nserver: mock-llm\r\ncontent-type: %s\r\ncontent-length: %zu\r\n%s%s\r\n", status,
              reason, type, n, more, keep_alive ? "" : "connection: close\r\n");
    buf_put(b, data, n);
}

static void put_error(Buf *b, bool keep_alive, int status, const char *message) {
    char text[256];
    int n = snprintf(text, sizeof text, "{\"error\":{\"message\":\"%s\",\"type\":\"mock\",\"param\":null,\"code\":%d}}",
                     message, status);
    put_page(b, keep_alive, status, "application/json", status == 429 ? "retry-after: 1\r\n" : "", text, (size_t)n);
}

static void put_whole_answer(const Answer *a, Buf *b) {
    event.len = 0;
    put_text(&event, "{");
    buf_put(&event, a->about, a->about_len);
    put_text(&event, a->chat ? "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\""
                             : "\"choices\":[{\"index\":0,\"text\":\"");
    put_words(&event, 0, a->tokens);
    put_text(&event, a->chat ? "\"}" : "\"");
    put_finish(&event, a->finish);
    if (!options.no_usage) put_text(&event, ","), put_usage(a, &event, a->tokens);
    put_text(&event, "}");
    put_page(b, a->keep_alive, 200, "application/json", "", event.data,
             a->malformed ? event.len - CUT_BYTES : event.len);
}

static void put_histogram(Buf *b, const char *name, const Histogram *h) {
    buf_print(b, "# TYPE %s histogram\n", name);
    for (int i = 0; i < BOUNDS; i++)
        buf_print(b, "%s_bucket{model_name=\"mock\",le=\"%g\"} %lu\n", name, bounds_s[i], h->upto[i]);
    buf_print(b, "%s_bucket{model_name=\"mock\",le=\"+Inf\"} %lu\n", name, h->count);
    buf_print(b, "%s_count{model_name=\"mock\"} %lu\n%s_sum{model_name=\"mock\"} %.9f\n", name, h->count, name,
              h->sum_s);
}

static void put_metrics(Buf *b, uint64_t running, uint64_t waiting) {
    struct {
        const char *name, *type;
        uint64_t value;
    } simple[] = {
        {"vllm:num_requests_running", "gauge", running},
        {"vllm:num_requests_waiting", "gauge", waiting},
        {"vllm:prompt_tokens_total", "counter", seen.prompt_tokens},
        {"vllm:generation_tokens_total", "counter", seen.output_tokens},
        {"vllm:prefix_cache_queries_total", "counter", seen.cache_queries},
        {"vllm:prefix_cache_hits_total", "counter", seen.cache_hits},
        {"vllm:request_success_total", "counter", seen.completed},
    };
    for (size_t i = 0; i < sizeof simple / sizeof *simple; i++)
        buf_print(b, "# TYPE %s %s\n%s{model_name=\"mock\"} %lu\n", simple[i].name, simple[i].type, simple[i].name,
                  simple[i].value);
    put_histogram(b, "vllm:request_queue_time_seconds", &seen.queue);
    put_histogram(b, "vllm:time_to_first_token_seconds", &seen.ttft);
}
