/* The forwarding loop between ports and the program, with emulated links; see ports.h. */

#define _GNU_SOURCE
#include "ports.h"

#include <errno.h>
#include <linux/if_ether.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

/* Nanoseconds of sched_yield before the loop sleeps, because waking up takes long. With emulated links the thread
 * should use little processor time (pace_calm). */
#define IDLE 300000
#define IDLE_WITH_LINKS 50000
#define RELEASE_EVERY 30000000 /* picoseconds: packets that leave emulated links together may be sent as superframes */
#define MICROSECOND 1000000

static uint64_t picoseconds_since(const struct forwarder *f) { return (nanoseconds(CLOCK_MONOTONIC) - f->began) * 1000; }

/* Adds packets with one Ethernet header to the counters of their kind. */
static void count_kind(const uint8_t *frame, uint32_t length, uint64_t packets, uint64_t *multicast, uint64_t *broadcast)
{
    static const uint8_t everyone[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    if (frame[0] & 1 && length >= sizeof everyone)
        *(memcmp(frame, everyone, sizeof everyone) ? multicast : broadcast) += packets;
}

static void count_received(struct port *port, const uint8_t *frame, uint32_t length, uint64_t packets, uint64_t bytes)
{
    struct port_statistics *s = &port->statistics;
    s->received += packets;
    s->received_bytes += bytes;
    count_kind(frame, length, packets, &s->received_multicast, &s->received_broadcast);
}

/* Counts so many packets of a frame; `sign` is -1 for those that were counted and could not be sent. */
static void count_sent(struct port *port, const struct joined *frame, uint32_t segments, int64_t sign)
{
    struct port_statistics *s = &port->statistics;
    uint64_t packets = (uint64_t)sign * segments, each = frame->headers + (uint64_t)frame->size;
    bool all = segments == frame->segments; /* the last one may be shorter */
    s->sent += packets;
    s->sent_bytes += all ? (uint64_t)sign * frame->length + (packets - (uint64_t)sign) * frame->headers : packets * each;
    count_kind(frame->frame, frame->length, packets, &s->sent_multicast, &s->sent_broadcast);
}

/* Sends a port's frames. Frames that the link's queue does not accept are dropped, as a switch does. */
static void port_flush(struct port *port)
{
    struct mmsghdr messages[SEND_MAX];
    struct iovec pieces[SEND_MAX][2];
    for (uint32_t i = 0; i < port->waiting; i++) {
        struct joined *frame = port->out + i;
        struct virtio_net_hdr *virtio = (struct virtio_net_hdr *)(frame->frame - sizeof *virtio);
        join_close(frame, virtio);
        uint32_t head = port->is_cpu ? 0 : sizeof *virtio;
        bool elsewhere = join_elsewhere(frame);
        pieces[i][0] = (struct iovec){frame->frame - head, head + (elsewhere ? frame->headers : frame->length)};
        pieces[i][1] = (struct iovec){(void *)frame->payload, frame->length - frame->headers};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = pieces[i], .msg_iovlen = elsewhere ? 2 : 1}};
        count_sent(port, frame, frame->segments, 1);
    }
    for (uint32_t done = 0; done < port->waiting;) {
        int sent = sendmmsg(port->socket, messages + done, port->waiting - done, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) {
            port->statistics.sent_frames += (uint32_t)sent;
            done += (uint32_t)sent;
        } else if (errno != EINTR) {
            const struct joined *frame = port->out + done++;
            uint32_t lost = frame->segments - send_refused(port, frame, errno);
            port->statistics.dropped += lost;
            if (lost)
                count_sent(port, frame, lost, -1);
        }
    }
    port->waiting = port->used = 0;
}

/* Sends all ports' frames. They may share payloads, so all are sent together. */
static void flush(struct forwarder *f)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (f->ports[i].waiting)
            port_flush(f->ports + i);
    f->replica.serial = 0;
}

/* Returns where the payload of this packet is stored already, or NULL. */
static const struct stored *find_stored(const struct forwarder *f, const uint8_t *packet, uint32_t length)
{
    const struct waiting_replica *r = &f->replica;
    const struct sharing *sharing = &f->base->sharing;
    bool same = sharing->from >= packet && r->serial == sharing->serial && r->packet == packet && r->length == length &&
                sharing->from <= packet + r->stored.headers; /* not a copy that a link has corrupted */
    return same ? &r->stored : NULL;
}

