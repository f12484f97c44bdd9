"""The lesson on loss as a notebook (`marimo edit docs/tutorials/notebooks/loss.py`)."""

import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo

    from fanin import run

    return mo, run


@app.cell
def _(mo):
    mo.md("""
    # What does a lost packet cost?

    Sixteen workers in two racks all-reduce a vector, in the network and in a ring. In the network a lost packet
    delays one chunk, and the workers that miss its result retransmit their part of it. In a ring it delays what
    one worker receives from its neighbour. With go-back-N, which RoCE uses, the sender retransmits everything
    behind a lost packet; with selective repeat, only that packet.
    """)


@app.cell
def _(mo):
    loss = mo.ui.dropdown(["0.01%", "0.1%", "0.3%", "1%"], value="0.3%", label="packets lost on each link")
    timeout = mo.ui.dropdown(["50 us", "100 us", "1 ms"], value="100 us", label="shortest timeout")
    seed = mo.ui.slider(1, 9, label="seed")
    mo.hstack([loss, timeout, seed], justify="start")
    return loss, seed, timeout


@app.cell
def _(loss, mo, run, seed, timeout):
    found = run(
        "lesson:loss",
        "size=400 kB",
        f"loss=0,{loss.value}",
        f"min_rto={timeout.value}",
        "initial_rto=1 ms",
        f"seed={seed.value}",
    )
    mo.vstack(
        [
            mo.Html(found.figure("400 kB, 16 workers in 2 racks, hosts at 100 Gb/s")),
            mo.ui.table(found.table, selection=None),
        ]
    )
    return (found,)


@app.cell
def _(found, mo):
    def slower(**said):
        without, with_loss = sorted(
            (row["loss"], row["median_seconds"])
            for row in found.rows
            if all(row[name] == value for name, value in said.items())
        )
        return with_loss[1] / without[1]

    times = {
        "in-network": slower(algorithm="in-network"),
        "ring, selective repeat": slower(algorithm="ring", transport="selective-repeat"),
        "ring, go-back-N": slower(algorithm="ring", transport="go-back-n"),
    }
    mo.md(
        "\n".join(f"- {name}: **{times:.1f} times** as long as without loss" for name, times in times.items())
    )
    return (times,)


@app.cell
def _(mo):
    mo.md("""
    Why do so few losses cost so much? Each worker sends hundreds of packets, so hardly any all-reduce is
    without a loss, and everybody waits for the slowest worker. What does a shorter timeout change, and for
    which algorithm? This lesson's page is docs/tutorials/lessons/loss.md.
    """)


if __name__ == "__main__":
    app.run()
