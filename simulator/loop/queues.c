/* Links with queues by priority, with pauses and the watchdog over them; ../links.py describes them. What such a link
 * sends next depends on later packets and on pauses, which take effect no earlier than in the window after the one in
 * which they are sent. So packets wait for the window in which they begin. */

#include "loop.h"

enum { PRECEDENCE = 5, IPV4_FIRST = 0x08 }; /* the upper three bits of TOS */

#define PAUSE_FRAME (1u << 31) /* instead of a row, with the priority, and WAIT or not */
#define WAIT (1u << 30)

static uint32_t priority_of(const struct loop *l, uint32_t row)
{
    const uint8_t *frame = row_bytes(&l->rows, row);
    bool ipv4 = l->rows.lengths[row] > TOS && frame[TYPE] == IPV4_FIRST && frame[TYPE + 1] == 0;
    return l->priorities > 1 && ipv4 ? frame[TOS] >> PRECEDENCE : 0;
}

static int64_t latest(int64_t a, int64_t b) { return a > b ? a : b; }

/* Records that a packet that arrived on a link joins a queue of this priority (sign 1), or leaves it (-1). */
static void change(struct loop *l, uint32_t row, uint32_t overhead, uint32_t priority, int64_t time, int sign)
{
    uint32_t came_by = l->rows.waits[row].came_by;
    if (came_by != NOBODY && l->links[came_by].xoff != NEVER) {
        int32_t bytes = sign * (int32_t)(l->rows.lengths[row] + overhead);
        add_event(l, &l->changes, (struct event){time, came_by * l->priorities + priority, (uint32_t)bytes});
    }
}

static uint32_t take_first(struct loop *l, struct queue *q)
{
    uint32_t row = q->first;
    q->first = l->rows.waits[row].next;
    if (q->first == NOBODY)
        q->last = NOBODY;
    return row;
}

static int64_t restored_at(const struct link *k, const struct queue *q)
{
    return q->paused ? NEVER : q->since + k->restoration;
}

/* Returns when a queue with packets, or one in a storm, does something by itself. */
static int64_t due(const struct loop *l, const struct link *k, const struct queue *q)
{
    int64_t joined = q->first == NOBODY ? 0 : l->rows.waits[q->first].time;
    int64_t since = latest(q->since, joined);
    if (q->paused && !q->storming)
        return k->detection < NEVER - since ? since + k->detection : NEVER;
    int64_t restored = q->storming ? restored_at(k, q) : NEVER;
    if (q->first == NOBODY || (q->paused && k->action == ALERT))
        return restored;
    int64_t begins = latest(k->free_at, since);
    return begins < restored ? begins : restored;
}

/* Returns when a link does something by itself, and with which queue; of several, the one of the highest priority. */
static int64_t soonest(const struct loop *l, uint32_t link, uint32_t *priority)
{
    int64_t found = NEVER;
    const struct queue *queues = l->queues + (size_t)link * l->priorities;
    for (uint32_t p = l->priorities; p-- > 0;) {
        if (queues[p].first == NOBODY && !queues[p].storming)
            continue;
        int64_t at = due(l, l->links + link, queues + p);
        if (at < found) {
            found = at;
            *priority = p;
        }
    }
    return found;
}

static void drop_by_watchdog(struct loop *l, uint32_t link, int64_t time, uint32_t row)
{
    note(l, &(struct note){time, time, time, time, .link = link, .fate = WATCHDOG}, row);
    l->links[link].watchdog_drops++;
    free_row(l, row);
}

/* The watchdog decides that the pause will not end. */
static void give_up(struct loop *l, uint32_t link, struct queue *q, uint32_t priority, int64_t now)
{
    struct link *k = l->links + link;
    q->storming = true;
    q->since = now;
    k->storms++;
    if (k->action != DROP)
        return;
    while (q->first != NOBODY) {
        uint32_t row = take_first(l, q);
        int64_t size = size_on_wire(l, k, row);
        k->queued_bytes -= size;
        k->queue_area += queue_area(size, now - l->rows.waits[row].time);
        change(l, row, (uint32_t)k->overhead, priority, now, -1);
        drop_by_watchdog(l, link, now, row);
    }
    q->backlog = 0;
}

/* Counts the waiting time of lower priorities that could have sent, while a packet is sent from `now` on. */
static void overtake(struct loop *l, uint32_t link, uint32_t priority, int64_t now, int64_t duration)
{
    struct queue *queues = l->queues + (size_t)link * l->priorities;
    for (struct queue *q = queues; q < queues + priority; q++)
        if (q->first != NOBODY && !(q->paused && !q->storming) && due(l, l->links + link, q) <= now)
            q->overtaken += duration;
}

