/* Hosts whose connections take turns on a network card, ../hosts/card.py to the bit, and whose worker is C. */

#include "loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TURN = 8 }; /* packets that a connection sends before the next one has its turn */

enum { IP_LENGTH = 16, IP_TO = 30, UDP_BYTES = 8 };

/* Whether a frame carries UDP over IPv4 to this address, with right checksums: FrameFilter of ../hosts/stations.py. */
static bool is_ours(const uint8_t *frame, uint32_t length, const uint8_t address[4])
{
    if (length < PAYLOAD || load16(frame + TYPE) != 0x0800 || frame[PROTOCOL] != PROTOCOL_UDP ||
        memcmp(frame + IP_TO, address, 4) || word_sum(frame + IP, frame + UDP) % 0xffff)
        return false;
    return !load16(frame + UDP_CHECKSUM) ||
           (word_sum(frame + IP_SOURCE, frame + length) + load16(frame + UDP_LENGTH) + PROTOCOL_UDP) % 0xffff == 0;
}

/* -- what arrives ---------------------------------------------------------------------------------------------------- */

static bool make_places(struct loop *l, size_t count)
{
    if (count <= l->place_room)
        return true;
    uint8_t **places = realloc(l->places, 2 * count * sizeof *places);
    if (places)
        l->places = places;
    uint8_t *marks = realloc(l->marks, 2 * count);
    if (marks)
        l->marks = marks;
    l->failed |= !places || !marks;
    if (!l->failed)
        l->place_room = 2 * count;
    return !l->failed;
}

/* Gives the worker the first `count` packets that wait at a host, those of one length that follow one another together. */
static void receive(struct loop *l, struct host *h, size_t count, double now)
{
    const struct card_settings *settings = h->card->settings;
    const struct event *events = h->inbox.at + h->inbox.first;
    if (!make_places(l, count))
        return;
    for (size_t i = 0; i < count;) {
        uint32_t length = l->rows.lengths[events[i].row];
        int64_t found = 0;
        for (; i < count && l->rows.lengths[events[i].row] == length; i++) {
            if (i + 1 < count)
                __builtin_prefetch(row_bytes(&l->rows, events[i + 1].row));
            uint8_t *frame = row_bytes(&l->rows, events[i].row);
            if (!is_ours(frame, length, settings->address)) {
                ++*settings->others;
                continue;
            }
            l->places[found] = frame + PAYLOAD;
            l->marks[found++] = (frame[TOS] & ECN_MARKED) == ECN_MARKED;
        }
        struct datagrams datagrams = {(const uint8_t *const *)l->places, l->marks, found, length - PAYLOAD};
        if (found && !settings->receive(settings->worker, &datagrams, now))
            l->failed = true;
    }
    for (size_t i = 0; i < count; i++)
        free_row(l, h->inbox.at[h->inbox.first++].row);
}

/* -- what is sent ---------------------------------------------------------------------------------------------------- */

/* Writes the headers of a datagram's frame: those of a connection, with lengths and checksum. */
static void write_headers(const uint8_t *of_connection, uint32_t size, uint8_t *to)
{
    memcpy(to, of_connection, PAYLOAD);
    store16(to + IP_LENGTH, UDP - IP + UDP_BYTES + size);
    store16(to + IP_CHECKSUM, 0);
    store16(to + IP_CHECKSUM, 0xffff - (uint32_t)((word_sum(to + IP, to + UDP) - 1) % 0xffff + 1));
    store16(to + UDP_LENGTH, UDP_BYTES + size);
}

static struct batch_of_rows *add_batch(struct loop *l, struct batch_of_rows **first, struct batch_of_rows **last)
{
    struct batch_of_rows *b = l->spare_batches;
    if (b)
        l->spare_batches = b->next;
    else if ((b = malloc(sizeof *b))) {
        b->made_before = l->batches;
        l->batches = b;
    } else
        return NULL;
    b->next = NULL;
    b->count = 0;
    b->first = b->last = NOBODY;
    if (*first)
        (*last)->next = b;
    else
        *first = b;
    *last = b;
    return b;
}

