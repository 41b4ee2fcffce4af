/* The least that a client can do: one thread, one epoll loop, closed loop over HTTP/1.1 with chunked streams.
 *
 *     epoll_client PORT STREAMS SECONDS TOKENS     prints events and CPU seconds of the last SECONDS
 *
 * It trusts the mock server: an answer ends with the last chunk, and nothing is parsed. What an engine costs beyond this
 * is what it pays for stamps, framing and figures. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double clock_s(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int streams = atoi(argv[2]), tokens = atoi(argv[4]);
    double seconds = atof(argv[3]), warmup = 2.0;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)streams + 64, (rlim_t)streams + 64});
    char body[200], request[400], data[1 << 16];
    const char *form = "{\"model\":\"mock\",\"prompt\":\"a b c d\",\"max_tokens\":%d,\"stream\":true}";
    int length = snprintf(body, sizeof body, form, tokens);
    int size = snprintf(request, sizeof request,
                        "POST /v1/completions HTTP/1.1\r\nHost: mock\r\nContent-Length: %d\r\n\r\n%s", length, body);
    int poller = epoll_create1(0);
    struct epoll_event *events = calloc((size_t)streams, sizeof *events);
    double began = clock_s(CLOCK_MONOTONIC), cpu = 0, opened = 0;
    long reads = 0;
    for (int begun = 0;;) {
        double now = clock_s(CLOCK_MONOTONIC);
        if (!opened && now > began + warmup) opened = now, cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID), reads = 0;
        if (opened && now > opened + seconds) break;
        while (begun < streams && (now - began) / warmup * 2 * streams >= begun) { /* a ramp, as the engine has */
            int fd = socket(AF_INET, SOCK_STREAM, 0);
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
            if (connect(fd, (struct sockaddr *)&address, sizeof address)) return perror("connect"), 1;
            epoll_ctl(poller, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN, .data.fd = fd});
            if (send(fd, request, (size_t)size, 0) != size) return 1;
            begun++;
        }
        int count = epoll_wait(poller, events, streams, 1);
        for (int i = 0; i < count; i++) {
            ssize_t n = recv(events[i].data.fd, data, sizeof data, MSG_DONTWAIT);
            if (n <= 0) return 1;
            reads++;
            if (n >= 5 && !memcmp(data + n - 5, "0\r\n\r\n", 5) && send(events[i].data.fd, request, (size_t)size, 0) != size)
                return 1;
        }
    }
    printf("%ld %.6f\n", reads, clock_s(CLOCK_PROCESS_CPUTIME_ID) - cpu);
}
