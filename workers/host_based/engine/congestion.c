/* How many packets a sender may have in flight, and how fast it may send them: congestion_control.py. */

#include "streams.h"

#include <math.h>

#define AHEAD 2e-6

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most_of(int64_t a, int64_t b) { return a > b ? a : b; }

void control_open(const struct settings *settings, struct control *c)
{
    *c = (struct control){0};
    if (settings->control == DCTCP)
        c->dctcp = (struct dctcp){.size = (double)settings->first_window, .share = settings->alpha,
                                  .ssthresh = (double)settings->initial_ssthresh};
    else if (settings->control == DCQCN)
        c->dcqcn = (struct dcqcn){.rate = settings->rate, .target = settings->rate, .alpha = settings->alpha,
                                  .next_alpha = INFINITY, .next_increase = INFINITY,
                                  .next_decrease = settings->by_timer ? INFINITY : 0};
}

int64_t control_window(const struct settings *settings, const struct control *c)
{
    return settings->control == DCTCP ? (int64_t)c->dctcp.size : settings->window;
}

/* -- DCTCP ----------------------------------------------------------------------------------------------------------- */

static void grow(const struct settings *settings, struct dctcp *d, double packets)
{
    d->size = fmin(d->size + packets, (double)settings->window);
}

static void dctcp_acknowledged(const struct settings *settings, struct control *c, int64_t base, int64_t end, int64_t marked)
{
    struct dctcp *d = &c->dctcp;
    bool congested = marked > c->marked;
    if (congested) {
        c->marked = marked;
        d->ssthresh = fmin(d->ssthresh, d->size);
    }
    bool slow_start = d->size < d->ssthresh;
    if (slow_start)
        grow(settings, d, fmin((double)(base - d->acknowledged), d->ssthresh - d->size));
    d->acknowledged = base;
    bool ended = base >= least(d->epoch_end, end);
    int64_t marks = c->marked - d->epoch_marked;
    if (ended) {
        double share = fmin((double)marks / (double)most_of(base - d->epoch_acknowledged, 1), 1.0);
        d->share += settings->gain * (share - d->share);
        d->epoch_end = end;
        d->epoch_acknowledged = base;
        d->epoch_marked = c->marked;
    }
    if (congested && base > least(d->reduced, end - 1)) {
        d->size = fmax(d->size * (1 - d->share / 2), (double)settings->least);
        d->ssthresh = d->size;
        d->reduced = end;
    }
    if (ended && !(slow_start || (marks && !settings->always)))
        grow(settings, d, 1);
}

/* -- DCQCN: the effects of its timers are computed on the next call, before anything else --------------------------- */

static void set_alpha_until(const struct settings *settings, struct dcqcn *d, double now)
{
    if (d->next_alpha > now)
        return;
    double times = floor((now - d->next_alpha) / settings->alpha_interval) + 1;
    d->next_alpha += times * settings->alpha_interval;
    if (d->alpha_marked) {
        d->alpha += settings->gain * (1 - d->alpha);
        d->alpha_marked = false;
        times -= 1;
    }
    d->alpha *= pow(1 - settings->gain, times);
}

static void decrease(const struct settings *settings, struct dcqcn *d, double now)
{
    if (d->increases || !settings->keep_target)
        d->target = d->rate;
    d->rate = fmax(settings->min_rate, d->rate * (1 - d->alpha / 2));
    d->increases = 0;
    d->next_increase = now + settings->increase_interval;
}

static void increase_until(const struct settings *settings, struct dcqcn *d, double now)
{
    while (d->next_increase <= now) {
        if (d->increases >= settings->fast_recovery) {
            bool first = d->increases == settings->fast_recovery;
            d->target = fmin(d->target + (first ? settings->additive_rate : settings->hyper_rate), settings->rate);
        }
        d->rate = (d->rate + d->target) / 2;
        d->increases++;
        d->next_increase += settings->increase_interval;
    }
}

static void advance(const struct settings *settings, struct dcqcn *d, double now)
{
    if (d->decrease_marked && d->next_decrease <= now) {
        double due = d->next_decrease;
        increase_until(settings, d, due);
        set_alpha_until(settings, d, due);
        decrease(settings, d, due);
        d->decrease_marked = false;
    }
    increase_until(settings, d, now);
    set_alpha_until(settings, d, now);
    if (settings->by_timer && d->next_decrease <= now) { /* skip the timers at which there was nothing to decrease */
        double interval = settings->decrease_interval;
        d->next_decrease += interval * (floor((now - d->next_decrease) / interval) + 1);
    }
}

static void dcqcn_acknowledged(const struct settings *settings, struct control *c, int64_t marked, double now)
{
    struct dcqcn *d = &c->dcqcn;
    if (marked <= c->marked)
        return;
    c->marked = marked;
    advance(settings, d, now);
    if (settings->by_timer) {
        d->decrease_marked = true;
        if (d->next_alpha < INFINITY) {
            d->alpha_marked = true;
            return;
        }
        d->next_decrease = now + settings->decrease_interval;
    } else if (now >= d->next_decrease) {
        d->alpha += settings->gain * (1 - d->alpha);
        decrease(settings, d, now);
        d->next_decrease = now + settings->decrease_interval;
    } else {
        return;
    }
    d->next_alpha = now + settings->alpha_interval;
}

/* -- all of them ----------------------------------------------------------------------------------------------------- */

/* Returns how many packets may be sent now; -1 if only the window limits them. */
int64_t control_allowance(const struct settings *settings, struct control *c, double now)
{
    if (settings->control != DCQCN)
        return -1;
    advance(settings, &c->dcqcn, now);
    if (now < c->dcqcn.ready_at)
        return 0;
    return 1 + (int64_t)floor(AHEAD * c->dcqcn.rate / settings->packet_bits);
}

void control_sent(const struct settings *settings, struct control *c, int64_t packets, double now)
{
    if (settings->control == DCQCN)
        c->dcqcn.ready_at = fmax(c->dcqcn.ready_at, now) + (double)packets * settings->packet_bits / c->dcqcn.rate;
}

/* Records an acknowledgement: all packets below `base` are acknowledged, all below `end` have been sent. */
void control_acknowledged(const struct settings *settings, struct control *c, int64_t base, int64_t end, int64_t marked,
                          double now)
{
    if (settings->control == DCTCP)
        dctcp_acknowledged(settings, c, base, end, marked);
    else if (settings->control == DCQCN)
        dcqcn_acknowledged(settings, c, marked, now);
}
