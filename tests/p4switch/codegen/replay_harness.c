/* The packets of one superframe, or of none, through a program; what leaves is noted: port, length, bytes. */

#include "switch.h"

static void note(void *context, uint32_t port, uint8_t *packet, uint32_t length, uint8_t *checksum)
{
    uint8_t **at = context;
    (void)checksum;
    memcpy(*at, &port, 4);
    memcpy(*at + 4, &length, 4);
    memcpy(*at + 8, packet, length);
    *at += 8 + length;
}

/* `count` packets one after another; `superframe`: the number that they have in common, 0: they came alone. Returns the
 * bytes noted. */
uint64_t process_all(struct switch_base *base, uint64_t superframe, const uint8_t *packets, const uint32_t *lengths,
                     uint32_t count, uint8_t *room)
{
    uint8_t *at = room;
    base->emit = note;
    base->emit_context = &at;
    base->superframe = superframe;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(base->buffer, packets, lengths[i]);
        base->process(base, 1, base->buffer, lengths[i], 0, NULL);
        packets += lengths[i];
    }
    base->superframe = ALONE;
    return (uint64_t)(at - room);
}
