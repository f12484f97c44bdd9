"""Scenario files: what they may say, what they describe, and what is said of one that is wrong."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from fanin.experiments.models.prediction import predicted_call_seconds
from fanin.experiments.models.timers import recovery
from fanin.experiments.scenario.file import Choice, ScenarioError, load_scenario
from fanin.experiments.scenario.placement import place
from fanin.experiments.scenario.settings import KEYS, Settings, setting_columns
from fanin.experiments.scenario.targets import EMBEDDED
from fanin.topologies.link import PLAIN, LinkProperties, Pause
from fanin.topologies.shapes import leaf_spine
from fanin.workers.host_based.algorithms.registry import algorithm_names

HEAD = 'name = "try"\nsize = "4 kB"\n'
NETWORK = "[topology.leaf_spine]\nspines = 1\nleaves = 2\nhosts_per_leaf = 2\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "try.toml"


def settings(file: Path, text: str, *changes: str) -> list[Settings]:
    file.write_text(text)
    return list(load_scenario(file, changes).points)


def complaint(file: Path, text: str, *changes: str) -> str:
    with pytest.raises(ScenarioError) as error:
        settings(file, text, *changes)
    return str(error.value)


def test_what_is_left_out_has_a_default(file: Path) -> None:
    (point,) = settings(file, HEAD + NETWORK)
    assert (point.world, point.algorithm, point.elements) == ("virtual", "in-network", 1000)
    assert point.members == ("h1", "h2", "h3", "h4")


def test_links_that_undo_themselves_are_refused(file: Path) -> None:
    assert "links.reordering: needs displacement" in complaint(
        file, HEAD + NETWORK + "[links]\nreordering = 0.1\n"
    )
    assert "links.ecn_bytes: must be less than queue_bytes" in complaint(
        file, HEAD + NETWORK + "[links]\nqueue_bytes = 9000\necn_bytes = 10000\n"
    )


def test_pauses_end_below_where_they_begin(file: Path) -> None:
    links = "[links]\npause = {xoff_bytes = 1000, xon_bytes = [500, 1001]}\n"
    assert "links.pause.xon_bytes: is 1001, must be from 0 to xoff_bytes (1000)" in complaint(
        file, HEAD + NETWORK + links
    )


def test_the_network_has_what_is_said_of_its_links(file: Path) -> None:
    def properties(links: str, world: str = "virtual") -> set[LinkProperties]:
        (point,) = settings(file, HEAD + f'world = "{world}"\nseed = 7\n' + NETWORK + links)
        return {link.properties for link in point.network.links}

    lossy = "[links]\nloss = 0.1\ndelay = 1e-3\n"
    assert properties("") == properties("[links]\nloss = 0\n") == {PLAIN}
    assert properties(lossy) == {LinkProperties(loss=0.1, delay=1e-3)}
    assert properties(lossy, "live") == {LinkProperties(delay=1e-3, seed=7)}
    assert properties("[links]\nloss = 0.1\n", "live") == {PLAIN}


def test_links_said_to_have_no_overhead_have_none(file: Path) -> None:
    (point,) = settings(file, HEAD + NETWORK + "[links]\noverhead = 0\n")
    assert {link.properties.virtual_overhead for link in point.network.links} == {0}


def test_pauses_leave_what_a_topology_says_of_its_links() -> None:
    network = leaf_spine(0, 1, 2, properties={"loss": 0.1}).model_dump(mode="json")
    pause = Pause(xoff_bytes=1000, xon_bytes=500)
    for links, properties in (
        ({"pause": pause}, LinkProperties(loss=0.1, pause=pause)),
        ({"pause": pause, "jitter": 1e-6}, LinkProperties(jitter=1e-6, pause=pause)),
    ):
        point = Settings.model_validate({"size": "4 kB", "topology": network, "links": links})
        assert {link.properties for link in point.network.links} == {properties}


def test_timeouts_out_of_order_are_refused(file: Path) -> None:
    for world in ("live", "virtual"):
        given = f"{HEAD}world = '{world}'\n{NETWORK}[recovery]\nmin_rto = '100 ms'\n"
        assert (
            "recovery.min_rto: is 100 ms, longer than initial_rto, 50 ms; reduce it, or leave out one of them"
        ) in complaint(file, given + "initial_rto = '50 ms'\n")
        assert settings(file, given + "initial_rto = '100 ms'\n")


def test_corruption_without_checksums_is_refused(file: Path) -> None:
    live = HEAD + 'world = "live"\nchecksums = false\n' + NETWORK
    assert not settings(file, live)[0].checksums
    assert "without them, corruption changes sums" in complaint(file, live + "[links]\ncorruption = 0.01\n")
    assert "checksums: is live only" in complaint(file, HEAD + "checksums = false\n" + NETWORK)


def test_workers_pace_is_what_suits_the_links_but_for_what_is_said(file: Path) -> None:
    live = HEAD + 'world = "live"\n'
    (plain,) = settings(file, live + NETWORK)
    rate = plain.network.slowest_rate
    assert EMBEDDED.pace_of(plain) == EMBEDDED.pace(rate)
    (said,) = settings(file, live + "window = 7\nsegments = 3\n" + NETWORK + "[recovery]\nmin_rto = '2 ms'\n")
    assert EMBEDDED.pace_of(said) == replace(EMBEDDED.pace(rate), window=7, segments=3, min_rto=0.002)
    assert "segments: is live only" in complaint(file, HEAD + "segments = 3\n" + NETWORK)


@given(
    timeouts=st.dictionaries(st.sampled_from(["initial_rto", "min_rto"]), st.floats(1e-7, 100), min_size=1)
)
def test_a_timeout_that_is_left_out_gives_way_to_the_one_that_is_set(timeouts: dict[str, float]) -> None:
    shape = {"leaf_spine": {"spines": 0, "leaves": 1, "hosts_per_leaf": 2, "rate": "10 Gb/s"}}
    if len(timeouts) == 2:
        timeouts["initial_rto"] = max(timeouts.values())
    point = Settings.model_validate({"topology": shape, "size": "4 kB", "recovery": timeouts}).settled
    for timers in (recovery(point), EMBEDDED.pace_of(point).recovery(give_up=1)):
        assert 0 < timers.min_rto <= timers.initial_rto <= timers.max_rto
        assert timeouts == {name: getattr(timers, name) for name in timeouts}


@pytest.mark.parametrize(
    ("text", "elements"),
    [("4 MB", 1_000_000), ("4 MiB", 1 << 20), ("1000 elements", 1000), ("1.5 kB", 375), ("16B", 4)],
)
def test_a_vector_has_bytes_or_elements(file: Path, text: str, elements: int) -> None:
    (point,) = settings(file, f'name = "try"\nsize = "{text}"\n' + NETWORK)
    assert point.elements == elements


def test_rates_sizes_and_times_take_units_or_the_bare_number(file: Path) -> None:
    links = '[links]\ndelay = "10 us"\nqueue_bytes = "64 KiB"\n'
    (point,) = settings(file, HEAD + NETWORK + 'rate = "2.5 Gb/s"\n' + links)
    assert point.topology.leaf_spine is not None
    assert (point.topology.leaf_spine.rate, point.links.queue_bytes) == (2_500_000_000, 65536)
    assert point.links.delay == pytest.approx(1e-5)
    (bare,) = settings(
        file, HEAD + NETWORK + "rate = 2500000000\n[links]\ndelay = 1e-5\nqueue_bytes = 65536\n"
    )
    assert bare == point


def test_lists_make_the_product_in_the_files_order(file: Path) -> None:
    points = settings(file, HEAD + "seed = [1, 2]\n" + NETWORK + "[links]\nloss = [0, 0.01, 0.1]\n")
    assert [(p.seed, p.links.loss) for p in points] == [(s, loss) for s in (1, 2) for loss in (0, 0.01, 0.1)]


def test_points_that_differ_only_in_what_has_no_effect_are_one(file: Path) -> None:
    both = 'algorithm = ["in-network", "ring"]\ntransport = ["selective-repeat", "go-back-n"]\n'
    points = settings(file, HEAD + both + NETWORK)
    assert [(p.algorithm, p.transport) for p in points] == [
        ("in-network", None),
        ("ring", "selective-repeat"),
        ("ring", "go-back-n"),
    ]


def test_changes_take_the_place_of_what_the_file_says(file: Path) -> None:
    text = HEAD + "workers = 4\n" + NETWORK
    points = settings(file, text, "workers=2,3", "links.loss=0.5", "algorithm=ring", "rate=1 Gb/s")
    assert [len(p.members) for p in points] == [2, 3]
    assert {(p.links.loss, p.algorithm) for p in points} == {(0.5, "ring")}


def test_changes_are_the_title_of_the_figure_because_the_files_title_describes_the_file(file: Path) -> None:
    file.write_text(f'{HEAD}{NETWORK}[plot]\nx = "loss"\ny = "median_seconds"\ntitle = "Links at 100 Gb/s"\n')

    def title(*changes: str) -> str | None:
        plot = load_scenario(file, changes).frame.plot
        assert plot is not None
        return plot.title

    assert title() == "Links at 100 Gb/s"
    assert title("rate=10 Gb/s", "loss=0,0.1") == "try: rate=10 Gb/s, loss=0,0.1"


def test_a_change_overrides_the_rows_that_the_figure_leaves_out(file: Path) -> None:
    plot = '[plot]\nx = "loss"\ny = "median_seconds"\nwhere = {algorithm = "ring", seed = 0}\n'
    file.write_text(f"{HEAD}{NETWORK}{plot}")
    changed = load_scenario(file, ["algorithm=in-network"]).frame.plot
    assert changed is not None
    assert changed.where == {"seed": ("0",)}


def test_a_topology_may_be_in_a_file_of_its_own_and_is_in_the_settings_then(file: Path) -> None:
    (file.parent / "network.toml").write_text("[leaf_spine]\nspines = 0\nleaves = 1\nhosts_per_leaf = 3\n")
    (point,) = settings(file, HEAD + 'topology = "network.toml"\n')
    assert len(point.members) == 3
    assert Settings.model_validate(point.model_dump(mode="json")) == point


def test_a_topology_may_be_spelled_out(file: Path) -> None:
    network = leaf_spine(0, 1, 2)
    (spelled_out,) = settings(file, HEAD + NETWORK)
    document = spelled_out.model_dump(mode="json") | {"topology": network.model_dump(mode="json")}
    assert Settings.model_validate(document).network == network


def test_oversubscription_sets_the_uplinks_rate(file: Path) -> None:
    text = HEAD + NETWORK + 'rate = "10 Gb/s"\noversubscription = 4\n'
    (point,) = settings(file, text)
    rates = {
        link.rate_bits_per_second for link in point.network.links if "spine1" in (link.a.node, link.b.node)
    }
    assert rates == {2 * 10**10 // 4}


def test_settings_come_back_from_json_with_the_same_key(file: Path) -> None:
    (point,) = settings(file, HEAD + NETWORK + "[links.burst]\nbegin = 0.1\nend = 0.5\n")
    again = Settings.model_validate_json(point.model_dump_json())
    assert again == point
    assert again.key == point.key


def test_every_key_is_a_column(file: Path) -> None:
    (point,) = settings(file, HEAD + NETWORK)
    assert set(KEYS) < set(setting_columns(point))
    assert setting_columns(point)["workers"] == 4


def test_rows_between_hosts_have_no_protocol_of_switches(file: Path) -> None:
    text = 'algorithm = ["in-network", "ring"]\nworkers = 2\n' + HEAD + NETWORK
    file.write_text(text)
    scenario = load_scenario(file)
    columns = [setting_columns(point) for point in scenario.points]
    assert [(row["protocol"], row["values"]) for row in columns] == [("fanin", 256), (None, None)]
    assert scenario.varied == ["algorithm", "transport"]
    (point,) = settings(file, text.replace('"in-network", ', "") + '[other_job]\nsize = "4 kB"\n')
    assert setting_columns(point)["protocol"] == "fanin"  # that of the other job


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "topology: missing; add it"),
        (NETWORK + "spnes = 1\n", "topology.leaf_spine.spnes: unknown key; did you mean 'spines'?"),
        (NETWORK + "[links]\nlost = 1\n", "links.lost: unknown key; did you mean 'loss'?"),
        (
            NETWORK + "[links]\nloss = 2\n",
            "links.loss: is 2; must be at most 1; for 2 percent, write '2%' or 0.02",
        ),
        (NETWORK + '[links]\ndelay = "1 min"\n', "links.delay: is '1 min'; write a number and its unit"),
        (NETWORK + 'rate = "1 Gbps"\n', "topology.leaf_spine.rate: is '1 Gbps'; write a number and its unit"),
        (NETWORK + "rate = 1\n", "topology.leaf_spine.rate: is 1, must be a whole number from 10000"),
        (NETWORK + "oversubscription = 2\n", "topology.leaf_spine.oversubscription: needs rate"),
        ("workers = 5\n" + NETWORK, "workers: is 5, but the topology has 4 hosts; enlarge it"),
        ('hosts = ["h1", "h9"]\n' + NETWORK, "hosts: no host is called h9"),
        ('hosts = ["h1", "h1"]\n' + NETWORK, "hosts: a host contributes once"),
        ('hosts = ["h1", "h2"]\nworkers = 2\n' + NETWORK, "hosts: replaces workers and placement"),
        ('algorithm = "rng"\n' + NETWORK, "algorithm: is 'rng', must be 'in-network', 'ring'"),
        (
            'algorithm = "tree"\n' + NETWORK,
            "or a file of yours, such as tree.py",
        ),
        ('placement = "pakced"\n' + NETWORK, "did you mean 'packed'?"),
        ('switch = "bmv2"\n' + NETWORK, "switch: 'bmv2' cannot run in virtual time; set world = 'live'"),
        ("seed = []\n" + NETWORK, "seed: is an empty list; give at least one value"),
        ('topology = "none.toml"\n', "none.toml cannot be read"),
        ("values = 100\n" + NETWORK, "values: is 100, must be 64, 128, 256 or 512"),
        (
            "[training]\n" + NETWORK,
            "size: give size, such as '4 MB', or one of the tables training, decoding, serving and arrivals",
        ),
        ("[plot]\nx = 'loss'\n" + NETWORK, "plot.y: missing; add it"),
        ("size = 1\n", "cannot be read as TOML"),
        ("[topology]\n", "topology: give one of leaf_spine, "),
    ],
)
def test_what_is_wrong_is_named_with_the_file_the_key_and_the_fix(file: Path, text: str, words: str) -> None:
    said = complaint(file, HEAD + text)
    assert said.startswith(f"{file}:")
    assert words in said


def test_a_key_of_the_file_below_a_table_is_named_with_what_to_do(file: Path) -> None:
    said = complaint(file, 'size = "4 kB"\n' + NETWORK.replace("spines", 'name = "try"\nspines'))
    assert (
        f"{file}:3: topology.leaf_spine.name: unknown key; the file's own 'name' belongs above the first table"
        in said.splitlines()
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("latency = 1\n", "latency: unknown key; did you mean 'links.delay'?"),
        (
            '[links]\nlatency = "1 us"\n',
            "links.latency: unknown key; did you mean 'delay'? There are delay, ",
        ),
        ("[links]\nzebra = 1\n", "links.zebra: unknown key; there are delay, "),
        (
            "[recovery]\ntimeout = 1\n",
            "recovery.timeout: unknown key; did you mean 'initial_rto' or 'min_rto'?",
        ),
        (
            "[recovery]\nwindow = 1\n",
            "recovery.window: unknown key; the file's own 'window' belongs above the first table",
        ),
        (
            "[topology.servers]\nhosts = 1\n",
            "topology.servers.hosts: unknown key; did you mean 'hosts_per_server'?",
        ),
        ("[recovery]\nloss = 1\n", "recovery.loss: unknown key; did you mean 'links.loss'"),
    ],
)
def test_a_key_is_suggested_that_means_what_the_person_wrote(file: Path, text: str, words: str) -> None:
    assert words in complaint(file, HEAD + text + NETWORK)


def test_all_mistakes_are_reported_at_once_with_their_lines(file: Path) -> None:
    text = """\