/* Queues a packet for a port's socket, in a superframe with those before it if it fits. */
static void enqueue(struct forwarder *f, struct port *port, uint8_t *packet, uint32_t length, uint8_t *checksum)
{
    bool joins = f->join && !port->is_cpu;
    capture(port->captured_out, packet, length);
    const struct stored *stored = joins ? find_stored(f, packet, length) : NULL;
    struct joined *last = port->waiting ? port->out + port->waiting - 1 : NULL;
    if (!joins || !last || !join_add(last, packet, length, checksum, stored)) {
        if (port->waiting == SEND_MAX || port->used + HEAD_ROOM + 64 + FRAME_ROOM > SEND_ROOM) {
            flush(f);
            stored = NULL;
        }
        port->used = (port->used + HEAD_ROOM + 63) / 64 * 64;
        last = port->out + port->waiting++;
        join_open(last, port->room + port->used, packet, length, checksum, f->base->checksum_offset, stored);
        last->joinable = last->joinable && (last->tcp || f->join_udp);
        if (port->is_cpu && checksum)
            complete_checksum(last->frame + (checksum - packet), f->base->checksum_offset, last->frame + length);
    }
    bool elsewhere = join_elsewhere(last);
    port->used = (uint32_t)(last->frame - port->room) + (elsewhere ? last->headers : last->length);
    if (f->base->sharing.from && joins && last->size && !elsewhere)
        f->replica = (struct waiting_replica){f->base->sharing.serial, packet, length,
                                              {last->frame + last->length - length, last->headers}};
}

/* The program's emit_function. */
static void transmit(void *context, uint32_t number, uint8_t *packet, uint32_t length, uint8_t *checksum)
{
    struct forwarder *f = context;
    struct port *port = f->by_number[number % 512];
    if (!port || port->number != number || length == 0)
        return;
    if (port->egress)
        link_offer(port->egress, f->now, packet, length, checksum, f->base->checksum_offset);
    else
        enqueue(f, port, packet, length, checksum);
}

/* Emulated links */

/* The program's queue_function. */
static void *wait_for_link(void *context, uint32_t number, uint32_t priority, uint32_t length, size_t room,
                           bool *dropped)
{
    struct forwarder *f = context;
    struct port *port = f->by_number[number % 512];
    if (!port || port->number != number || !port->egress)
        return NULL;
    return link_wait(port->egress, f->now, priority, length, room, f->base->checksum_offset, dropped);
}

/* A dequeue_function: egress sees the time when the link became free, even if this thread is late. */
static void leave_queue(void *context, const struct wait *w)
{
    struct port *port = context;
    struct forwarder *f = port->forwarder;
    uint64_t now = f->now;
    f->now = w->until;
    f->base->checksum_offset = w->checksum_offset;
    f->base->queueing = (struct queueing){.deq_timedelta = (w->until - w->since) / MICROSECOND,
                                          .enq_qdepth = w->found,
                                          .deq_qdepth = w->left};
    f->base->dequeue(f->base, w->packet, port->number, w->until / MICROSECOND);
    f->now = now;
}

/* A release_function: a packet has passed the link behind a port. */
static void leave_link(void *context, uint8_t *packet, uint32_t length, uint8_t *checksum, uint16_t checksum_offset)
{
    struct port *port = context;
    port->forwarder->base->checksum_offset = checksum_offset;
    enqueue(port->forwarder, port, packet, length, checksum);
}

/* A release_function: a packet has arrived at a port. */
static void arrive(void *context, uint8_t *packet, uint32_t length, uint8_t *checksum, uint16_t checksum_offset)
{
    struct port *port = context;
    struct switch_base *base = port->forwarder->base;
    base->checksum_offset = checksum_offset;
    memcpy(base->buffer, packet, length); /* a link has no headroom */
    if (checksum)
        checksum = base->buffer + (checksum - packet);
    base->process(base, port->number, base->buffer, length, port->forwarder->now / MICROSECOND, checksum);
}