/* A batch_function: the rows wait with the card, the acknowledgements first. */
static uint8_t *const *make_batch(void *context, struct connection *c, bool acknowledges, int64_t count, int64_t size)
{
    struct card *card = context;
    struct loop *l = card->loop;
    if (PAYLOAD + size > l->rows.width) {
        l->too_long_sent = (uint32_t)(PAYLOAD + size);
        return NULL;
    }
    bool waits = c->first;
    struct batch_of_rows *b =
        acknowledges ? add_batch(l, &card->first, &card->last) : add_batch(l, &c->first, &c->last);
    l->failed |= !b;
    if (!b || !make_places(l, (size_t)count))
        return NULL;
    if (!acknowledges && !waits) {
        if (card->in_turn)
            card->newest->next = c;
        else
            card->in_turn = c;
        card->newest = c;
        c->next = NULL;
    }
    uint8_t headers[PAYLOAD];
    write_headers(c->header, (uint32_t)size, headers);
    b->length = (uint32_t)(PAYLOAD + size);
    for (uint32_t row; b->count < count && add_row(l, b->length, &row); b->count++) {
        uint8_t *frame = row_bytes(&l->rows, row);
        memcpy(frame, headers, PAYLOAD);
        l->places[b->count] = frame + PAYLOAD;
        l->rows.waits[row].next = NOBODY;
        if (b->first == NOBODY)
            b->first = row;
        else
            l->rows.waits[b->last].next = row;
        b->last = row;
    }
    l->rows_with_cards += (uint64_t)b->count;
    return b->count == count ? l->places : NULL;
}

static double packet_seconds(const struct card *card, const struct batch_of_rows *b)
{
    return (double)(b->length + card->settings->overhead) * card->settings->byte_seconds;
}

/* Returns how many of the packets of a batch the link may be given. */
static int64_t room_for(const struct card *card, const struct batch_of_rows *b, double now)
{
    double seconds = packet_seconds(card, b), left = now + card->settings->ahead - card->free_at;
    if (left < 0)
        return 0;
    return left >= (double)b->count * seconds ? b->count : 1 + (int64_t)(left / seconds);
}

/* Gives the link up to `most` packets from the first batch of a list, and returns how many they were. */
static int64_t give(struct loop *l, uint32_t host, struct batch_of_rows **first, int64_t most, int64_t now)
{
    struct card *card = l->hosts[host].card;
    struct batch_of_rows *b = *first;
    int64_t count = most < b->count ? most : b->count;
    for (int64_t i = 0; i < count; i++) {
        uint32_t row = b->first;
        b->first = l->rows.waits[row].next;
        send_packet(l, l->hosts[host].link, now, row, NOBODY);
    }
    l->rows_with_cards -= (uint64_t)count;
    card->free_at += (double)count * packet_seconds(card, b);
    b->count -= count;
    if (!b->count) {
        *first = b->next;
        b->next = l->spare_batches;
        l->spare_batches = b;
    }
    return count;
}

/* Ends the turn of the first connection. */
static void end_turn(struct card *card)
{
    struct connection *c = card->in_turn;
    card->in_turn = c->next;
    card->sent_in_turn = 0;
    if (!c->first)
        return;
    c->next = NULL;
    if (card->in_turn)
        card->newest->next = c;
    else
        card->in_turn = c;
    card->newest = c;
}

