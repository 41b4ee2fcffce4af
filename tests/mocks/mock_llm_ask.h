/* What a request asks for: the fields of a completion's JSON body that change the answer. */

typedef struct {
    Words words;
    double max_tokens;
    bool stream, usage;
    Member model;
    const char *wrong; /* what is wrong with it, or NULL */
} Ask;

static void visit_part(void *ask, Member m) {
    if (key_is(m, "text") && *m.val == '"') count_words(&((Ask *)ask)->words, m);
}

static void visit_parts(void *ask, Member m) {
    json_each(m.val, m.val_end, 0, visit_part, ask);
}

static void visit_message(void *ask, Member m) {
    if (!key_is(m, "content")) return;
    if (*m.val == '"') count_words(&((Ask *)ask)->words, m);
    else json_each(m.val, m.val_end, 0, visit_parts, ask);
}

static void visit_messages(void *ask, Member m) {
    json_each(m.val, m.val_end, 0, visit_message, ask);
}

static void visit_prompt(void *ask, Member m) {
    if (*m.val == '"') count_words(&((Ask *)ask)->words, m);
    else ((Ask *)ask)->words.count++; /* a token id */
}

static void visit_stream_options(void *ask, Member m) {
    if (key_is(m, "include_usage")) ((Ask *)ask)->usage = *m.val == 't';
}

static void visit_body(void *arg, Member m) {
    Ask *ask = arg;
    if (key_is(m, "prompt")) {
        if (*m.val == '"') count_words(&ask->words, m);
        else json_each(m.val, m.val_end, 0, visit_prompt, ask);
    } else if (key_is(m, "messages")) json_each(m.val, m.val_end, 0, visit_messages, ask);
    else if (key_is(m, "max_tokens") || key_is(m, "max_completion_tokens")) {
        double asked;
        if (json_number(m, &asked) && asked >= 1 && asked <= 1 << 20) ask->max_tokens = asked;
        else if (*m.val != 'n') ask->wrong = "max_tokens must be 1 to 1048576"; /* null asks for the default */
    } else if (key_is(m, "stream")) ask->stream = *m.val == 't';
    else if (key_is(m, "stream_options")) json_each(m.val, m.val_end, 0, visit_stream_options, ask);
    else if (key_is(m, "model") && *m.val == '"') ask->model = m;
}

static Ask read_ask(const char *body, size_t n) {
    Ask ask = {.words.hash = 1469598103934665603ULL, .max_tokens = 16};
    const char *end = json_each(skip_space(body, body + n), body + n, 0, visit_body, &ask);
    if (!end || skip_space(end, body + n) != body + n || *skip_space(body, body + n) != '{' || !valid_utf8(body, n))
        ask.wrong = "the body is not a JSON object";
    return ask;
}
