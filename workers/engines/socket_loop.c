/* The loop of udp.py in C: a worker waits for packets, and sends and receives many of them per system call. */

#define _GNU_SOURCE
#include "native.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "shared.h"

enum { UDP_SEGMENT = 103, UDP_GRO = 104, MAX_MESSAGES = 64, MAX_ERRORS = 16 };
enum { ECN_CONGESTED = 3 }; /* congestion.py */

/* Waking up takes long, so a wait begins with yielding the processor.
 *
 * The results of a vector that fits into the window arrive together when the last worker has sent, which is worth yielding
 * for SPIN_SHORT seconds. The results of a longer vector keep arriving, and meanwhile all workers and the switch have to
 * compute, so yielding lasts for SPIN_LONG. If a wait took longer than LONG, because links are slow or because yielding
 * gave the processor to others for long, the worker sleeps in its next SLEEPS waits. If yielding gave the processor to
 * others for long in a short wait, it sleeps in its next SLEEPS_CROWDED ones: the scheduler runs a process that wakes up
 * before the others, and one that has yielded after them. */
#define SPIN_SHORT 500e-6
#define SPIN_LONG 100e-6
#define LONG 200e-6
#define SLEEPS 16
#define SLEEPS_CROWDED 256

struct link { /* engine.py */
    int64_t socket, segments, offload, room, enough;
    double patience, shortest_patience, longest_patience, longest_exchange;
    uint8_t *buffer;
    int64_t sleeps, crowded; /* how many more waits begin with sleeping: long ones, and short ones */
    int64_t loss; /* the last error that counted as a lost datagram */
    double looked; /* when the socket was last read: timers may count as lost what had not arrived by then */
    int64_t news; /* another descriptor, which ends an exchange once it can be read; negative: there is none */
};

SHARE_NUMBER(UDP_SEGMENT);
SHARE_NUMBER(UDP_GRO);
SHARE_NUMBER(MAX_ERRORS);
SHARE_NUMBER(ECN_CONGESTED);
SHARE_NUMBER(WAIT);
SHARE_NUMBER(RECEIVE);
SHARE_NUMBER(UNPACK);
SHARE_NUMBER(PACK);
SHARE_NUMBER(SEND);
SHARE_NUMBER(PARTS);
SHARE_NUMBER(NOT_BEGUN);
SHARE_NUMBER(BEGUN);
SHARE_NUMBER(SUMMED);
SHARE_STRUCT(link,
             FIELD(socket) FIELD(segments) FIELD(offload) FIELD(room) FIELD(enough)
             FIELD(patience) FIELD(shortest_patience) FIELD(longest_patience)
             FIELD(longest_exchange) FIELD(buffer) FIELD(sleeps)
             FIELD(crowded) FIELD(loss) FIELD(looked) FIELD(news))

struct message {
    int64_t length, size; /* in bytes: the message, and each datagram in it except perhaps the last */
    bool marked; /* whether all its datagrams have a congestion mark */
};

