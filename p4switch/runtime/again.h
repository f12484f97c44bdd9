/* Clones, resubmission and recirculation: packets that pass through a pipeline again. Included by programs that use
 * one of them, between the parser and the code for the path of a packet.
 *
 * As in simple_switch, a clone of the ingress packet is the packet as it arrived, parsed again, and leaves before
 * the packet itself. A clone of the egress packet has the headers that egress left. Metadata are zero except for the
 * fields in the list that the primitive names. */

#ifndef P4SWITCH_AGAIN_H
#define P4SWITCH_AGAIN_H

#ifndef TRACE /* trace.h defines it in traced programs */
#define TRACE(...) (void)0
#endif

#define MAX_PASSES 4096             /* of one arriving packet through pipelines: no program runs forever */
#define MAX_AGAIN_BYTES (32u << 20) /* of packets that wait for their next pass */

enum { NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED = 4, REPLICATED, RESUBMITTED };

struct again {
    struct again *next;
    size_t size;
    bool at_egress; /* true: its headers are parsed, and it leaves through `port` */
    uint32_t port;
    struct packet packet;
};

static void leave(struct state *s, struct packet *p, uint32_t port);
static void run(struct state *s, struct packet *p, uint32_t error);

/* Applies a mirroring session's options to a clone. */
static void follow(struct packet *p, const struct replicas *session)
{
    if (session->longest < p->longest)
        p->longest = session->longest;
    undo_truncate(p);
    if (session->service_class)
        set_priority(p, session->service_class);
}

/* Counts a pass. Returns false if there have been too many; the packet is then dropped. */
static bool may_pass(struct state *s)
{
    if (s->base.spent.passes++ < MAX_PASSES)
        return true;
    report_drop(&s->base, &s->base.drops.too_often, "it and its copies have passed through the program too often");
    return false;
}

/* Returns memory for a packet of so many bytes, or NULL; the packet is then dropped. */
static struct again *again_open(struct state *s, uint32_t length)
{
    size_t size = offsetof(struct again, packet.bytes) + HEADROOM + length;
    struct again *a = s->again_bytes + size <= MAX_AGAIN_BYTES ? malloc(size) : NULL;
    if (!a) {
        report_drop(&s->base, &s->base.drops.no_room, "too many packets wait for their next pass");
        return NULL;
    }
    s->again_bytes += size;
    a->size = size;
    a->packet.dirty = true;
    return a;
}

static void again_close(struct state *s, struct again *a)
{
    s->again_bytes -= a->size;
    free(a);
}

/* Adds a packet to those that are processed after the current one. */
static void again_later(struct state *s, struct again *a, bool at_egress, uint32_t port)
{
    a->next = NULL;
    a->at_egress = at_egress;
    a->port = port;
    if (s->again_last)
        s->again_last->next = a;
    else
        s->again = a;
    s->again_last = a;
}

/* Sets the metadata of a packet's copy: zero, except for those to preserve. */
static void keep(struct packet *to, const struct packet *from, uint32_t list, uint32_t instance_type)
{
    memset(&to->meta, 0, sizeof to->meta);
    preserve(to, from, list);
    set_instance_type(to, instance_type);
}

/* Adds a packet that passes through the whole program again. */
static void parse_again(struct state *s, const struct packet *p, const uint8_t *bytes, uint32_t length, uint32_t list,
                        uint32_t instance_type)
{
    struct again *a = again_open(s, length);
    if (!a)
        return;
    memcpy(a->packet.bytes + HEADROOM, bytes, length);
    a->packet.length = length;
    a->packet.now = p->now;
    keep(&a->packet, p, list, instance_type);
    set_packet_length(&a->packet, length);
    TRACE(TRACE_LATER, instance_type);
    again_later(s, a, false, 0);
}

__attribute__((unused)) static void clone_ingress(struct state *s, struct packet *p)
{
    const struct replicas *session = s->base.sessions[p->request.clone % SESSIONS];
    struct again *a = session ? again_open(s, s->original_length) : NULL;
    if (!a)
        return;
    memcpy(a->packet.bytes + HEADROOM, s->original, s->original_length);
    begin_packet(&a->packet, a->packet.bytes + HEADROOM, s->original_length, p->now, NULL);
    set_ingress_port(&a->packet, p);
    TRACE(TRACE_CLONED, INGRESS_CLONE);
    parse(s, &a->packet);
    keep(&a->packet, p, p->request.clone_list, INGRESS_CLONE);
    follow(&a->packet, session);
    memset(&a->packet.request, 0, sizeof a->packet.request);
    replicate(s, &a->packet, session);
    TRACE(TRACE_COPY_DONE, 0);
    again_close(s, a);
}

__attribute__((unused)) static void clone_egress(struct state *s, const struct packet *p)
{
    const struct replicas *session = s->base.sessions[p->request.clone % SESSIONS];
    for (uint32_t i = 0; session && i < session->count; i++) {
        struct again *a = again_open(s, bytes_of(p));
        if (!a)
            continue;
        copy_packet(&a->packet, a->packet.bytes + HEADROOM, p, bytes_of(p));
        keep(&a->packet, p, p->request.clone_list, EGRESS_CLONE);
        follow(&a->packet, session);
        memset(&a->packet.request, 0, sizeof a->packet.request);
        set_rid(&a->packet, session->replica[i].instance);
        TRACE(TRACE_LATER, EGRESS_CLONE);
        again_later(s, a, true, session->replica[i].port);
    }
}

/* Keeps a packet as it arrived, for clones and for resubmission. */
static void keep_original(struct state *s, const struct packet *p)
{
    s->original_length = p->ingress_length;
    memcpy(s->original, p->start, p->ingress_length);
}

/* Processes the packets that wait for their next pass, including those that they cause. */
static void run_again(struct state *s)
{
    while (s->again) {
        struct again *a = s->again;
        s->again = a->next;
        if (!a->next)
            s->again_last = NULL;
        TRACE(TRACE_NEXT, 0);
        struct packet *p = &a->packet;
        if (a->at_egress) {
            leave(s, p, a->port);
        } else if (may_pass(s)) {
            struct metadata kept = p->meta;
            begin_packet(p, p->bytes + HEADROOM, p->length, p->now, NULL);
            p->meta = kept;
            keep_original(s, p);
            uint32_t error = parse(s, p);
            run(s, p, error);
        }
        again_close(s, a);
    }
}

#endif