/* Sets the emulated link behind a port, or before it (ingress). The caller holds the switch's lock. Returns false if
 * there is no memory. */
bool forwarder_set_link(struct forwarder *f, uint32_t index, bool ingress, const struct link_settings *settings)
{
    struct port *port = f->ports + index;
    struct link **link = ingress ? &port->ingress : &port->egress;
    if (!*link) {
        struct link *opened = link_open(ingress ? arrive : leave_link, leave_queue, port, 2ull * port->number + ingress);
        if (!opened)
            return false;
        /* Links count from the arrival of a packet, not from the time it is read. */
        for (uint32_t i = 0; i < f->count; i++)
            setsockopt(f->ports[i].socket, SOL_SOCKET, SO_TIMESTAMPNS, &(int){1}, sizeof(int));
        f->links[f->link_count] = opened;
        f->link_count++; /* the forwarding thread reads the links without the lock */
        *link = opened;
    }
    link_set(*link, settings);
    return true;
}

/* Reads the statistics of an emulated link; the caller holds the switch's lock. Returns false if there is no link. */
bool forwarder_read_link(const struct forwarder *f, uint32_t index, bool ingress, struct link_statistics *to)
{
    const struct link *link = ingress ? f->ports[index].ingress : f->ports[index].egress;
    if (link)
        link_read(link, picoseconds_since(f), to);
    return link != NULL;
}

/* Prints a message if emulated links cannot keep up. */
static void complain(struct forwarder *f)
{
    uint64_t sent = 0, late = 0;
    for (uint32_t i = 0; i < f->link_count; i++) {
        sent += f->links[i]->statistics.sent;
        late += f->links[i]->statistics.late;
    }
    if (pace_lost(&f->pace, f->now, &sent, &late))
        fprintf(stderr, "p4switch: cannot keep up: emulated links released %llu of %llu packets more than 1 ms late\n",
                (unsigned long long)late, (unsigned long long)sent);
}

static uint64_t next_release(const struct forwarder *f)
{
    uint64_t next = NEVER;
    for (uint32_t i = 0; i < f->link_count; i++) {
        uint64_t due = link_next(f->links[i]);
        next = due < next ? due : next;
    }
    return next;
}

/* Busy processes may delay this thread, and so an emulated link, by milliseconds. With the right to do so (root) it
 * takes precedence over them, as long as they do not starve. */
static void hurry(struct forwarder *f, bool hurries)
{
    struct sched_param priority = {.sched_priority = hurries};
    if (f->may_not_hurry || hurries == f->hurries)
        return;
    f->may_not_hurry = sched_setscheduler(0, hurries ? SCHED_FIFO : SCHED_OTHER, &priority) != 0;
    f->hurries = hurries && !f->may_not_hurry;
}

static void lock_for_packets(struct forwarder *f)
{
    static const struct timespec moment = {.tv_nsec = 20000};
    while (atomic_load(&f->base->waiting))
        if (f->hurries)
            nanosleep(&moment, NULL); /* sched_yield would have no effect */
        else
            sched_yield();
    pthread_mutex_lock(&f->base->lock);
    f->base->emit = transmit;
    f->base->emit_context = f;
    f->base->queue = wait_for_link;
    f->now = picoseconds_since(f);
}

/* Releases the packets that are due on emulated links. Returns the nanoseconds until the next one, or -1 if none
 * waits. */
static int64_t release(struct forwarder *f)
{
    uint64_t next = next_release(f);
    if (next == NEVER)
        return -1;
    uint64_t now = picoseconds_since(f);
    hurry(f, pace_calm(&f->pace, now, nanoseconds(CLOCK_THREAD_CPUTIME_ID)));
    if (next < f->released + RELEASE_EVERY)
        next = f->released + RELEASE_EVERY;
    if (next > now)
        return (int64_t)((next - now + 999) / 1000);
    lock_for_packets(f);
    for (uint32_t i = 0; i < f->link_count; i++)
        link_release(f->links[i], f->now);
    f->released = f->now;
    complain(f);
    pthread_mutex_unlock(&f->base->lock);
    flush(f);
    return 0;
}