struct inbox { /* messages, one after the other in the link's buffer */
    int64_t count, end;
    struct message messages[MAX_MESSAGES];
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Adds the time since `now` to a part, and returns the current time. */
static double spend(struct work *w, enum part part, double now)
{
    double then = now;
    now = seconds();
    w->totals->spent[part] += now - then;
    return now;
}

static struct timespec as_timespec(double duration)
{
    return (struct timespec){(time_t)duration, (long)((duration - floor(duration)) * 1e9)};
}

/* Returns whether an error means that there is no checksum offload, or that a segment is too large for it. */
static bool no_offload(int error)
{
    return error == EINVAL || error == EIO;
}

/* Returns whether an error counts as a lost datagram, which the timers handle. Such errors are reports about an earlier
 * datagram, since anybody may forge the ICMP message that causes them (RFC 1122, 4.1.3.3; RFC 8085, 5.2), and temporary
 * problems on this host: no route, no link, no memory, a firewall. A permanent problem ends the all-reduce once nothing new
 * has arrived for too long. */
bool is_loss(int error)
{
    static const int losses[] = {ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EHOSTDOWN, ENONET,  ENOPROTOOPT, EOPNOTSUPP,
                                 EPROTO,       ENETDOWN,     ENOBUFS,     ENOMEM,    EACCES, EPERM};
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        if (error == losses[i])
            return true;
    return false;
}

/* Records an error that counts as a loss, and returns whether it does. */
static bool note_loss(struct link *l, int error)
{
    if (is_loss(error))
        l->loss = error;
    return is_loss(error);
}

/* Sends a message; returns 0 or an error. The kernel reports an error about an earlier datagram once, instead of sending, so
 * another attempt follows. EMSGSIZE may be about an earlier datagram, too; if it persists, it is about this message. */
static int send_message(struct link *l, const struct msghdr *message)
{
    int error = 0;
    for (int errors = 0; errors < MAX_ERRORS; errors += error != EINTR) {
        if (sendmsg((int)l->socket, message, 0) >= 0)
            return 0;
        error = errno;
        if (error != EINTR && error != EMSGSIZE && !note_loss(l, error))
            break;
    }
    return error;
}

/* Sends the packets of these chunks, many per message if the device can; returns 0 or an error. Packets that are not sent
 * then count as lost. */
static int send_batch(struct work *w, struct link *l, const int64_t *chunks, const struct batch *batch)
{
    int64_t size = batch->size;
    const uint8_t *packets = w->packets[batch->kept_in];
    for (int64_t first = 0, last; first < batch->count; first = last) {
        struct iovec pieces[MAX_MESSAGES];
        int64_t count = 0, left = batch->count - first, most = l->offload ? l->segments : 1;
        last = first + left / ((left + most - 1) / most); /* messages of about the same size */
        const uint8_t *end = NULL; /* adjacent packets are one piece */
        for (int64_t i = first; i < last; i++) {
            const uint8_t *packet = packets + (chunks[i] + w->progress->first_chunk) % w->window * size;
            if (packet != end)
                pieces[count++] = (struct iovec){(uint8_t *)packet, 0};
            pieces[count - 1].iov_len += (size_t)size;
            end = packet + size;
        }
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)count};
        union {
            char bytes[CMSG_SPACE(sizeof(uint16_t))];
            struct cmsghdr header;
        } control = {.header = {CMSG_LEN(sizeof(uint16_t)), IPPROTO_UDP, UDP_SEGMENT}};
        if (l->offload) {
            uint16_t segment = (uint16_t)size;
            memcpy(CMSG_DATA(&control.header), &segment, sizeof segment);
            message.msg_control = &control;
            message.msg_controllen = sizeof control;
        }
        int error = send_message(l, &message);
        if (error && l->offload && no_offload(error)) {
            l->offload = 0;
            setsockopt((int)l->socket, IPPROTO_UDP, UDP_SEGMENT, &(int){0}, sizeof(int));
            last = first;
            continue;
        }
        if (error && !note_loss(l, error))
            return error;
        w->totals->sent += last - first;
        w->totals->sent_bytes += (last - first) * size;
    }
    return 0;
}

/* Receives messages until there are `enough` bytes; returns 0 or an error. Errors about datagrams sent earlier are skipped,
 * at most MAX_ERRORS in a row. */
static int take_messages(struct link *l, int64_t enough, struct inbox *in)
{
    int errors = 0;
    while (in->end < enough && in->count < MAX_MESSAGES && errors < MAX_ERRORS) {
        union {
            char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint8_t))];
            struct cmsghdr header;
        } control;
        struct iovec piece = {l->buffer + in->end, (size_t)(l->room - in->end)};
        struct msghdr message = {
            .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        ssize_t length = recvmsg((int)l->socket, &message, MSG_DONTWAIT);
        if (length < 0 && (errno == EMSGSIZE || errno == EINTR || note_loss(l, errno))) {
            errors++;
            continue;
        }
        if (length < 0)
            return errno == EAGAIN ? 0 : errno;
        int size = (int)length;
        bool marked = false;
        for (struct cmsghdr *said = CMSG_FIRSTHDR(&message); said; said = CMSG_NXTHDR(&message, said)) {
            if (said->cmsg_level == IPPROTO_UDP && said->cmsg_type == UDP_GRO)
                memcpy(&size, CMSG_DATA(said), sizeof size);
            if (said->cmsg_level == IPPROTO_IP && said->cmsg_type == IP_TOS)
                marked = (*CMSG_DATA(said) & ECN_CONGESTED) == ECN_CONGESTED;
        }
        in->messages[in->count++] = (struct message){length, size, marked};
        in->end += length;
    }
    return 0;
}

static void take_inbox(struct work *w, const struct link *l, const struct inbox *in, double now)
{
    const uint8_t *datagrams = l->buffer;
    for (const struct message *m = in->messages; m < in->messages + in->count; datagrams += m->length, m++) {
        int64_t whole = m->size ? m->length / m->size : 0, rest = m->length - whole * m->size;
        w->gate->marked += m->marked ? whole + (rest > 0) : 0;
        take_datagrams(w, datagrams, whole, m->size, m->size, now);
        if (rest)
            take_datagrams(w, datagrams + whole * m->size, 1, rest, rest, now);
    }
}

