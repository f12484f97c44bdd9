/* What a network in virtual time consists of: rows for packets, links, windows of events, hosts. ../compiled.py declares the
 * structs that Python shares. Times are in picoseconds. */

#ifndef TOPOLOGIES_LOOP_H
#define TOPOLOGIES_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "program.h"
#include "worker.h"

#define NEVER INT64_MAX
#define SECOND 1e12

/* Offsets in a frame of UDP over IPv4. */
enum { TYPE = 12, IP = 14, TOS = 15, PROTOCOL = 23, IP_CHECKSUM = 24, IP_SOURCE = 26, UDP = 34, UDP_LENGTH = 38 };
enum { UDP_CHECKSUM = 40, PAYLOAD = 42 };
enum { PROTOCOL_UDP = 17 };

enum { ECN_MARKED = 3 }; /* of TOS, RFC 3168 */

enum fault { LOST, BURST_LOST, CORRUPTED, DUPLICATED, REORDERED, QUEUE_DROP, ECN_MARK, NO_LINK, FAULTS };

static inline uint32_t load16(const uint8_t *from) { return (uint32_t)from[0] << 8 | from[1]; }

static inline void store16(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)(value >> 8);
    to[1] = (uint8_t)value;
}

/* The sum of the 16-bit words of a part of a packet. An odd last byte is the first of a word. */
static inline uint64_t word_sum(const uint8_t *from, const uint8_t *to)
{
    uint64_t sum = 0;
    for (; from + 1 < to; from += 2)
        sum += load16(from);
    return from < to ? sum + ((uint64_t)*from << 8) : sum;
}

#define NOBODY UINT32_MAX

/* A packet in a queue: when it joined, the row of the next one, the link on which it reached the switch. */
struct waiting {
    int64_t time;
    uint32_t next, came_by; /* or NOBODY */
};

/* Rows never move: a program may hold on to one while others are added. */
enum { SLAB_BITS = 10, SLAB_ROWS = 1 << SLAB_BITS };

struct rows {
    uint8_t **slabs;   /* of SLAB_ROWS rows each */
    uint32_t *lengths; /* in bytes, by row */
    struct waiting *waits; /* by row */
    uint32_t *free;    /* a stack; the row used last is still in the cache */
    uint32_t width, slab_count, left;
};

/* A packet that arrives. */
struct event {
    int64_t time;
    uint32_t link, row;
};

struct events {
    struct event *at;
    size_t first, end, room; /* those from `first` to `end` are still to come */
};

/* One direction of a link. First its constants: byte_time in 2^-20 ps; room, mark and always_mark as the times that these
 * queue lengths take to be sent; when it is down; pause thresholds in bytes; the watchdog's times; probabilities;
 * displacement and jitter in picoseconds. Then its state, and its counts. */
struct link {
    int64_t byte_time, overhead, delay, room, mark, always_mark, down_from, down_until;
    int64_t xoff, xon, detection, restoration, action;
    uint64_t key;
    double mark_probability, loss, corruption, duplication, reordering, displacement, jitter;
    double burst_begin, burst_end, burst_loss;
    int64_t faulty, bursts, near_node, far_node, far_port;
    int64_t free_at, last_arrival, numbered, in_burst, joined, acts_at; /* `acts_at`: by itself, see queues.c */
    int64_t queued_bytes; /* bytes in its queues, where it has some */
    int64_t packets, bytes, arrived, busy, waited, queue_area, longest_queue, queue_drops, lost, marks; /* LinkCounts of links.py */
    int64_t pauses, paused, storms, watchdog_drops;
};

enum { DROP, FORWARD, ALERT }; /* of a link's watchdog; ALERT where there is none */

/* The packets that wait for a link in one priority, from the row `first` to `last`, and the bytes that arrived on the link
 * and wait at its far end (`held`). */
struct queue {
    int64_t backlog, busy_until, paused_at, since, held, overtaken, sent;
    uint32_t first, last;
    bool paused, storming, told;
};

/* Everything that arrives in one window; `next` links its chain. */
struct window {
    int64_t number;
    struct window *next;
    struct events events;
};

enum { CHAINS = 1 << 12 };

struct calendar {
    struct window *chains[CHAINS]; /* by number */
    struct window **heap;          /* the earliest first */
    size_t count, room;
    struct window *spare, *latest; /* `latest`: the one found last */
};

/* A worker whose packets C handles. Its frames begin with one of `headers`, by the size of the datagram. A frame that
 * arrives is its own if it has this `type`, `protocol`, and addresses and ports (`ends`). */