/* Does everything that a link does by itself before `until`. */
static void advance(struct loop *l, uint32_t link, int64_t until)
{
    struct link *k = l->links + link;
    uint32_t priority = 0;
    for (int64_t now; (now = soonest(l, link, &priority)) < until;) {
        struct queue *q = l->queues + (size_t)link * l->priorities + priority;
        if (q->paused && !q->storming) {
            give_up(l, link, q, priority, now);
        } else if (q->storming && now == restored_at(k, q)) {
            q->storming = false;
        } else {
            uint32_t row = take_first(l, q);
            int64_t duration = time_on_wire(l, k, row);
            overtake(l, link, priority, now, duration);
            q->backlog -= duration;
            q->busy_until = now + duration;
            q->sent += size_on_wire(l, k, row);
            k->queued_bytes -= size_on_wire(l, k, row);
            change(l, row, (uint32_t)k->overhead, priority, now, -1);
            carry(l, link, now, now - l->rows.waits[row].time, row);
        }
    }
}

/* Takes a pause frame, which may repeat what is known already. */
static void turn(struct link *k, struct queue *q, int64_t time, bool wait)
{
    if (q->paused == wait)
        return;
    q->paused = wait;
    if (q->paused) {
        k->pauses++;
        q->paused_at = time;
    } else {
        k->paused += time - q->paused_at;
    }
    q->since = time;
}

static void join(struct loop *l, uint32_t link, int64_t time, uint32_t row)
{
    struct link *k = l->links + link;
    uint32_t priority = priority_of(l, row);
    struct queue *q = l->queues + (size_t)link * l->priorities + priority;
    if (q->storming && k->action == DROP) {
        drop_by_watchdog(l, link, time, row);
        return;
    }
    int64_t ahead = q->backlog + latest(q->busy_until - time, 0), duration = time_on_wire(l, k, row);
    if (ahead + duration > k->room) {
        drop_for_room(l, link, time, row);
        return;
    }
    mark_if_crowded(l, k, ahead, row);
    struct waiting *waits = l->rows.waits;
    waits[row].time = time;
    waits[row].next = NOBODY;
    if (q->first == NOBODY)
        q->first = row;
    else
        waits[q->last].next = row;
    q->last = row;
    q->backlog += duration;
    note_depth(k, time, size_on_wire(l, k, row));
    k->queued_bytes += size_on_wire(l, k, row);
    change(l, row, (uint32_t)k->overhead, priority, time, 1);
}

/* Sends a pause frame where a threshold is passed. All changes at one instant count as one. A change of 0 bytes repeats
 * the last pause frame if it told the lane to wait. */
static void count_held(struct loop *l)
{
    struct event *at = l->changes.at;
    size_t count = l->changes.end;
    if (!make_scratch(l, count))
        return;
    sort_events(at, l->scratch, count);
    for (size_t i = 0; i < count;) {
        uint32_t lane = at[i].link;
        int64_t time = at[i].time;
        struct queue *q = l->queues + lane;
        const struct link *k = l->links + lane / l->priorities;
        bool again = false;
        for (; i < count && at[i].link == lane && at[i].time == time; i++) {
            q->held += (int32_t)at[i].row;
            again |= at[i].row == 0;
        }
        bool told = q->held > k->xoff || (q->told && q->held > k->xon);
        if (told != q->told || (again && told))
            send_signal(l, (struct event){time + k->delay, lane / l->priorities,
                                          PAUSE_FRAME | (told ? WAIT : 0) | lane % l->priorities});
        q->told = told;
    }
    l->changes.end = 0;
}

static bool is_lost_with_link(const struct link *k, int64_t arrives)
{
    return arrives >= k->down_from && arrives - k->delay < k->down_until;
}

/* A link that goes down releases its queues, as a pause frame does; when it is up again, the pauses are repeated. */
static void go_down_and_up(struct loop *l, int64_t end)
{
    for (uint32_t i = 0; i < l->leaving_count; i++) {
        int64_t down = l->links[l->leaving[i]].down_from;
        for (uint32_t p = 0; down >= l->queues_ended && down < end && p < l->priorities; p++)
            add_event(l, &l->happening, (struct event){down, l->leaving[i], PAUSE_FRAME | p});
    }
    for (uint32_t i = 0; i < l->coming_count; i++) {
        int64_t up = l->links[l->coming[i]].down_until;
        for (uint32_t p = 0; up >= l->queues_ended && up < end && p < l->priorities; p++)
            add_event(l, &l->changes, (struct event){up, l->coming[i] * l->priorities + p, 0});
    }
}

