/* A mock LLM server with a known service law: what a client measures can be held against what was planted.
 *
 * One thread, one epoll loop, one heap of due times. The law runs in planned time: a token is due one gap after the
 * moment its predecessor was due, and a waiting request starts at the moment a server was due to be free, so that the
 * loop's own lateness never adds up. What really happened is in the truth log (mock_llm_truth.h).
 *
 * A request's service time T runs from its start to its first token, further tokens follow at `itl_ms`; one of
 * `servers` is held from start to end. With `service_exp_ms` and one-token answers that is an M/M/c queue. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mock_llm_json.h"
#include "mock_llm_options.h"
#include "mock_llm_truth.h"
#include "mock_llm_answer.h"
#include "mock_llm_ask.h"

enum { MAX_REQUEST = 64 << 20, MAX_HEAD = 64 << 10, READ_SIZE = 256 << 10, TIMERS_A_ROUND = 32 };
enum { READING, WAITING, SERVING, HUNG };
enum { NO_FATE, RESET, CUT, ERROR_EVENT, NEVER_END };
enum { TOKEN, FLUSH };

typedef struct Conn {
    int fd, state;
    uint64_t counted_in; /* the age in which it last asked for a completion */
    uint32_t generation; /* grows when the connection closes: timers of the old one are then void */
    bool closing, blocked, piece_due;
    Buf in, out;
    size_t need; /* bytes of the request being read, once its head is known */
    Answer answer;
    uint64_t request;
    int64_t received_ns, arrival_ns, due_ns;
    int sent, events, fate, fate_after;
    bool holds, headed, roled;
    struct Conn *next; /* in the queue or the free list */
} Conn;

typedef struct {
    int64_t due_ns;
    Conn *conn;
    uint32_t generation;
    int kind;
} Timer;

static int poller;
static Timer *heap;
static size_t heap_len, heap_cap;
static Conn *queue_head, *queue_tail, *free_conns;
static uint64_t busy, waiting, concurrent;
static uint64_t connections, age = 1; /* those that have asked for a completion since the reset that began this age */
static int64_t epoch_ns;              /* arrival of the first request since the start or the last reset; 0 before it */

static void close_conn(Conn *c);
static void read_requests(Conn *c);

/* ---- timers ---- */

static void arm(int64_t due_ns, Conn *c, int kind) {
    if (heap_len == heap_cap && !(heap = realloc(heap, (heap_cap = heap_cap * 2 + 256) * sizeof *heap))) abort();
    size_t i = heap_len++;
    for (; i && heap[(i - 1) / 2].due_ns > due_ns; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = (Timer){due_ns, c, c->generation, kind};
}

static Timer take_first(void) {
    Timer first = heap[0], last = heap[--heap_len];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < heap_len) {
        if (child + 1 < heap_len && heap[child + 1].due_ns < heap[child].due_ns) child++;
        if (heap[child].due_ns >= last.due_ns) break;
        heap[i] = heap[child], i = child;
    }
    heap[i] = last;
    return first;
}

/* ---- the service law ---- */

static double since_first_s(int64_t at_ns) {
    return epoch_ns ? (double)(at_ns - epoch_ns) / 1e9 : 0;
}

static int64_t law_ns(double ms, bool exponential, int64_t at_ns) {
    double since = since_first_s(at_ns), slow = since < options.cold ? 5 : 1;
    if (options.drift_over > 0) slow *= 1 + (options.drift - 1) * fmin(since / options.drift_over, 1);
    return (int64_t)(ms * 1e6 * slow * (exponential ? -log1p(-random_share(0)) : 1));
}

/* Output that falls due inside the planted stall is held back to its end. */
static int64_t held(int64_t due_ns) {
    double since = since_first_s(due_ns);
    bool stalled = options.stall_for > 0 && since >= options.stall_at && since < options.stall_at + options.stall_for;
    return stalled ? epoch_ns + (int64_t)((options.stall_at + options.stall_for) * 1e9) : due_ns;
}

