/* An arriving packet with all its copies and later passes: a family. The limits in struct spent apply to a family as
 * a whole. Included by programs with such limits whose packets may wait before egress, where each packet refers to
 * its family. */

#ifndef P4SWITCH_FAMILY_H
#define P4SWITCH_FAMILY_H

#include <stdlib.h>

#include "switch.h"

/* Called when the current packet, or a copy of it, begins to wait. Returns its family, or NULL without memory. */
static struct family *family_wait(struct switch_base *base)
{
    struct family *f = base->family;
    if (!f) {
        f = base->family = calloc(1, sizeof *f);
        if (!f)
            return NULL;
        f->next = base->families;
        if (f->next)
            f->next->place = &f->next;
        f->place = &base->families;
        base->families = f;
    }
    f->waiting++;
    return f;
}

/* Called when a packet of this family is processed further. A packet without a family may cause no further passes. */
static void family_resume(struct switch_base *base, struct family *f)
{
    base->family = f;
    base->spent = f ? f->spent : (struct spent){INT32_MAX, INT32_MAX};
    if (f)
        f->waiting--;
}

/* Called when the current packet is done, apart from copies that wait. */
static void family_leave(struct switch_base *base)
{
    struct family *f = base->family;
    base->family = NULL;
    if (!f)
        return;
    f->spent = base->spent;
    if (f->waiting)
        return;
    *f->place = f->next;
    if (f->next)
        f->next->place = f->place;
    free(f);
}

#endif