/* Sends what is ready, if anything is; returns 0 or an error. */
static int answer(struct work *w, struct link *l, double *now)
{
    int error = 0;
    for (int64_t sent = 0; !error && sent < w->ready_count;) {
        struct batch batch = pack(w, w->ready + sent, w->ready_count - sent, *now);
        *now = spend(w, PACK, *now);
        error = send_batch(w, l, w->ready + sent, &batch);
        sent += batch.count;
        *now = spend(w, SEND, *now);
    }
    w->ready_count = 0;
    return error;
}

/* Returns until when to yield in a wait that begins now. */
static double spin_until(const struct work *w, struct link *l, double now)
{
    if (!w->expected)
        return l->sleeps ? now : now + SPIN_LONG;
    if (!l->crowded)
        return now + SPIN_SHORT;
    l->crowded--;
    return now;
}

/* Sends what is ready, receives and answers until all results are there, the clock passes `until`, a timer may have expired,
 * or there are news. Returns 0 or an error.
 *
 * A timer counts as expired only if no message is waiting: if the process could not run for a while, the answers may have
 * arrived. If fewer than `enough` bytes have arrived, more are on the way and much is left to do, it waits for them for a
 * fraction of a round-trip time. While yielding, it does not check for news. */
int exchange(struct work *w, struct link *l, double until)
{
    struct inbox in;
    double now = seconds();
    int error = answer(w, l, &now);
    bool news = false;
    double idle_since = now, spins = spin_until(w, l, now);
    while (!error && w->progress->missing && !w->progress->disagree) {
        in.count = in.end = 0;
        if ((error = take_messages(l, 1, &in)))
            return error;
        if (!in.count && (news || now >= fmin(until, w->timers->not_before)))
            break;
        if (!in.count && now < spins) {
            double yielded = now;
            sched_yield();
            now = spend(w, WAIT, now);
            if (now > yielded + LONG) { /* others want the processor */
                spins = now;
                l->crowded = w->expected ? SLEEPS_CROWDED : l->crowded;
            }
            continue;
        }
        if (!in.count) {
            struct pollfd both[] = {{(int)l->socket, POLLIN, 0}, {(int)l->news, POLLIN, 0}};
            struct timespec wait = as_timespec(fmax(fmin(until, w->timers->not_before) - now, 0));
            int ready = ppoll(both, 2, &wait, NULL);
            if (ready < 0)
                return errno == EINTR ? 0 : errno; /* Python handles signals */
            news = both[1].revents;
            now = spend(w, WAIT, now);
            continue;
        }
        l->sleeps = now > idle_since + LONG ? SLEEPS : l->sleeps - (l->sleeps > 0);
        now = spend(w, RECEIVE, now);
        int64_t most = w->timers->running * (HEADER + 4 * SMALL);
        bool late = w->progress->missing <= w->window; /* soon there is nothing left to send */
        double rtt = isnan(w->rtt->smoothed) ? 0 : w->rtt->smoothed;
        double patience = fmin(rtt * l->patience, l->longest_patience);
        if (!late && patience >= l->shortest_patience && in.end < (most < l->enough ? most : l->enough)) {
            struct timespec wait = as_timespec(patience);
            nanosleep(&wait, NULL);
            now = spend(w, WAIT, now);
            if ((error = take_messages(l, l->enough, &in)))
                return error;
            now = spend(w, RECEIVE, now);
        }
        take_inbox(w, l, &in, now);
        now = spend(w, UNPACK, now);
        error = answer(w, l, &now);
        idle_since = now;
        spins = spin_until(w, l, now);
        if (news || now >= until)
            break;
    }
    l->looked = now;
    return error;
}

/* Runs an all-reduce like an earlier one, with that one's `t`, as far as possible without Python. Returns its stage, or
 * after an error in exchange() the negated error number. */
int repeat(struct work *w, struct link *l, const struct tensor *t, const struct buffers *b, bool propagate)
{
    struct progress *p = w->progress;
    int64_t first_chunk = p->first_chunk + p->chunks, saturated = w->totals->saturated;
    if (first_chunk < w->earliest_chunk)
        first_chunk = w->earliest_chunk;
    if (p->missing || t->most_chunks > w->last_chunk + 1 - first_chunk)
        return NOT_BEGUN;
    p->calls++;
    begin(w, t, b, first_chunk, propagate);
    if (!p->chunks) {
        p->calls--;
        return NOT_BEGUN;
    }
    l->loss = 0;
    p->latest = seconds();
    int error = exchange(w, l, p->latest + fmin(l->longest_exchange, w->give_up));
    if (error)
        return -error;
    return p->missing || p->unsummed || w->totals->saturated != saturated ? BEGUN : SUMMED;
}