static void accept_packet(struct forwarder *f, struct port *port, uint8_t *packet, uint32_t length, uint64_t now,
                          uint8_t *checksum)
{
    struct switch_base *base = f->base;
    capture(port->captured_in, packet, length);
    if (port->ingress)
        link_offer(port->ingress, f->now, packet, length, checksum, base->checksum_offset);
    else
        base->process(base, port->number, packet, length, now, checksum);
}

/* Lets the control plane have the lock between two packets of a frame, each of which may take a while. */
static void let_in(struct forwarder *f)
{
    struct switch_base *base = f->base;
    if (!atomic_load_explicit(&base->waiting, memory_order_relaxed))
        return;
    uint64_t now = f->now;
    pthread_mutex_unlock(&base->lock);
    lock_for_packets(f);
    f->now = now;
    if (base->superframe != ALONE)
        base->superframe = ++base->superframes; /* replay nothing that may have changed */
}

/* Processes a frame that a port received: each of its packets passes through the program. */
static void receive(struct forwarder *f, struct port *port, const struct virtio_net_hdr *virtio, uint8_t *frame,
                    uint32_t length, uint64_t now)
{
    struct switch_base *base = f->base;
    base->checksum_offset = virtio->csum_offset;
    port->statistics.received_frames++;
    if (virtio->gso_type == VIRTIO_NET_HDR_GSO_NONE) {
        uint8_t *checksum = NULL;
        if (virtio->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM && virtio->csum_start + virtio->csum_offset + 2u <= length)
            checksum = frame + virtio->csum_start + virtio->csum_offset;
        count_received(port, frame, length, 1, length);
        accept_packet(f, port, frame, length, now, checksum);
        return;
    }
    struct superframe s;
    if (!split_open(&s, frame, length, virtio)) {
        port->statistics.dropped++;
        return;
    }
    count_received(port, frame, length, s.segments, length + (s.segments - 1ull) * s.headers);
    if (f->link_count == 0) /* emulated links may change packets */
        base->superframe = ++base->superframes;
    for (uint32_t i = 0; i < s.segments; i++) {
        uint32_t size;
        let_in(f);
        uint8_t *packet = split(&s, i, &size);
        accept_packet(f, port, packet, size, now, packet + s.checksum);
    }
    base->superframe = ALONE;
}

/* Processes a packet from the control plane as if it had arrived at the port that it names. */
static void receive_from_control(struct forwarder *f, uint8_t *message, uint32_t length, uint64_t now)
{
    uint32_t number;
    if (length < sizeof number || length - sizeof number > LONGEST_PACKET) {
        f->cpu->statistics.dropped++;
        return;
    }
    memcpy(&number, message, sizeof number);
    f->base->process(f->base, number, message + sizeof number, length - (uint32_t)sizeof number, now, NULL);
    f->cpu->statistics.received++;
}

/* Returns the control data of that kind which the kernel delivers with a frame, or NULL. */
static const void *control_data(struct msghdr *message, int level, int type)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == level && c->cmsg_type == type)
            return CMSG_DATA(c);
    return NULL;
}

/* Returns when a frame arrived that is read at `now` (picoseconds), with the wall clock at so many nanoseconds. */
static uint64_t arrival(struct msghdr *message, uint64_t now, int64_t wall_clock)
{
    struct timespec came;
    const void *stamp = control_data(message, SOL_SOCKET, SO_TIMESTAMPNS);
    if (!stamp)
        return now;
    memcpy(&came, stamp, sizeof came);
    return pace_arrival(now, wall_clock - (int64_t)came.tv_sec * 1000000000 - came.tv_nsec);
}

/* Puts the VLAN tag of a received frame back in its place: the kernel delivers it separately. */
static void restore_tag(struct msghdr *message, struct virtio_net_hdr *virtio, uint8_t **frame, uint32_t *length)
{
    const void *auxiliary = control_data(message, SOL_PACKET, PACKET_AUXDATA);
    if (!auxiliary)
        return;
    struct tpacket_auxdata aux;
    memcpy(&aux, auxiliary, sizeof aux);
    if (!(aux.tp_status & TP_STATUS_VLAN_VALID) || *length < 12 || *length + 4 > FRAME_ROOM)
        return;
    *frame -= 4;
    *length += 4;
    memmove(*frame, *frame + 4, 12);
    store_be16(*frame + 12, aux.tp_status & TP_STATUS_VLAN_TPID_VALID ? aux.tp_vlan_tpid : ETH_P_8021Q);
    store_be16(*frame + 14, aux.tp_vlan_tci);
    virtio->csum_start += 4;
    virtio->hdr_len += 4;
}