struct station {
    turn_function *turn;
    void *worker;
    double give_up;
    int64_t sizes[2];
    uint8_t headers[2][PAYLOAD];
    uint8_t type[2], protocol, ends[12];
};

/* A worker with connections; Python has the same struct. Times are in seconds. Without `needs_python`, Python never acts. */
struct card_settings {
    receive_function *receive;
    send_function *send;
    deadline_function *deadline;
    needs_python_function *needs_python; /* or NULL */
    void *worker;
    int64_t *others; /* counts frames that are not the worker's */
    double byte_seconds, ahead; /* how long a byte takes on the link; how much the link is given */
    int64_t overhead;           /* bytes of a frame on the link beyond its own */
    uint8_t address[4];
};

/* Packets of one length that wait for a card, in a list by `next` of their rows. */
struct batch_of_rows {
    struct batch_of_rows *next, *made_before;
    int64_t count;
    uint32_t first, last, length;
};

/* The network card of such a host. */
struct card {
    struct loop *loop;
    const struct card_settings *settings;
    struct batch_of_rows *first, *last; /* acknowledgements */
    struct connection *in_turn, *newest; /* those with data, in the order of their turns */
    int64_t sent_in_turn;
    double free_at; /* when the link has sent what it was given */
    int64_t python_at; /* when Python has to act next */
};

struct host {
    struct events inbox; /* in order of time */
    int64_t timer;
    int64_t (*stalls)[2]; /* from and until, in order */
    size_t stall_count;
    uint32_t link;
    bool present;            /* a station is there */
    struct station *station; /* NULL: Python handles everything, unless there is a card */
    struct card *card;
};

/* What became of a packet on a link, for recordings: when it joined the queue, when its first and its last bit were sent,
 * and when it arrives, or would if it were not lost. A packet that a queue drops has one time only. */
enum fate { ARRIVES, LOSS, BURST, LINK_DOWN, QUEUE_FULL, WATCHDOG };
enum { NOTED = 96 }; /* bytes of a packet that are noted */

struct note {
    int64_t joined, begin, sent, end;
    uint32_t link, length, fate, copy;
    uint8_t head[NOTED];
};

struct program {
    run_function *run;
    void *state;
    int32_t *links; /* by port; -1: none */
};

/* What one part of a network gives another in a window: packets, whose events have their length for a `row`, with their `bytes` one
 * after another; and pause frames. */
struct parcels {
    struct events packets, signals;
    uint8_t *bytes;
    size_t used, room;
};

/* The parts of a network, each of which a core can run, and how far they have come (parts.c). */
struct team {
    struct loop **parts;
    uint32_t count, switches, host_count;
    struct program *programs; /* by switch */
    struct host *hosts;
    struct queue *queues;
    uint32_t *part_of;       /* by node */
    struct parcels *parcels; /* [2][from][to]; `filled` of the two is filled in this window, and the other one emptied */
    uint32_t filled;
    int64_t begin, window_end, ended; /* of the window in hand; end of the last one that has ended */
    uint64_t worth;          /* events per part in a window for which threads are worth their barriers */
    uint64_t events;         /* in the `counted` windows since `dense` was decided */
    uint32_t counted;
    bool dense;              /* whether there were so many */
    /* One call of loop_run(): */
    int64_t limit, look_at, outcome;
    const int64_t *watched;
    uint32_t windows;
    bool threads;            /* the parts may have one each */
    bool stopped;            /* no thread begins another window */
    pthread_mutex_t lock;
    pthread_cond_t next_round;
    atomic_uint arrived;     /* threads that have come to the end of the window */
    atomic_ullong round;     /* how often all have */
};

/* A part of a network: the switches and hosts that one core runs. The links are common to all parts; the part of a link's near
 * end changes its state and its counts. */