static void begin(Conn *c, int64_t start_ns) {
    Record *r = record_of(c->request);
    c->state = SERVING, c->holds = true;
    busy++;
    bool drawn = options.service_exp_ms > 0;
    int64_t service = law_ns(drawn ? options.service_exp_ms : options.ttft_ms, drawn || options.ttft_exp, start_ns);
    if (c->answer.cached_tokens) service /= 10;
    if (!c->answer.stream)
        for (int i = 1; i < c->answer.tokens && options.itl_ms > 0; i++)
            service += law_ns(options.itl_ms, options.itl_exp, start_ns + service);
    c->due_ns = held(start_ns + service);
    if (r) r->start_ns = start_ns, r->due_ns = c->due_ns, histogram_add(&seen.queue, start_ns - r->arrival_ns);
    arm(c->due_ns, c, TOKEN);
}

static void begin_waiting(int64_t free_ns) {
    while (queue_head && (options.servers == 0 || (double)busy < options.servers)) {
        Conn *c = queue_head;
        if (!(queue_head = c->next)) queue_tail = NULL;
        waiting--;
        begin(c, free_ns > c->arrival_ns ? free_ns : c->arrival_ns);
    }
}

static void leave_queue(Conn *c) {
    Conn **at = &queue_head, *before = NULL;
    while (*at != c) before = *at, at = &before->next;
    *at = c->next;
    if (queue_tail == c) queue_tail = before;
    waiting--;
}

/* The request is over, however it ended; its server is free at `free_ns`. */
static void leave(Conn *c, const char *outcome, int64_t free_ns) {
    Record *r = record_of(c->request);
    if (r) r->outcome = outcome, r->end_ns = now_ns();
    if (c->state == WAITING) leave_queue(c);
    c->state = READING;
    concurrent--;
    if (c->holds) c->holds = false, busy--;
    begin_waiting(free_ns);
}

/* ---- writing ---- */