/* Takes a batch of frames from a port and forwards it. Returns whether there were any. */
static bool serve(struct forwarder *f, struct port *port)
{
    uint32_t batch = port->superframes ? SUPER_BATCH : BATCH;
    int count = recvmmsg(port->socket, f->messages, batch, MSG_DONTWAIT, NULL);
    if (count < 0 && errno != EAGAIN && errno != EINTR && errno != ENETDOWN) {
        receive_refused(port, errno);
        return true; /* there may be more frames after it */
    }
    if (count <= 0)
        return false;
    port->superframes = false;

    lock_for_packets(f);
    uint64_t read = f->now, now = read / MICROSECOND;
    int64_t wall_clock = f->link_count ? (int64_t)nanoseconds(CLOCK_REALTIME) : 0;
    for (int i = 0; i < count; i++) {
        struct mmsghdr *message = f->messages + i;
        uint8_t *frame = f->pieces[i].iov_base;
        uint32_t length = message->msg_len;
        struct virtio_net_hdr virtio;
        if (message->msg_hdr.msg_flags & MSG_TRUNC) {
            port->statistics.dropped++;
        } else if (port->is_cpu) {
            receive_from_control(f, frame, length, now);
        } else if (length > sizeof virtio) {
            memcpy(&virtio, frame, sizeof virtio);
            frame += sizeof virtio;
            length -= (uint32_t)sizeof virtio;
            restore_tag(&message->msg_hdr, &virtio, &frame, &length);
            if (wall_clock)
                f->now = arrival(&message->msg_hdr, read, wall_clock);
            port->superframes |= virtio.gso_type != VIRTIO_NET_HDR_GSO_NONE;
            receive(f, port, &virtio, frame, length, now);
        }
        message->msg_hdr.msg_controllen = sizeof f->control[i]; /* for the next call */
        let_in(f);
    }
    pthread_mutex_unlock(&f->base->lock);
    flush(f);
    return true;
}

/* Forwards until forwarder_stop. Without traffic it yields the processor for a moment, then sleeps. */
void forwarder_run(struct forwarder *f)
{
    prctl(PR_SET_TIMERSLACK, 1); /* nanosecond; otherwise sleeps may take 50 us longer */

    uint64_t idle_since = 0;
    while (!atomic_load(&f->stop)) {
        bool busy = false;
        struct epoll_event ready[BATCH];
        int count = epoll_wait(f->epoll, ready, BATCH, 0);
        int64_t free_for = release(f);
        for (int i = 0; i < count; i++) {
            struct port *port = ready[i].data.ptr;
            busy |= port && serve(f, port);
            free_for = release(f);
        }
        if (busy || free_for == 0) {
            idle_since = 0;
            continue;
        }
        uint64_t now = nanoseconds(CLOCK_MONOTONIC);
        if (idle_since == 0)
            idle_since = now;
        int64_t sleep = free_for < 0 ? 0 : pace_sleep(&f->pace, free_for);
        struct timespec until = {.tv_sec = sleep / 1000000000, .tv_nsec = sleep % 1000000000};
        if (free_for < 0 && !f->hurries && now - idle_since < (f->link_count ? IDLE_WITH_LINKS : IDLE)) {
            sched_yield();
        } else if (free_for < 0 || sleep > 0) {
            /* epoll_wait itself counts in milliseconds. */
            int woken = ppoll(&(struct pollfd){.fd = f->epoll, .events = POLLIN}, 1, free_for < 0 ? NULL : &until, NULL);
            uint64_t since = woken ? idle_since : now;
            pace_slept(&f->pace, woken ? -1 : free_for, (int64_t)(nanoseconds(CLOCK_MONOTONIC) - since));
            idle_since = 0;
        } /* otherwise a packet is due in a moment, too soon to yield */
    }
}