struct loop {
    struct team *team;
    uint32_t number, first_host, end_host; /* of this part */
    int64_t next_time;    /* when the next window begins in which something happens here, or because of what was sent here */
    int64_t first_parcel; /* when the first thing arrives that this part has given others in this window */
    int64_t pending;      /* a host that needs Python in this window, or -1 */
    bool taken;           /* whether C has already received what arrived there */
    struct rows rows;
    struct link *links; /* Python's memory; behind `link_count` there are those of loopback ports */
    struct calendar calendar;
    struct program *programs; /* the team's, as the next one */
    struct host *hosts;
    int64_t *wakes;  /* of the hosts, Python's memory */
    int64_t *faults; /* of this part, by kind, Python's memory */
    int64_t window, coalescing;
    uint32_t node_count, ports;
    /* Queues by priority; `priorities` is 0 without them, and packets are sent immediately. */
    uint32_t link_count, priorities;
    struct queue *queues;   /* the team's; by link, then priority */
    uint32_t *leaving, *coming, leaving_count, coming_count; /* links whose near end, and whose far end, is in this part */
    int64_t queues_ended;   /* the last window */
    struct events signals;  /* pause frames on their way */
    struct events sent;     /* this window */
    struct events changes;  /* of `held`: `link` is the index in `queues`, `row` a signed number of bytes */
    struct events happening; /* pause frames and packets of this window, in order */
    /* One window's: */
    struct events arrived; /* in the order of node, time, link, order of sending */
    struct events copies;  /* of duplicated packets: they join behind all others */
    struct event *scratch;
    uint32_t *nodes, *ends; /* nodes at which something arrives, in order; end of each one's events, by node */
    size_t node_touched, scratch_room;
    struct event *next, *last; /* of the switch in hand */
    struct program *program;
    int64_t now;           /* of the packet in hand */
    uint32_t came_by;      /* its link */
    uint8_t *gathered;     /* datagrams of the host in hand */
    size_t gather_room;
    uint8_t **places, *marks; /* of datagrams that arrive or are to be sent */
    size_t place_room;
    struct batch_of_rows *batches, *spare_batches; /* all, by `made_before`; those without packets */
    uint64_t rows_with_cards; /* that wait there */
    uint32_t too_long_sent;   /* the length of a frame that a worker sends and that fits no row; 0: all do */
    uint64_t turns;        /* of hosts, done by C alone */
    uint32_t next_host;
    bool recording;
    struct note *notes;    /* this window's, if recording */
    size_t note_count, note_room;
    uint32_t too_long;     /* the longest packet that did not fit a row; 0: all did */
    bool failed;           /* no memory */
};

uint8_t *row_bytes(const struct rows *rows, uint32_t row);
void expect_row(const struct rows *rows, uint32_t row);
bool add_row(struct loop *l, uint32_t length, uint32_t *row);
void free_row(struct loop *l, uint32_t row);
void add_event(struct loop *l, struct events *events, struct event event);
void schedule(struct loop *l, struct event event);
struct team *open_team(uint32_t switches, uint32_t hosts, uint32_t count, uint64_t worth, const uint32_t *part_of);
void close_team(struct team *t);
bool give_parcel(struct loop *l, struct event event);
void send_signal(struct loop *l, struct event signal);
struct loop *part_of_link(struct loop *l, uint32_t link);
void take_parcels(struct loop *l);
void exchange_parcels(struct team *t);
struct loop *part_of_host(struct loop *l, uint32_t host);
void bring_in(struct loop *l, int64_t begin);
int64_t next_host(struct loop *l, int64_t end);
void end_window(struct loop *l, int64_t end);
int64_t loop_next_time(const struct loop *l);
int64_t loop_next_host(struct loop *l, int64_t end, bool *taken);
void loop_end(struct loop *l, int64_t end);
struct window *next_window(const struct loop *l);
struct events take_window(struct loop *l);
void close_calendar(struct loop *l);
bool make_scratch(struct loop *l, size_t count);
void sort_events(struct event *events, struct event *scratch, size_t count);
void send_packet(struct loop *l, uint32_t link, int64_t time, uint32_t row, uint32_t came_by);
int64_t size_on_wire(const struct loop *l, const struct link *k, uint32_t row);
int64_t time_on_wire(const struct loop *l, const struct link *k, uint32_t row);
int64_t queue_area(int64_t size, int64_t time);
void note_depth(struct link *k, int64_t time, int64_t size);
void drop_for_room(struct loop *l, uint32_t link, int64_t time, uint32_t row);
void mark_if_crowded(struct loop *l, struct link *k, int64_t wait, uint32_t row);
void carry(struct loop *l, uint32_t link, int64_t begin, int64_t wait, uint32_t row);
void run_queues(struct loop *l, int64_t end);
void note(struct loop *l, const struct note *note, uint32_t row);
void note_arrivals(struct loop *l, int64_t end, int64_t copy_end);
int64_t queues_act_at(const struct loop *l);
int64_t not_before(double seconds);
void replace_station(struct loop *l, uint32_t host, struct station *station);
enum outcome wake_card(struct loop *l, uint32_t host, int64_t now);
void remove_card(struct loop *l, uint32_t host);
enum outcome wake_station(struct loop *l, uint32_t host, int64_t now);
void loop_set_timer(struct loop *l, uint32_t host, int64_t at);
uint64_t loop_waiting(const struct loop *l, uint32_t host, int64_t now);

#endif
