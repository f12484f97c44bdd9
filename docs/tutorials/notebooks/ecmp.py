"""The lesson on colliding flows as a notebook (`marimo edit docs/tutorials/notebooks/ecmp.py`)."""

import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo

    from fanin import run
    from fanin.experiments.models.flows import spreads, ways

    return mo, run, spreads, ways


@app.cell
def _(mo):
    mo.md("""
    # Flows that collide

    Sixteen workers in four racks use a ring. Each rack has four uplinks, one for each host, which is enough for
    all of them. But a flow's path comes from a hash of its addresses and ports, which does not know what else
    uses that path.
    """)


@app.cell
def _(mo):
    seed = mo.ui.slider(1, 9, label="seed: the order of ranks")
    flows = mo.ui.dropdown(["1", "2", "4", "8"], value="1", label="flows per pair of neighbours")
    mo.hstack([seed, flows], justify="start")
    return flows, seed


@app.cell
def _(flows, mo, run, seed):
    found = run(
        "lesson:ecmp",
        "algorithm=ring",
        f"seed={seed.value}",
        f"flows_per_pair={flows.value}",
    )
    mo.Html(found.figure("1 MB in a ring, 16 workers in 4 racks, all links at 100 Gb/s"))
    return (found,)


@app.cell
def _(found, mo, spreads, ways):
    hashed = next(point for point in found.scenario.points if point.paths == "ecmp")
    choices = spreads(ways(hashed))
    mo.vstack(
        [
            mo.md("How many flows their hashes put on one uplink of each rack:"),
            mo.ui.table(
                [
                    {"switch": one.switch, "flows": one.flows, "uplinks": one.paths, "most on one": one.most}
                    for one in choices
                ],
                selection=None,
            ),
        ]
    )
    return (choices,)


@app.cell
def _(found, mo):
    seconds = {row["paths"]: row["median_seconds"] for row in found.rows}
    mo.md(
        f"By hash **{1e3 * seconds['ecmp']:.3f} ms**, sprayed packet by packet {1e3 * seconds['spray']:.3f} ms, "
        f"by the least busy path {1e3 * seconds['adaptive']:.3f} ms. A ring is as fast as its slowest flow: if two "
        "share one uplink, all sixteen workers wait. Do more flows help? This lesson's page is "
        "docs/tutorials/lessons/ecmp.md."
    )
    return (seconds,)


if __name__ == "__main__":
    app.run()
