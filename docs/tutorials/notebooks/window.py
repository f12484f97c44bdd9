"""The lesson on windows as a notebook: marimo edit docs/tutorials/notebooks/window.py"""

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

    A switch has few slots, and each packet on its way needs one. A worker with a window of `W` packets sends
    `W` of them, and must wait for a result before it sends the next: `W` packets for each round trip `R`, and
    never faster than its link. That is Little's law.

    Four workers in two racks sum a vector in the network. Choose the links and how much is summed:
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
    Half the window takes twice the time, up to bandwidth times round trip. From there the link is the limit,
    and more packets on their way only hold slots that another job could have.

    How long is a round trip? Four links up and down, and the time until the host looks. From the smallest
    window, which waits for one round trip after another:
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
        f"- {packets:,} packets in windows of {row['window']}, and one more for exponents: a round trip takes about "
        f"**{1e6 * round_trip:.1f} µs**.\n"
        f"- A packet of 1,104 bytes is on such a link for {1e6 * packet_seconds:.3f} µs.\n"
        f"- So **{enough:,} slots** are enough, and a switch of 1,024 has room for {1024 // enough} such jobs."
    )
    return (enough,)


@app.cell
def _(mo):
    mo.md("""
    Predict where the line bends at 400 Gb/s before you choose it. The page of this lesson is
    docs/tutorials/lessons/window.md.
    """)


if __name__ == "__main__":
    app.run()