/* Gathers pause frames that arrive before `end`, and what has been sent, in the order of time. */
static void gather(struct loop *l, int64_t end)
{
    size_t kept = 0;
    l->happening.end = 0;
    for (size_t i = 0; i < l->signals.end; i++) {
        const struct event signal = l->signals.at[i];
        if (signal.time >= end)
            l->signals.at[kept++] = signal;
        else if (!is_lost_with_link(l->links + signal.link, signal.time))
            add_event(l, &l->happening, signal);
    }
    l->signals.end = kept;
    go_down_and_up(l, end);
    for (size_t i = 0; i < l->sent.end; i++)
        add_event(l, &l->happening, l->sent.at[i]);
    l->sent.end = 0;
    if (make_scratch(l, l->happening.end))
        sort_events(l->happening.at, l->scratch, l->happening.end);
}

/* Does what links do until the end of a window. */
void run_queues(struct loop *l, int64_t end)
{
    uint32_t priority;
    gather(l, end);
    for (size_t i = 0; i < l->happening.end; i++) {
        const struct event *event = l->happening.at + i;
        advance(l, event->link, event->time);
        if (event->row & PAUSE_FRAME)
            turn(l->links + event->link,
                 l->queues + (size_t)event->link * l->priorities + (event->row & ~(PAUSE_FRAME | WAIT)), event->time,
                 event->row & WAIT);
        else
            join(l, event->link, event->time, event->row);
        l->links[event->link].acts_at = soonest(l, event->link, &priority);
    }
    for (uint32_t i = 0; i < l->leaving_count; i++) {
        uint32_t link = l->leaving[i];
        if (l->links[link].acts_at < end) {
            advance(l, link, end);
            l->links[link].acts_at = soonest(l, link, &priority);
        }
    }
    l->queues_ended = end;
    count_held(l);
}

static int64_t not_passed(const struct loop *l, int64_t time) { return time >= l->queues_ended ? time : NEVER; }

/* When the first link does something by itself, receives a pause frame, goes down or comes up. */
int64_t queues_act_at(const struct loop *l)
{
    int64_t found = NEVER;
    for (uint32_t i = 0; i < l->leaving_count; i++) {
        const struct link *k = l->links + l->leaving[i];
        int64_t down = not_passed(l, k->down_from);
        found = k->acts_at < found ? k->acts_at : found;
        found = down < found ? down : found;
    }
    for (uint32_t i = 0; i < l->coming_count; i++) {
        int64_t up = not_passed(l, l->links[l->coming[i]].down_until);
        found = up < found ? up : found;
    }
    for (size_t i = 0; i < l->signals.end; i++)
        found = l->signals.at[i].time < found ? l->signals.at[i].time : found;
    return found;
}

/* Which queues are paused and still told to wait (../deadlock.py), by link, then priority. */
void loop_stopped(const struct loop *l, bool *stopped)
{
    for (size_t i = 0; i < (size_t)l->link_count * l->priorities; i++) {
        const struct queue *q = l->queues + i;
        stopped[i] = q->paused && q->told && l->links[i / l->priorities].action == ALERT;
    }
}

/* Copies the counts of the queues, by link, then priority: for how long packets were overtaken by ones of a higher
 * priority, and the bytes on the wire. */
void loop_count_lanes(const struct loop *l, int64_t *overtaken, int64_t *sent)
{
    for (size_t i = 0; i < (size_t)l->link_count * l->priorities; i++) {
        overtaken[i] = l->queues[i].overtaken;
        sent[i] = l->queues[i].sent;
    }
}

/* Adds the time integral of the packets that still wait for each link, in byte-nanoseconds. */
void loop_waiting_areas(struct loop *first, int64_t now, int64_t *areas)
{
    for (size_t i = 0; i < (size_t)first->link_count * first->priorities; i++) {
        uint32_t link = (uint32_t)(i / first->priorities);
        const struct loop *l = part_of_link(first, link);
        for (uint32_t row = l->queues[i].first; row != NOBODY; row = l->rows.waits[row].next)
            areas[link] += queue_area(size_on_wire(l, l->links + link, row), now - l->rows.waits[row].time);
    }
}

/* Lists the packets that wait and arrived on another link: that link, the queue, and the bytes on the wire. Returns their
 * number, even if they do not fit `room`. */
uint64_t loop_queued(struct loop *first, int64_t (*queued)[3], uint64_t room)
{
    uint64_t count = 0;
    for (size_t i = 0; i < (size_t)first->link_count * first->priorities; i++) {
        const struct loop *l = part_of_link(first, (uint32_t)(i / first->priorities));
        for (uint32_t row = l->queues[i].first; row != NOBODY; row = l->rows.waits[row].next) {
            uint32_t came_by = l->rows.waits[row].came_by;
            if (came_by == NOBODY)
                continue;
            if (count < room) {
                queued[count][0] = came_by * l->priorities + i % l->priorities;
                queued[count][1] = (int64_t)i;
                queued[count][2] = l->rows.lengths[row] + l->links[i / l->priorities].overhead;
            }
            count++;
        }
    }
    return count;
}