static void watch(Conn *c, int how) {
    struct epoll_event e = {.events = EPOLLIN | (c->blocked ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poller, how, c->fd, &e);
}

/* Writes what is pending: all of it, or one odd piece when splitting. False: the connection is gone. */
static bool flush(Conn *c) {
    if (c->piece_due) return true;
    while (c->out.off < c->out.len) {
        size_t n = c->out.len - c->out.off, piece = c->answer.split ? 1 + random_bits(1) % 60 : n;
        ssize_t done = send(c->fd, c->out.data + c->out.off, piece < n ? piece : n, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0 && errno != EAGAIN) return close_conn(c), false;
        if (done > 0) c->out.off += (size_t)done;
        bool blocked = done < 0;
        if (blocked != c->blocked) c->blocked = blocked, watch(c, EPOLL_CTL_MOD);
        if (blocked) return true;
        if (c->answer.split && c->out.off < c->out.len) {
            c->piece_due = true;
            arm(now_ns() + 20000 + (int64_t)(random_bits(1) % 100000), c, FLUSH);
            return true;
        }
    }
    int unsent = 0;
    Record *r = record_of(c->request);
    if (c->out.len && r && !ioctl(c->fd, SIOCOUTQNSD, &unsent) && unsent) r->held++;
    c->out.len = c->out.off = 0;
    if (c->out.cap > 1 << 20) free(c->out.data), c->out = (Buf){0};
    if (c->closing) return close_conn(c), false;
    return true;
}

static void close_conn(Conn *c) {
    int fd = c->fd;
    if (fd < 0) return;
    c->fd = -1;
    c->generation++;
    connections -= c->counted_in == age;
    if (c->state != READING) seen.gone++, leave(c, "gone", now_ns());
    close(fd);
    free(c->in.data), free(c->out.data);
    *c = (Conn){.fd = -1, .generation = c->generation, .next = free_conns};
    free_conns = c;
}

/* ---- serving ---- */

static void done(Conn *c, const char *outcome, int64_t due_ns) {
    leave(c, outcome, due_ns);
    if (!c->answer.keep_alive) c->closing = true;
    if (flush(c)) read_requests(c);
}

static void meet_fate(Conn *c, int64_t due_ns) {
    if (c->fate == NEVER_END) {
        c->state = HUNG; /* holds its server until the client goes */
        flush(c);
    } else if (c->fate == ERROR_EVENT) {
        if (c->answer.stream) put_stream_error(&c->answer, &c->out);
        else put_error(&c->out, c->answer.keep_alive, 500, "planted");
        seen.failed++;
        done(c, "error", due_ns);
    } else {
        c->answer.split = c->piece_due = false; /* what was written of the answer so far leaves at once */
        if (!flush(c)) return;
        if (c->fate == RESET) setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        seen.failed++;
        leave(c, c->fate == RESET ? "reset" : "cut", due_ns);
        close_conn(c);
    }
}

static void serve_whole(Conn *c, int64_t due_ns) {
    if (c->fate) return meet_fate(c, due_ns);
    put_whole_answer(&c->answer, &c->out);
    record_event(record_of(c->request), now_ns(), due_ns, c->answer.tokens);
    seen.completed++;
    done(c, c->answer.finish, due_ns);
}

static void serve_stream(Conn *c, int64_t due_ns) {
    Answer *a = &c->answer;
    bool together = options.coalesce && options.itl_ms == 0;
    if (!c->headed) put_stream_head(a, &c->out), c->headed = true;
    if (a->chat && !c->roled) put_role_event(a, &c->out), c->roled = true;
    for (int64_t at_ns = now_ns();;) {
        int count = options.merge > 1 ? (int)options.merge : 1;
        if (count > a->tokens - c->sent) count = a->tokens - c->sent;
        bool last = c->sent + count == a->tokens;
        put_token_event(a, &c->out, c->sent, count, last ? a->finish : NULL);
        if (!together) at_ns = now_ns();
        record_event(record_of(c->request), at_ns, due_ns, count);
        c->sent += count, c->events++;
        if (c->fate && (last || c->events == c->fate_after)) return meet_fate(c, due_ns);
        if (!together && !flush(c)) return;
        if (last) break;
        for (int i = 0; i < count; i++) due_ns += law_ns(options.itl_ms, options.itl_exp, due_ns);
        due_ns = held(due_ns);
        if (due_ns > at_ns) {
            if (flush(c)) arm(c->due_ns = due_ns, c, TOKEN);
            return;
        }
    }
    put_stream_end(a, &c->out, a->tokens);
    seen.completed++;
    done(c, a->finish, due_ns);
}

/* ---- reading ---- */

/* Answers at once, without the service law; 0 lets the request through. */
static int refuse(Conn *c) {
    Answer *a = &c->answer;
    double since = since_first_s(c->arrival_ns);
    if (options.fail_status && (options.fail_for == 0 || since < options.fail_for) && happens(options.fail_share)) {
        put_error(&c->out, a->keep_alive, (int)options.fail_status, "planted failure");
        return (int)options.fail_status;
    }
    if (options.redirect) {
        put_page(&c->out, a->keep_alive, 307, "text/plain", "location: http://127.0.0.1:9/moved\r\n", "", 0);
        return 307;
    }
    if (options.html) {
        const char *page = "<!DOCTYPE html><html><body><h1>Sign in</h1></body></html>";
        put_page(&c->out, a->keep_alive, 200, "text/html", "", page, strlen(page));
        return 200;
    }
    return 0;
}

static void draw_fate(Conn *c) {
    Answer *a = &c->answer;
    if (happens(options.short_share) && a->tokens > 1) a->tokens /= 2, a->finish = "stop";
    if (options.malformed && happens(options.malformed_share)) a->malformed = (int)options.malformed;
    if (happens(options.reset_share)) c->fate = RESET;
    else if (happens(options.cut_share)) c->fate = CUT;
    else if (happens(options.error_share)) c->fate = ERROR_EVENT;
    else if (happens(options.never_end)) c->fate = NEVER_END;
    int events = options.merge > 1 ? (int)ceil(a->tokens / options.merge) : a->tokens;
    c->fate_after = c->fate == NEVER_END || events < 2 ? events : events / 2;
}

static void complete(Conn *c, bool chat, bool keep_alive, const char *body, size_t n) {
    Ask ask = read_ask(body, n);
    Answer *a = &c->answer;
    *a = (Answer){.chat = chat,
                  .stream = ask.stream,
                  .usage = ask.usage && !options.no_usage,
                  .split = options.split,
                  .keep_alive = keep_alive && !options.close,
                  .tokens = (int)ask.max_tokens,
                  .prompt_tokens = (int)ask.words.count,
                  .finish = "length"};
    if (ask.wrong) return put_error(&c->out, a->keep_alive, 400, ask.wrong);
    size_t name = ask.model.val ? (size_t)(ask.model.val_end - ask.model.val) : 0;
    if (options.check_model && (name != 6 || memcmp(ask.model.val, "\"mock\"", 6)))
        return put_error(&c->out, a->keep_alive, 404, "the model does not exist");
    if (!epoch_ns) epoch_ns = c->arrival_ns;
    if (c->counted_in != age) c->counted_in = age, connections++;
    if (connections > seen.max_connections) seen.max_connections = connections;
    c->request = next_request;
    Record *r = record_new(c->received_ns, c->arrival_ns, a->tokens);
    seen.prompt_tokens += (uint64_t)a->prompt_tokens;
    r->prompt_tokens = a->prompt_tokens;
    if ((r->status = refuse(c))) {
        r->outcome = "refused", r->end_ns = now_ns(), seen.failed++;
        return;
    }
    r->status = 200;
    if (options.prefix_cache) r->cached_tokens = a->cached_tokens = cached_words(&ask.words);
    bool fits = name && name < 130;
    a->about_len = (size_t)snprintf(a->about, sizeof a->about,
                                    "\"id\":\"%s-%lu\",\"object\":\"%s\",\"created\":%ld,\"model\":%.*s,",
                                    chat ? "chatcmpl" : "cmpl", c->request,
                                    !chat       ? "text_completion"
                                    : a->stream ? "chat.completion.chunk"
                                                : "chat.completion",
                                    (long)time(NULL), fits ? (int)name : 6, fits ? ask.model.val : "\"mock\"");
    c->sent = c->events = c->fate = 0, c->headed = c->roled = false;
    draw_fate(c);
    if (++concurrent > seen.max_concurrent) seen.max_concurrent = concurrent;
    c->state = WAITING, c->next = NULL, waiting++;
    if (queue_tail) queue_tail->next = c;
    else queue_head = c;
    queue_tail = c;
    begin_waiting(c->arrival_ns);
    bool soon = c->state == SERVING && c->due_ns <= c->arrival_ns;
    if (a->stream && options.early_head && !soon) {
        put_stream_head(a, &c->out), c->headed = true;
        if (chat && options.early_role) put_role_event(a, &c->out), c->roled = true;
    }
}

static void answer_page(Conn *c, const char *path, bool post, bool keep_alive, const char *body, size_t n) {
    static Buf page;
    page.len = 0;
    const char *type = "application/json";
    if (!strcmp(path, "/health")) type = "text/plain";
    else if (!strcmp(path, "/v1/models"))
        put_text(&page, "{\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"object\":\"model\",\"created\":0,\"owned_"
                        "by\":\"benchhouse\",\"max_model_len\":1048576}]}");
    else if (!strcmp(path, "/version")) put_text(&page, "{\"version\":\"0.1-mock\"}");
    else if (!strcmp(path, "/metrics"))
        type = "text/plain; version=0.0.4", put_metrics(&page, concurrent - waiting, waiting);
    else if (!strcmp(path, "/mock/truth")) type = "text/csv", truth_print(&page);
    else if (!strcmp(path, "/mock/stats")) {
        struct timespec cpu;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
        buf_print(
            &page,
            "{\"requests\":%lu,\"completed\":%lu,\"failed\":%lu,\"gone\":%lu,\"concurrent\":%lu,\"waiting\":%lu,\"max_"
            "concurrent\":%lu,"
            "\"connections\":%lu,\"max_connections\":%lu,\"prompt_tokens\":%lu,\"output_tokens\":%lu,\"cpu_s\":%.6f}",
            seen.requests, seen.completed, seen.failed, seen.gone, concurrent, waiting, seen.max_concurrent,
            connections, seen.max_connections, seen.prompt_tokens, seen.output_tokens,
            (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9);
    } else if (post && !strcmp(path, "/mock/reset")) {
        truth_reset(), cache_clear(), random_seed();
        epoch_ns = 0, seen.max_concurrent = concurrent, connections = 0, age++;
        put_text(&page, "{}");
    } else if (post && !strcmp(path, "/mock/set")) {
        Member wrong = {0};
        typeof(options) before = options;
        if (!json_each(body, body + n, 0, set_option, &wrong) || wrong.key) {
            options = before;
            return put_error(&c->out, keep_alive, 400, "no such option or value");
        }
        begin_waiting(now_ns());
        put_text(&page, "{");
        for (int i = 0; i < OPTION_COUNT; i++)
            buf_print(&page, "%s\"%s\":%.17g", i ? "," : "", option_table[i].name, *option_table[i].value);
        put_text(&page, "}");
    } else return put_error(&c->out, keep_alive, 404, "no such page");
    put_page(&c->out, keep_alive, 200, type, "", page.data, page.len);
    if (page.cap > 1 << 20) free(page.data), page = (Buf){0};
}

/* The value of a header line within head..end, or NULL. */
static const char *header(const char *head, const char *end, const char *name) {
    size_t n = strlen(name);
    for (const char *p = head; (p = memmem(p, (size_t)(end - p), "\r\n", 2)) && p + 2 + n < end; p += 2)
        if (!strncasecmp(p + 2, name, n) && p[2 + n] == ':') return p + 3 + n + (p[3 + n] == ' ');
    return NULL;
}

/* Answers the first complete request in the buffer; false when there is none yet, or the connection is gone. */
static bool read_request(Conn *c) {
    const char *data = c->in.data + c->in.off;
    size_t n = c->in.len - c->in.off;
    if (!n || n < c->need) return false;
    const char *end = memmem(data, n < MAX_HEAD ? n : MAX_HEAD, "\r\n\r\n", 4);
    if (!end) return n >= MAX_HEAD ? close_conn(c), false : false;
    const char *length = header(data, end + 2, "content-length"), *how = header(data, end + 2, "connection");
    size_t head_len = (size_t)(end + 4 - data), body_len = length ? strtoul(length, NULL, 10) : 0;
    if (body_len > MAX_REQUEST || header(data, end + 2, "transfer-encoding")) return close_conn(c), false;
    if (n < head_len + body_len) {
        if (!c->need && header(data, end + 2, "expect")) put_text(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
        c->need = head_len + body_len;
        return flush(c), false;
    }
    c->need = 0;
    c->arrival_ns = now_ns();
    char method[8] = "", path[128] = "";
    sscanf(data, "%7s %127s", method, path);
    bool keep_alive = !(how && !strncasecmp(how, "close", 5)), post = !strcmp(method, "POST");
    bool chat = !strcmp(path, "/v1/chat/completions");
    c->in.off += head_len + body_len;
    if (post && (chat || !strcmp(path, "/v1/completions"))) complete(c, chat, keep_alive, data + head_len, body_len);
    else
        c->answer = (Answer){.keep_alive = keep_alive},
        answer_page(c, path, post, keep_alive, data + head_len, body_len);
    if (c->state == READING && !c->answer.keep_alive) c->closing = true;
    return flush(c);
}

static void read_requests(Conn *c) {
    while (c->fd >= 0 && c->state == READING && !c->closing && read_request(c)) {}
    if (c->fd >= 0 && c->in.off == c->in.len) c->in.off = c->in.len = 0;
}

static void on_readable(Conn *c) {
    static char space[READ_SIZE];
    union {
        struct cmsghdr align;
        char space[64];
    } control;
    struct iovec part = {space, sizeof space};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(c->fd, &message, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    c->received_ns = now_ns();
    struct cmsghdr *stamp = CMSG_FIRSTHDR(&message);
    if (n > 0 && stamp && stamp->cmsg_level == SOL_SOCKET && stamp->cmsg_type == SCM_TIMESTAMPNS) {
        struct timespec real;
        memcpy(&real, CMSG_DATA(stamp), sizeof real);
        int64_t at_ns = from_realtime_ns(real);
        if (at_ns < c->received_ns) c->received_ns = at_ns;
    }
    if (n <= 0 || c->in.len - c->in.off > MAX_REQUEST + MAX_HEAD) return close_conn(c);
    if (c->in.off && c->in.off < c->in.len && c->state == READING) {
        memmove(c->in.data, c->in.data + c->in.off, c->in.len -= c->in.off);
        c->in.off = 0;
    }
    buf_put(&c->in, space, (size_t)n);
    read_requests(c);
}

/* ---- the loop ---- */

static void accept_all(int listener) {
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        Conn *c = free_conns;
        if (c) free_conns = c->next;
        else if (!(c = calloc(1, sizeof *c))) abort();
        c->fd = fd, c->next = NULL;
        watch(c, EPOLL_CTL_ADD);
    }
}

static void run_timers(void) {
    int64_t until_ns = now_ns();
    for (int i = 0; i < TIMERS_A_ROUND && heap_len && heap[0].due_ns <= until_ns; i++) {
        Timer t = take_first();
        Conn *c = t.conn;
        if (t.generation != c->generation) continue;
        if (t.kind == FLUSH) {
            c->piece_due = false;
            if (flush(c)) read_requests(c);
        } else if (c->answer.stream) serve_stream(c, t.due_ns);
        else serve_whole(c, t.due_ns);
    }
}

static int listen_on(int port) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* accepted sockets inherit it */
    setsockopt(listener, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);   /* others hold small writes back for longer */
    setsockopt(listener, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4096) ||
        getsockname(listener, (struct sockaddr *)&address, &size))
        perror("mock_llm: listen"), exit(1);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

int main(int argc, char **argv) {
    read_flags(argc, argv);
    random_seed();
    truth_open();
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1UL); /* the default lets every wait end 50 microseconds late */
    if (options.realtime && sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1}))
        perror("mock_llm: realtime"), exit(1);
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files)) files.rlim_cur = files.rlim_max, setrlimit(RLIMIT_NOFILE, &files);
    poller = epoll_create1(EPOLL_CLOEXEC);
    int listener = listen_on((int)options.port);
    struct epoll_event accepting = {.events = EPOLLIN, .data.ptr = &poller},
                       ending = {.events = EPOLLIN, .data.ptr = &heap};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &accepting);
    if (options.until_eof) epoll_ctl(poller, EPOLL_CTL_ADD, STDIN_FILENO, &ending);
    for (;;) {
        struct epoll_event events[1024];
        int64_t left = heap_len ? heap[0].due_ns - now_ns() : 0;
        struct timespec wait = {left > 0 ? left / 1000000000 : 0, left > 0 ? left % 1000000000 : 0};
        long n = syscall(SYS_epoll_pwait2, poller, events, 1024, heap_len ? &wait : NULL, NULL, 0);
        if (n < 0 && errno != EINTR) perror("mock_llm: epoll_pwait2"), exit(1);
        for (long i = 0; i < n; i++) {
            void *what = events[i].data.ptr;
            if (what == &poller) accept_all(listener);
            else if (what == &heap) {
                char byte;
                if (read(STDIN_FILENO, &byte, 1) <= 0) return 0;
            } else {
                Conn *c = what;
                if (c->fd >= 0 && (events[i].events & EPOLLOUT) && flush(c)) read_requests(c);
                if (c->fd >= 0 && (events[i].events & ~(unsigned)EPOLLOUT)) on_readable(c);
            }
        }
        run_timers();
    }
}