/* Gives the link what it may have now. */
static void send(struct loop *l, uint32_t host, int64_t now, double seconds)
{
    struct card *card = l->hosts[host].card;
    int64_t room;
    card->free_at = fmax(card->free_at, seconds);
    while (card->first && (room = room_for(card, card->first, seconds)))
        give(l, host, &card->first, room, now);
    while (card->in_turn) {
        struct connection *c = card->in_turn;
        if (!c->next && !card->first) { /* alone */
            while (c->first)
                give(l, host, &c->first, c->first->count, now);
            end_turn(card);
            return;
        }
        if (!(room = room_for(card, c->first, seconds)))
            return;
        int64_t left = TURN - card->sent_in_turn;
        card->sent_in_turn += give(l, host, &c->first, room < left ? room : left, now);
        if (card->sent_in_turn == TURN || !c->first)
            end_turn(card);
    }
}

/* -- a host ---------------------------------------------------------------------------------------------------------- */

/* Sends what a host has to send at `now`, and sets when it wakes next. */
static void act(struct loop *l, uint32_t host, int64_t now)
{
    const struct card *card = l->hosts[host].card;
    const struct card_settings *settings = card->settings;
    double seconds = (double)now / SECOND;
    if (!settings->send(settings->worker, make_batch, l->hosts[host].card, seconds))
        l->failed = true;
    send(l, host, now, seconds);
    double deadline = settings->deadline(settings->worker);
    if (card->first || card->in_turn)
        deadline = fmin(deadline, card->free_at);
    int64_t timer = not_before(deadline);
    timer = card->python_at < timer ? card->python_at : timer;
    loop_set_timer(l, host, timer > now ? timer : now + 1);
}

/* Does what a host does when it wakes at `now`. If that is TAKEN, Python has to act, and then calls loop_continue(). */
enum outcome wake_card(struct loop *l, uint32_t host, int64_t now)
{
    struct host *h = l->hosts + host;
    const struct card_settings *settings = h->card->settings;
    double seconds = (double)now / SECOND;
    size_t count = loop_waiting(l, host, now);
    if (count)
        receive(l, h, count, seconds);
    if (now >= h->card->python_at || (settings->needs_python && settings->needs_python(settings->worker, seconds)))
        return TAKEN;
    act(l, host, now);
    return DONE;
}

/* Lets a host with a card continue after Python has acted at `now`, which it has to do again at `python_at`. */
void loop_continue(struct loop *first, uint32_t host, int64_t now, int64_t python_at)
{
    struct loop *l = part_of_host(first, host);
    l->hosts[host].card->python_at = python_at;
    act(l, host, now);
}

/* Wakes a host at `at`, also in Python if Python ever acts there. */
void loop_wake(struct loop *l, uint32_t host, int64_t at)
{
    struct card *card = l->hosts[host].card;
    if (card && card->settings->needs_python)
        card->python_at = at;
    loop_set_timer(part_of_host(l, host), host, at);
}

static void drop_batches(struct loop *l, struct batch_of_rows *b)
{
    for (struct batch_of_rows *next; b; b = next) {
        next = b->next;
        for (uint32_t row = b->first, after; b->count; row = after, b->count--) {
            after = l->rows.waits[row].next;
            free_row(l, row);
            l->rows_with_cards--;
        }
        b->next = l->spare_batches;
        l->spare_batches = b;
    }
}

/* Removes a host's card, and all that waits for it. */
void remove_card(struct loop *l, uint32_t host)
{
    struct card *card = l->hosts[host].card;
    if (!card)
        return;
    drop_batches(l, card->first);
    for (struct connection *c = card->in_turn; c; c = c->next) {
        drop_batches(l, c->first);
        c->first = NULL;
    }
    free(card);
    l->hosts[host].card = NULL;
}

/* Gives a host a worker with a network card, instead of a station. `settings` is Python's memory. If the host has a card
 * already, it keeps what waits there. */
void loop_set_card(struct loop *first, uint32_t host, struct card_settings *settings)
{
    struct loop *l = part_of_host(first, host);
    replace_station(l, host, NULL);
    struct card *card = l->hosts[host].card;
    if (!card && !(card = calloc(1, sizeof *card))) {
        l->failed = true;
        return;
    }
    card->loop = l;
    card->settings = settings;
    card->python_at = NEVER;
    l->hosts[host].card = card;
}