name = "Try it"
size = "4 kB"
latency = 1
worker = "none.py"
window = 0
workers = 40
topology = "none.toml"

[links]
loss = [0.1, 2]

[other_job]
size = "4"
"""
    said = complaint(file, text, "bandwidth=1", "repetitions=0").replace(str(file), "FILE").splitlines()
    assert [line.partition("; ")[0].split(", ")[0].split(": ")[:2] for line in said] == [
        ["--set bandwidth", "unknown key"],
        ["FILE", f"{file.parent / 'none.toml'} cannot be read"],
        ["FILE", "repetitions"],
        ["FILE:1", "name"],
        ["FILE:3", "latency"],
        ["FILE:4", "worker"],
        ["FILE:5", "window"],
        ["FILE:10", "links.loss"],
        ["FILE:13", "other_job.size"],
    ]


def test_a_problem_of_several_lines_stays_together(file: Path) -> None:
    (file.parent / "mine").mkdir()
    lines = complaint(file, 'window = 0\nprotocol = "mine"\n' + HEAD + NETWORK).splitlines()
    assert lines[0].startswith(f"{file}:1: window: ")
    assert lines[1].startswith(f"{file}:2: protocol: ")
    assert {line[:2] for line in lines[2:]} == {"  "}
    assert any("program.p4" in line for line in lines[2:])


def test_keys_that_do_not_fit_together_are_reported_next_to_wrong_keys(file: Path) -> None:
    text = HEAD + "workers = 5\nwindow = 0\n" + NETWORK + "[links]\nlos = 1\n"
    assert [line.split(": ")[1] for line in complaint(file, text).splitlines()] == [
        "workers",
        "window",
        "links.los",
    ]
    # Whether there are hosts for so many workers, a wrong topology cannot tell.
    text = text.replace("hosts_per_leaf = 2", "hosts_per_leaf = -2")
    assert "workers" not in complaint(file, text)


def test_every_mistake_is_told_once(file: Path) -> None:
    said = complaint(file, HEAD + "seed = [1, 2, 3]\nwindow = 0\n" + NETWORK + "[links]\nloss = [0.1, 3]\n")
    assert sorted(line.split(": ")[1] for line in said.splitlines()) == ["links.loss", "window"]


def test_a_vectors_size_needs_a_unit(file: Path) -> None:
    assert "size: is 1000; needs a unit" in complaint(file, 'name = "try"\nsize = 1000\n' + NETWORK)
    assert "multiple of 4 bytes" in complaint(file, 'name = "try"\nsize = "6 B"\n' + NETWORK)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "los=1",
            f"--set los: unknown key; did you mean 'loss'? For all {len(KEYS) + 2} keys, see docs/reference/",
        ),
        (
            "name=other",
            "--set name: only the file can set it; for another folder of results, use --results DIR",
        ),
        ("plot_x=workers", "--set plot_x: only the file can set it"),
        ("plot.y=seconds", "--set plot.y: only the file can set it"),
        ("description=other", "--set description: only the file can set it"),
        (
            "bits=16",
            "--set bits: unknown key; did you mean values (512 or 128 integers of 16 bits in a packet",
        ),
        ("jobs=1", "--set jobs: unknown key; did you mean 'other_job.jobs'?"),
        ("trafic_fn=1", "--set trafic_fn: unknown key; did you mean 'traffic_fan'"),
        (
            "nothing=1",
            f"--set nothing: unknown key; for all {len(KEYS) + 2} keys, see docs/reference/scenario-keys.md",
        ),
        ("latency=1 us", "--set latency: unknown key; did you mean 'delay'?"),
        ("gpus=8", "--set gpus: unknown key; did you mean 'workers'"),
        ("loss", "--set loss: write KEY=VALUE"),
        ("loss=0,2", "links.loss: is 2"),
        ("links=3", "--set links: unknown key"),
    ],
)
def test_changes_are_checked_like_the_file(file: Path, change: str, words: str) -> None:
    assert words in complaint(file, HEAD + NETWORK, change)


@settings_of_hypothesis(max_examples=30)
@given(st.integers(1, 4), st.integers(1, 5), st.data())
def test_placement_takes_distinct_hosts_and_spreads_or_packs_them(
    leaves: int, hosts: int, data: st.DataObject
) -> None:
    network = leaf_spine(1, leaves, hosts)
    workers = data.draw(st.integers(1, leaves * hosts))
    placed = {how: place(network, how, workers, seed=1) for how in ("packed", "spread", "random")}  # type: ignore[arg-type]
    for members in placed.values():
        assert len(set(members)) == workers
    racks = {how: len({network.host(name).leaf for name in members}) for how, members in placed.items()}
    assert racks["packed"] == -(-workers // hosts)
    assert racks["spread"] == min(workers, leaves)


def test_a_random_placement_is_that_of_its_seed() -> None:
    network = leaf_spine(1, 4, 8)
    draws = [place(network, "random", 16, seed) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


# -- algorithm = "auto" --------------------------------------------------------------------------------------------

# One switch has bits for 32 children, so in-network aggregation is impossible.
MANY = "[topology.leaf_spine]\nspines = 0\nleaves = 1\nhosts_per_leaf = 33\nrate = '10 Gb/s'\n"
FEW = NETWORK + "rate = '10 Gb/s'\n"


def chosen(file: Path, text: str, *changes: str) -> list[tuple[Settings, Choice]]:
    file.write_text(text)
    scenario = load_scenario(file, ("algorithm=auto", *changes), predicted_call_seconds)
    return [(point, scenario.choices[point.key]) for point in scenario.points]


@pytest.mark.parametrize("network", [FEW, MANY])
def test_auto_is_the_algorithm_with_the_smallest_prediction(file: Path, network: str) -> None:
    for point, choice in chosen(file, HEAD + network, "size=4 kB,200 kB,4 MB"):
        predicted = {}
        for name in choice.seconds:
            (named,) = settings(file, HEAD + network, f"algorithm={name}", f"size={point.size} B")
            predicted[name] = predicted_call_seconds(named)
        assert choice.seconds == predicted
        assert point.algorithm == min(predicted, key=lambda name: predicted[name] or inf)
        (named,) = settings(file, HEAD + network, f"algorithm={point.algorithm}", f"size={point.size} B")
        assert point == named  # so that a sweep does not run it twice


def test_auto_takes_few_steps_for_short_vectors_and_full_links_for_long_ones(file: Path) -> None:
    """A parameter server has 2 steps, and a ring of 33 has 64, which overlap where the vector is long."""
    (short, _), (long, _) = chosen(file, HEAD + MANY, "size=4 kB,4 MB")
    assert (short.algorithm, long.algorithm) == ("parameter-server", "ring")


def test_auto_leaves_out_what_the_other_settings_do_not_allow(file: Path) -> None:
    ((_, choice),) = chosen(file, HEAD + MANY)
    assert list(choice.problems) == ["in-network"]
    assert "leaf1 would add up 33 children" in choice.problems["in-network"]
    assert not {*choice.seconds} & {*choice.problems}
    ((point, choice),) = chosen(file, HEAD + FEW, "collective=broadcast")
    assert (point.algorithm, [*choice.seconds]) == ("in-network", ["in-network", "ring"])
    ((point, choice),) = chosen(file, HEAD + FEW, "collective=all-to-all")
    assert (point.algorithm, [*choice.seconds]) == ("ring", ["ring"])


def test_auto_has_columns_for_all_algorithms(file: Path) -> None:
    ((point, choice),) = chosen(file, HEAD + MANY)
    columns = choice.columns
    by_name = dict(zip(columns["candidates"], columns["candidate_seconds"], strict=True))
    assert {*by_name} == {*algorithm_names()}
    assert min((time, name) for name, time in by_name.items() if time is not None)[1] == point.algorithm
    impossible = [problem is not None for problem in columns["candidate_problems"]]
    assert impossible == [time is None for time in columns["candidate_seconds"]]


def test_auto_and_the_same_algorithm_by_name_are_one_point(file: Path) -> None:
    file.write_text(HEAD + FEW)
    changes = ("algorithm=ring,auto,in-network",)
    scenario = load_scenario(file, changes, predicted_call_seconds)
    assert [point.algorithm for point in scenario.points] == ["ring", "in-network"]
    assert [*scenario.choices] == [scenario.points[1].key]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NETWORK, "'auto' needs the rate of the hosts' links; set the topology's rate, or name an algorithm"),
        ('world = "live"\n' + FEW, "'auto' is virtual only"),
        (FEW + "[parallelism]\nmodel = 2\n", "'auto' cannot be combined with parallelism"),
        (FEW + "[links]\nlos = 0.1\n", "links.los: unknown key; did you mean 'loss'?"),
        (
            "lateness = '1 us'\n" + FEW + "[step]\nforward = '1 us'\nbackward = '1 us'\n",
            "lateness: cannot be comb",
        ),
    ],
)
def test_auto_is_refused_where_nothing_can_be_chosen(file: Path, text: str, words: str) -> None:
    file.write_text(HEAD + text)
    with pytest.raises(ScenarioError) as error:
        load_scenario(file, ("algorithm=auto",), predicted_call_seconds)
    assert words in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_auto_needs_somebody_who_predicts(file: Path) -> None:
    assert "algorithm: 'auto' cannot be used here" in complaint(file, HEAD + FEW, "algorithm=auto")


@pytest.mark.parametrize("given", ["the scenario", "its topology"])
def test_a_file_without_an_end_is_refused(given: str, tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text('name = "x"\ntopology = "/dev/zero"\n')
    path = Path("/dev/zero") if given == "the scenario" else tmp_path / "scenario.toml"
    with pytest.raises(ScenarioError, match="/dev/zero cannot be read: File too large"):
        load_scenario(path)
