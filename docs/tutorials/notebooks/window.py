"""The lesson on windows as a notebook (`marimo edit docs/tutorials/notebooks/window.py`)."""

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
    # How many slots does a job need?

    A switch has few slots, and every packet in flight needs one. A worker with a window of `W` packets sends
    `W` packets and then waits for a result before it sends the next one. So it sends `W` packets per round
    trip `R`, and never faster than its link. This is Little's law.

    Four workers in two racks all-reduce a vector in the network. Choose the links and the size of the vector:
    """)


@app.cell
def _(mo):
    rate = mo.ui.dropdown(["10 Gb/s", "100 Gb/s", "400 Gb/s"], value="100 Gb/s", label="rate of links")
    delay = mo.ui.dropdown(["1 us", "5 us", "10 us"], value="10 us", label="delay of each link")
    size = mo.ui.dropdown(["100 kB", "400 kB", "1 MB"], value="400 kB", label="size of the vector")
    mo.hstack([rate, delay, size], justify="start")
    return delay, rate, size


@app.cell
def _(delay, mo, rate, run, size):
    found = run(
        "lesson:window",
        f"rate={rate.value}",
        f"delay={delay.value}",
        f"size={size.value}",
        "window=16,32,64,128,256,512",
    )
    mo.Html(found.figure(f"{size.value} in-network, 4 workers, {rate.value}, {delay.value} a link"))
    return (found,)


@app.cell
def _(mo):
    mo.md("""
    Half the window takes twice the time, as long as the window is smaller than bandwidth times round trip.
    Above that the link is the limit, and more packets in flight only hold slots that another job could use.

    How long is a round trip? It crosses four links up and down and waits until the host looks for packets.
    With the smallest window the all-reduce is one round trip after another, so it shows the answer:
    """)


@app.cell
def _(found, mo):
    from math import ceil

    row = found.rows[0]
    packets = ceil(row["size"] / 1024)
    round_trip = row["median_seconds"] / (1 + ceil(packets / row["window"]))
    packet_seconds = 8 * 1104 / row["rate"]
    enough = ceil(round_trip / packet_seconds)
    mo.md(
        f"- {packets:,} packets in windows of {row['window']}, and one more window for exponents: "
        f"a round trip takes about **{1e6 * round_trip:.1f} µs**.\n"
        f"- A packet of 1,104 bytes occupies such a link for {1e6 * packet_seconds:.3f} µs.\n"
        f"- So **{enough:,} slots** are enough, and a switch with 1,024 slots has room for {1024 // enough} such jobs."
    )
    return (enough,)


@app.cell
def _(mo):
    mo.md("""
    Predict where the line bends at 400 Gb/s before you choose it. This lesson's page is
    docs/tutorials/lessons/window.md.
    """)


if __name__ == "__main__":
    app.run()
