/* Everything that can be planted, in one table: a flag `--ttft-ms 50`, a key of POST /mock/set `{"ttft_ms": 50}` and a
 * field of `options` are made from the same line. All are numbers; a flag without a value is 1. */
#include <stdio.h>

#define OPTIONS(X)                                                                                                     \
    X(port, 0, "port to listen on; 0 takes a free one (start only)")                                                   \
    X(until_eof, 0, "end when standard input ends (start only)")                                                       \
    X(realtime, 0,                                                                                                     \
      "run before all ordinary processes, so that a busy machine does not bend the law (start only, root)")            \
    X(seed, 1, "of all randomness; taken up at start and by /mock/reset")                                              \
    X(ttft_ms, 0, "service time before the first token")                                                               \
    X(ttft_exp, 0, "draw it from an exponential distribution with mean ttft_ms")                                       \
    X(itl_ms, 0, "time from one token to the next")                                                                    \
    X(itl_exp, 0, "draw it from an exponential distribution with mean itl_ms")                                         \
    X(servers, 0, "requests served at once, the others wait first come first served; 0: no limit")                     \
    X(service_exp_ms, 0, "mean of an exponential time before the first token, instead of ttft_ms")                     \
    X(early_head, 1, "send the HTTP head of a stream when the request arrives, not with the first token")              \
    X(early_role, 0, "send the first chat event (role, no content) with the early head")                               \
    X(coalesce, 1, "with itl_ms 0: all events of an answer in one write")                                              \
    X(check_model, 0, "404 for any model other than `mock`")                                                           \
    X(stall_at, 0, "seconds after the first request at which all output stops")                                        \
    X(stall_for, 0, "seconds for which it stops")                                                                      \
    X(prefix_cache, 0,                                                                                                 \
      "a prompt whose first 64 words were seen before has a tenth of the time before its first token")                 \
    X(short_share, 0, "share of answers that stop after half of the tokens asked for")                                 \
    X(fail_status, 0, "HTTP status of failures; 0: none")                                                              \
    X(fail_share, 1, "share of requests that fail")                                                                    \
    X(fail_for, 0, "seconds after the first request in which they fail; 0: for ever")                                  \
    X(reset_share, 0, "share of answers reset (RST) half way")                                                         \
    X(cut_share, 0, "share of answers whose connection is closed in order (FIN) half way")                             \
    X(error_share, 0, "share of streams with an error event half way")                                                 \
    X(never_end, 0, "share of answers that never end")                                                                 \
    X(malformed, 0, "1 or sse: events without their field name and blank line; 2 or json: JSON cut in the middle")     \
    X(malformed_share, 1, "share of answers that are malformed")                                                       \
    X(redirect, 0, "307 to another address")                                                                           \
    X(html, 0, "200 with a page instead of an answer")                                                                 \
    X(merge, 1, "tokens in one event")                                                                                 \
    X(split, 0, "HTTP chunks and writes end at random bytes")                                                          \
    X(cold, 0, "seconds after the first request in which everything takes five times as long")                         \
    X(drift, 1, "factor by which times have grown drift_over seconds after the first request")                         \
    X(drift_over, 60, "seconds the growth takes")                                                                      \
    X(close, 0, "close the connection after every answer")                                                             \
    X(no_usage, 0, "never say how many tokens were used")

static struct {
#define FIELD(name, value, help) double name;
    OPTIONS(FIELD)
#undef FIELD
} options = {
#define VALUE(name, value, help) .name = value,
    OPTIONS(VALUE)
#undef VALUE
};

static const struct {
    const char *name, *help;
    double *value;
} option_table[] = {
#define ROW(name, value, help) {#name, help, &options.name},
    OPTIONS(ROW)
#undef ROW
};
enum { OPTION_COUNT = sizeof option_table / sizeof *option_table };

/* The place of the option called `name`, with dashes or underscores, and `_share` left out where that names it (`short`
 * is a word of C, so the field is short_share); NULL when there is none. */
static double *find_option(const char *name, size_t n) {
    for (int i = 0; i < OPTION_COUNT; i++) {
        const char *own = option_table[i].name;
        size_t k = 0;
        while (k < n && own[k] && (own[k] == name[k] || (own[k] == '_' && name[k] == '-'))) k++;
        if (k == n && (!own[k] || !strcmp(own + k, "_share"))) return option_table[i].value;
    }
    return NULL;
}

static bool parse_option(const char *text, double *value) {
    if (!strcmp(text, "sse")) return *value = 1, true;
    if (!strcmp(text, "json")) return *value = 2, true;
    if (!strcmp(text, "none")) return *value = 0, true;
    char *rest;
    *value = strtod(text, &rest);
    return rest != text && !*rest && *value >= 0;
}

static void print_help(FILE *to) {
    fprintf(to, "A mock LLM server with a known service law, on 127.0.0.1. Options:\n");
    for (int i = 0; i < OPTION_COUNT; i++) {
        fputs("  --", to);
        for (const char *p = option_table[i].name; *p; p++) fputc(*p == '_' ? '-' : *p, to);
        fprintf(to, " (%g): %s\n", *option_table[i].value, option_table[i].help);
    }
}

static void read_flags(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help")) print_help(stdout), exit(0);
        double *place = strncmp(argv[i], "--", 2) ? NULL : find_option(argv[i] + 2, strlen(argv[i] + 2)), value = 1;
        bool alone = i + 1 == argc || !strncmp(argv[i + 1], "--", 2);
        if (!place || (!alone && !parse_option(argv[i + 1], &value))) {
            fprintf(stderr, "mock_llm: %s %s: no such option or value; --help lists them\n", argv[i],
                    alone ? "" : argv[i + 1]);
            exit(2);
        }
        *place = value;
        i += !alone;
    }
}

/* One member of POST /mock/set; `wrong` receives the first that is no option. */
static void set_option(void *wrong, Member m) {
    double value, *place = find_option(m.key, (size_t)(m.key_end - m.key));
    char text[16] = "";
    size_t n = (size_t)(m.val_end - m.val);
    if (*m.val == '"' && n - 2 < sizeof text) memcpy(text, m.val + 1, n - 2);
    if (place && ((*text && parse_option(text, &value)) || (json_number(m, &value) && value >= 0))) *place = value;
    else if (!((Member *)wrong)->key) *(Member *)wrong = m;
}
