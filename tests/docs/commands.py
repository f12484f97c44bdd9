"""The commands that the documents show, and which of them cannot run in a test, or run in another one."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

from fanin.cli import VERBS, load
from tests.sizes import sized

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    *(
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "fanin/templates/project/README.md")
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "labs").rglob("*.md")),
]
HELP = "fanin COMMAND --help"
BY_HAND = "docs/how-to/by-hand.md"  # test_by_hand.py types its commands in one shell
TEXTS = [*(str(path.relative_to(ROOT)) for path in DOCUMENTS), HELP]

PROGRAMS = (
    r"fanin(?! \w+:)|make|python3?|git|gcc|sudo|vagrant|podman"
    r"|export|umask|unshare|mkdir|cd|echo|pip|\.|\./\S+|\S*/bin/\S+"
)
COMMAND = re.compile(rf"    (?:\$ )?((?:{PROGRAMS})(?: .*?)?)(?:\s+#.*|\s*&)?")
FENCE = re.compile(r"^```(\w+)\n.*?^```$", re.M | re.S)

UP = "fanin up --workers 2 --leaves 1 --spines 0"
NEEDS = re.compile(
    r"fanin (allreduce|counters|exec|jobs|launch|link|packet|ps|tables|top|trace --on|up|why)\b"
)

_MACHINES = "boots a virtual machine or an image of one, which takes from minutes to hours"
_VAGRANT = "needs VirtualBox or libvirt; tests/provisioning/test_vagrantfile.py has vagrant check the file"
_SETS_UP = "installs packages, or is what runs the tests"
_BMV2 = "needs BMv2 and p4c; tests/experiments/live/test_bmv2.py runs a job on them where they are installed"
_CLASS = "writes to the machine outside of the clone, or needs an address to clone from"

_TWO_MINUTES = (
    "two minutes; tests/assurance/validation/test_simulators.py has its cases, make test-long all of them"
)
_A_MINUTE = "a minute; tests/assurance/validation/papers/test_figures.py has its figures, in make test-long"
_BESIDE = "four minutes, and needs PyTorch; tests/assurance/bench/test_allreduce.py measures small networks"
_HTSIM = "needs htsim; tests/assurance/bench/test_htsim.py runs it where FANIN_HTSIM names htsim_eqds"
_DASK = "needs a Dask cluster; tests/experiments/test_dask_scheduler.py has one of two workers"

_INDEX = (
    "installs packages from the index, in make test-long; tests/bmv2_commands/test_course.py has the parts"
)

PAPERS = [
    *(f"fanin run paper:{name}" for name in ("switchml", "klenk", "atp", "go-back-n", "hedera", "dctcp")),
    *("fanin run paper:megatron", "fanin run paper:llama-3"),
    *("fanin run paper:canary", "fanin run paper:canary-fat-tree"),
    *("fanin run paper:irn --results irn", "fanin run paper:irn-roce --results roce"),
    "fanin compare irn roce --across queue_bytes,xoff_bytes,xon_bytes,"
    "initial_rto,min_rto,traffic_window,traffic_transport",
]
_PAPER = "up to a minute and a half; tests/experiments/test_papers.py runs points of each"

# Why a command does not run in the tests.
EXEMPT = {
    "cd ~": "the tests have a folder of their own",
    **sized({"fanin course course": _INDEX}, {}),
    **dict.fromkeys(
        [
            "fanin course ~/p4-course",
            "export PATH=~/p4-course/bin:$PATH",
            "git clone https://github.com/p4lang/tutorials",
            "cd tutorials/exercises/basic",
            "make run",
            "unshare --user --map-root-user --net --mount --pid --fork --mount-proc make run",
            "python -m fanin.assurance.courses.tutorials ~/tutorials ~/p4-course",
            "git clone https://github.com/nsg-ethz/p4-utils",
            "git clone https://github.com/nsg-ethz/p4-learning",
            "~/p4-course/bin/pip install --no-deps ./p4-utils",
            "cd p4-learning/exercises/03-L2_Flooding/thrift/solution",
            "sudo python3 network-all-ports.py",
            "sudo apt-get install frr",
            "sudo ln -s /usr/lib/frr/*d /usr/lib/frr/zebra /usr/local/sbin/",
            "sudo usermod -aG frrvty root",
            "python -m fanin.assurance.courses.p4_learning ~/p4-learning ~/p4-course",
            "python -m fanin.assurance.courses.programs ~/checkouts/* -D BMV2 --p4c",
            "python -m fanin.assurance.courses.imports ~/p4-course ~/tutorials ~/p4-guide ~/p4-learning ~/p4-utils",
            "python -m tests.p4switch.p4runtime.recorded -I ~/sonic-pins "
            "~/sonic-pins/p4_symbolic/testdata/ipv4-routing/{basic.p4,entries.pb.txt}",
        ],
        "needs the package index and a checkout of the course; tests/bmv2_commands has the parts",
    ),
    **dict.fromkeys(
        ["podman build -t fanin .", "podman run --rm -it --privileged fanin fanin demo"],
        "needs podman and a registry of images",
    ),
    "fanin shims ~/p4-commands": "writes to the home folder; tests/bmv2_commands/test_install.py writes elsewhere",
    **dict.fromkeys(
        [
            "make demo",
            "make docs",
            "make help",
            "make lint",
            "make setup",
            "make test",
            "make test-fast",
            "make test-long",
            "make test-torch",
            "make test-bmv2",
        ],
        _SETS_UP,
    ),
    "fanin sweep scenario:small-virtual --set seed=1,2,3 --scheduler tcp://10.0.0.1:8786": _DASK,
    'fanin bench allreduce --workers 4 --sizes "64 KiB,10 MB" --gloo-python PYTHON '
    "--load nothing,loop,bound-loop,cache-walk": _BESIDE,
    "fanin bench virtual --most 8 --htsim csg-htsim/sim/datacenter/htsim_eqds": _HTSIM,
    "fanin validate --tier papers": _A_MINUTE,
    "fanin validate --tier theory": _A_MINUTE,
    **dict.fromkeys(PAPERS, _PAPER),
    "fanin validate --tier simulators": _TWO_MINUTES,
    "fanin soak --live --seeds 200": "an hour; tests/assurance/soak/test_live.py runs three seeds, or all of them",
    ". .venv/bin/activate": "makes sense in a terminal alone",
    **dict.fromkeys(
        [
            "make test-vm",
            "make test-vm KERNEL=5.10",
            "make test-vm KERNEL=6.12",
            "make test-vm KERNEL=6.12 DISTRIBUTION=trixie",
            "make test-vagrant",
            "sudo make test-arm64",
        ],
        _MACHINES,
    ),
    **dict.fromkeys(["vagrant up", "vagrant ssh -c 'fanin demo'"], _VAGRANT),
    **dict.fromkeys(
        [
            "export FANIN_BMV2=$HOME/behavioral-model/targets/simple_switch_grpc/simple_switch_grpc",
            'export FANIN_P4C="$HOME/p4c/build/p4c-bm2-ss -I $HOME/p4c/p4include"',
        ],
        _BMV2,
    ),
    **dict.fromkeys(
        [
            "umask 022",
            "git clone https://… fanin && cd fanin",
            "sudo ./provision.sh",
            "make docs VENV=/opt/fanin/venv",
            "/opt/fanin/venv/bin/pip install --no-deps .",
            "echo 'PATH=/opt/fanin/venv/bin:$PATH' | sudo tee /etc/profile.d/fanin.sh",
            "mkdir lab && cd lab",
        ],
        _CLASS,
    ),
    ".venv/bin/pip install -e '.[torch]'": _SETS_UP,
    "python -m fanin.p4switch -i 1@veth0 -i 2@veth2 --link 2:rate=100M,delay=1ms,queue_bytes=64k "
    "--link 1:ingress:loss=1% …": "needs two interfaces of these names, and … stands for the program; "
    "tests/p4switch/test_cli.py reads such options",
    """python -m fanin.p4switch.management HOST:PORT SetHashKey '{"calculation": "calc", "key": "6d5a56da…"}'""": (
        "the key is cut short; tests/p4switch/management has the command and the call"
    ),
    "gcc -std=gnu11 -O3 -march=native -fno-inline -fPIC -S -I p4switch/runtime fanin.c": (
        "what it writes depends on the processor, and each of our compiled programs is made like this"
    ),
}

_NEW = "tests/fanin/verbs/test_new.py::test_the_commands_of_its_readme_run"
_GUIDE = "tests/fanin/test_guide.py::test_a_command_runs"
_GUIDE_LIVE = "tests/fanin/test_guide.py::test_up_has_the_marks_and_another_client_takes_a_switch_over"
_TWICE = "tests/fanin/test_guide.py::test_the_worker_that_sends_twice_sends_more_and_waits_for_less"
_PATCH = "tests/test_tutorial.py::test_the_counter_is_missing_before_the_change_and_counts_after_it"
_CNN = (
    "tests/fanin/test_torch.py::"
    "test_a_network_learns_the_same_with_fanin_and_with_gloo_and_either_way_of_its_hook"
)
_LINKS = "tests/fanin/verbs/running/test_link.py::test_links_are_changed_both_ways_and_read"
_JOBS = "tests/fanin/verbs/running/test_launch.py::test_two_programs_at_once_share_hosts_and_switches"

_LAB = "tests/fanin/verbs/test_lab.py::test_a_student_starts_a_lab_and_solves_it"
_LAB_MARKED = "tests/fanin/verbs/test_lab.py::test_a_new_lab_is_proved_started_and_marked"

# The test that runs a command as well, or the same with other files.
_COLLECTIVES = "tests/assurance/bench/test_collectives.py::test_virtual_collectives_are_printed_and_checked"
_PROTOCOL = "tests/fanin/verbs/test_new.py::test_a_protocol_runs_as_its_readme_says"
_NO_PROTOCOL = "tests/experiments/test_protocol.py::test_all_missing_parts_are_named_at_once"
ELSEWHERE = {
    **dict.fromkeys(
        [
            "fanin new --protocol vote",
            "cd vote",
            "fanin soak --protocol . --seeds 4",
            "fanin run scenario.toml --results results/mine",
            "fanin run scenario.toml --results results/fanin --set protocol=fanin",
            "fanin compare results/fanin results/mine --across protocol",
        ],
        _PROTOCOL,
    ),
    "fanin run scenario.toml --set protocol=mine": _NO_PROTOCOL,
    "fanin diagnose --live": (
        "tests/fanin/verbs/running/test_why_slow.py::"
        "test_a_diagnosis_of_a_job_that_runs_has_the_cause_the_calls_and_what_it_cannot_see"
    ),
    "fanin run examples/own-schedule/scenario.toml": (
        "tests/experiments/test_schedule_file.py::test_the_example_sums_rightly_on_a_live_network"
    ),
    "fanin bench collectives --scenario scenario:small-virtual": _COLLECTIVES,
    'fanin bench collectives --scenario scenario:small-virtual --sizes "1 MiB"': _COLLECTIVES,
    "fanin bench collectives --scenario racks.toml --operations reduce-scatter,all-gather,broadcast --sizes "
    '"4 KiB,64 KiB,1 MiB" --repetitions 2': _COLLECTIVES,
    **dict.fromkeys(
        [
            "fanin lab start forwarding",
            "cd 01-forwarding",
            "fanin lab check",
            "fanin lab hint",
            "fanin lab hint my-router",
            "fanin lab solution",
            "fanin lab solution my-router",
            "fanin lab list --json",
        ],
        _LAB,
    ),
    **dict.fromkeys(
        ["fanin lab check --live", "fanin lab check my-router --live"],
        "tests/classroom/test_live.py::test_a_student_checks_live",
    ),
    "fanin lab check --switch bmv2": (
        "tests/classroom/test_live.py::test_every_solution_passes_on_bmv2_as_far_as_the_page_says"
    ),
    "fanin lint program.p4 --stages 12": (
        "tests/fanin/verbs/programs/test_lint.py::test_a_pipeline_with_fewer_stages_has_no_room"
    ),
    "fanin lab start 1 my-router": (
        "tests/fanin/verbs/test_lab.py::"
        "test_a_lab_can_be_started_by_number_in_a_folder_with_another_name_but_not_twice"
    ),
    **dict.fromkeys(
        ["fanin lab watch", "fanin lab watch my-router"],
        "tests/classroom/test_watch.py::test_each_save_is_yielded_once_also_one_that_came_in_between",
    ),
    **dict.fromkeys(
        [
            "fanin lab new my-lab",
            "fanin lab verify my-lab",
            "fanin lab grade submissions --lab forwarding",
            "fanin lab grade submissions --lab 1 --seed 7 --gradescope results",
            "fanin lab grade submissions --lab forwarding --gradescope results",
        ],
        _LAB_MARKED,
    ),
    **dict.fromkeys(
        ["fanin lab verify forwarding", "fanin lab verify labs/01-forwarding"],
        "tests/classroom/test_labs.py::test_a_lab_is_proved",
    ),
    **dict.fromkeys(
        [
            "fanin lint program.p4",
            "fanin lint program.p4 --stages 12",
            "fanin lint p4src/fanin.p4",
            "fanin lint p4src/fanin.p4 --json",
        ],
        "tests/fanin/verbs/programs/test_lint.py::test_findings_end_with_status_1_and_lead_to_their_page",
    ),
    **dict.fromkeys(
        [
            "fanin play",
            "fanin play examples/own-program/firewall.p4",
            "fanin play examples/own-program/firewall.p4 --open",
            "fanin play --address 0.0.0.0 --sessions 30",
        ],
        "tests/fanin/verbs/programs/test_play.py::test_the_users_program_comes_first_and_nothing_is_left_after_ctrl_c",
    ),
    **dict.fromkeys(
        ["fanin format program.p4", "fanin format --check p4src", "fanin format - < program.p4"],
        "tests/fanin/verbs/programs/test_format.py::test_check_and_diff_write_nothing",
    ),
    "fanin new mine": _GUIDE,
    "cd mine": _GUIDE,
    "fanin run scenario.toml": _NEW,
    "fanin stf program.p4 program.stf": _GUIDE,
    "fanin compile program.p4": _NEW,
    "fanin trace program.p4 --packet 02000a0100fe02000a01000108004500002100000000401166c80a0100010a010002"
    "03e807d0000d000066616e696e": _GUIDE,
    "fanin up --topology topology.toml --program program.p4 --controller control.py": _GUIDE_LIVE,
    "fanin tables leaf1": _GUIDE_LIVE,
    "fanin allreduce": _GUIDE_LIVE,
    "fanin run scenario.toml --results results/twice": _TWICE,
    "fanin run scenario.toml --worker other.py --results results/ours": _TWICE,
    "fanin run scenario.toml --set world=live": "tests/fanin/test_guide.py::test_the_live_scenario_runs",
    "fanin run scenario.toml --set world=live --set loss=0 --set seed=1": (
        "tests/fanin/test_guide.py::test_the_live_scenario_runs"
    ),
    "fanin soak --program program.p4 --controller control.py --seeds 4": _GUIDE,
    "fanin trace --on leaf1 --count 3": "tests/fanin/verbs/programs/test_trace.py::test_packets_of_a_running_switch",
    'fanin cost --parameters 175G --dtype bf16 --compute "2 s" --nics 1': (
        "tests/fanin/verbs/test_cost.py::test_the_documentation_shows_what_is_printed"
    ),
    "fanin lsp": "tests/language_server/test_server.py::test_errors_show_while_typing_and_go_away",
    "fanin import rank0.json rank1.json -o scenario.toml": (
        "tests/fanin/verbs/test_import_trace.py::test_a_trace_is_shown_and_becomes_a_scenario"
    ),
    **dict.fromkeys(
        [
            "fanin import all_reduce_perf.txt -o links.toml",
            "fanin import all_reduce_perf.txt -o scenario.toml",
        ],
        "tests/fanin/verbs/test_import_trace.py::"
        "test_an_output_of_nccl_tests_becomes_links_of_its_latency_and_rate",
    ),
    "fanin import rank0.json": (
        "tests/fanin/verbs/test_import_trace.py::test_what_is_wrong_is_said_in_a_line"
    ),
    "fanin compile p4src/fanin.p4 --c fanin.c": (
        "tests/test_wheel.py::test_it_compiles_runs_a_lesson_and_tests_a_switch"
    ),
    **{
        f"fanin lesson run {path.stem}": "tests/fanin/verbs/test_lesson.py::test_its_point_is_seen"
        for path in (ROOT / "docs" / "tutorials" / "lessons").glob("*.md")
    },
    "fanin run scenario:sixteen-bits-training": (
        "tests/experiments/virtual/test_training.py::test_integers_of_16_bits_train_as_well"
    ),
    "fanin run scenario:compressed-training": (
        "tests/experiments/live/test_compressed.py::test_whatever_is_sent_of_gradients_it_learns"
    ),
    "fanin run lesson:loss": "tests/test_wheel.py::test_it_compiles_runs_a_lesson_and_tests_a_switch",
    "fanin diff PROGRAM.p4": (
        "tests/fanin/verbs/programs/test_diff.py::test_the_four_pairs_agree_on_the_aggregation_program"
    ),
    **dict.fromkeys(
        ["fanin demo", 'fanin demo --workers 4 --rate "50 Mb/s" --loss 5%'],
        "tests/experiments/live/test_run.py::test_the_results_are_written",
    ),
    **dict.fromkeys(
        ["fanin clean", "fanin clean --cache"],
        "tests/fanin/verbs/test_clean.py::test_the_cache_is_told_of_and_emptied_when_asked",
    ),
    "fanin jobs --revoke second": (
        "tests/fanin/verbs/running/test_launch.py::"
        "test_jobs_go_on_by_ring_where_they_are_refused_a_lease_or_lose_it"
    ),
    **dict.fromkeys(
        ["fanin doctor", "fanin doctor --json"],
        "tests/fanin/verbs/test_doctor.py::test_a_machine_that_runs_the_live_tests_has_all_that_is_needed",
    ),
    **dict.fromkeys(
        ["fanin shell leaf1", "fanin shell leaf1 --read-only"],
        "tests/p4switch/p4runtime/test_shell.py::test_a_session",
    ),
    "fanin diff PROGRAM.p4 --random 5000 --seed 7": (
        "tests/fanin/verbs/programs/test_diff.py::test_the_four_pairs_agree_on_the_aggregation_program"
    ),
    "fanin trace PROGRAM.p4 --read CAPTURE.pcap": (
        "tests/fanin/verbs/programs/test_trace.py::test_a_capture_a_filter_and_a_count"
    ),
    **dict.fromkeys(
        ["fanin bench switch", "fanin bench switch --results results/today"],
        "tests/assurance/bench/test_switch.py::test_every_case_runs_and_is_written_down",
    ),
    **dict.fromkeys(
        ["fanin bench inserts", "fanin bench inserts --count 10000"],
        "tests/assurance/bench/test_inserts.py::test_entries_of_every_kind_are_inserted_and_read",
    ),
    **dict.fromkeys(
        ["fanin bench start", "fanin bench start --repeats 3"],
        "tests/assurance/bench/test_start.py::test_starts_are_measured_next_to_a_bare_process_and_goals",
    ),
    **dict.fromkeys(
        ["fanin bench allreduce", 'fanin bench allreduce --workers 4 --sizes "64 KiB,10 MB"'],
        "tests/assurance/bench/test_allreduce.py::test_every_algorithm_sums_rightly_on_every_network",
    ),
    "fanin bench virtual --most 64 --cores 2": (
        "tests/simulator/test_fabric.py::test_the_benchmark_measures_an_exact_all_reduce"
    ),
    **dict.fromkeys(
        ["fanin bench calls", 'fanin bench calls --workers 2 --sizes "64 KiB"'],
        "tests/assurance/bench/test_calls.py::test_every_sum_of_every_way_is_checked",
    ),
    "fanin fuzz --minutes 1": (
        "tests/assurance/fuzz/test_fuzz.py::test_random_programs_and_hostile_packets_find_nothing"
    ),
    "fanin fuzz --repeat CASE.json": (
        "tests/assurance/fuzz/test_fuzz.py::test_a_case_that_fails_is_written_with_the_command_that_repeats_it"
    ),
    "fanin demo --switch bmv2": "tests/experiments/live/test_bmv2.py::test_the_demo_on_bmv2",
    "fanin demo --switch bmv2 --compiler p4c": (
        "tests/experiments/live/test_bmv2.py::test_the_demo_on_bmv2_with_p4c"
    ),
    "fanin stf p4src/fanin.p4 docs/tutorials/tutorial/ttl.stf": _PATCH,
    "fanin run docs/tutorials/tutorial/loss.toml": (
        "tests/test_tutorial.py::test_the_scenario_says_what_the_tutorial_says_of_it"
    ),
    "fanin link leaf1 h1 --set loss=1%": _LINKS,
    "fanin link leaf1 h2 --set loss=1%": _LINKS,
    "fanin launch train.py": (
        "tests/fanin/verbs/running/test_launch.py::test_the_examples_of_the_manual_print_what_it_says"
    ),
    f'fanin launch --up "{UP.removeprefix("fanin up ")}" train.py': (
        "tests/fanin/verbs/running/test_launch.py::test_an_ordinary_user_launches_as_well"
    ),
    "fanin launch --job first train.py": _JOBS,
    "fanin launch --job second --slots 64 train.py": _JOBS,
    "fanin top --once": "tests/fanin/verbs/running/test_inside.py::test_top_tells_of_jobs_switches_and_links",
    "fanin up --dashboard": (
        "tests/fanin/verbs/running/test_inside.py::test_the_dashboard_shows_a_job_and_the_load_of_its_links"
    ),
    "fanin up --metrics 9464": (
        "tests/fanin/verbs/running/test_inside.py::test_metrics_are_scraped_from_outside_of_the_namespaces"
    ),
    "fanin up --jobs-listen 0.0.0.0:9443 --jobs-tls certificates": (
        "tests/fanin/verbs/running/test_inside.py::test_the_job_service_is_reached_from_outside_with_a_certificate"
    ),
    f"{UP} --protocol omnireduce": (
        "tests/fanin/verbs/running/test_up_protocol.py::test_sums_of_a_job_are_right"
    ),
    "fanin up --standby": (
        "tests/fanin/verbs/running/test_faults.py::"
        "test_the_standby_takes_over_while_jobs_run_and_in_the_middle_of_a_grant"
    ),
    "fanin up --log up.jsonl": "tests/fanin/verbs/running/test_inside.py::test_what_happens_is_logged",
    **dict.fromkeys(
        [
            "fanin exec leaf1 -- ip link set leaf1-eth2 down",
            "fanin exec leaf1 -- ip link set leaf1-eth2 up",
        ],
        "tests/fanin/verbs/running/test_faults.py::"
        "test_a_link_that_fails_hands_its_job_to_the_ring_and_the_next_one_gets_another_tree",
    ),
    **dict.fromkeys(
        [
            "fanin launch docs/how-to/torch/cnn.py --backend gloo  --curve gloo.csv",
            "fanin launch docs/how-to/torch/cnn.py --backend fanin --curve fanin.csv",
            "fanin launch docs/how-to/torch/cnn.py --backend gloo  --curve gloo-lossy.csv",
            "fanin launch docs/how-to/torch/cnn.py --backend fanin --curve fanin-lossy.csv",
            "python docs/how-to/torch/curves.py gloo.csv fanin.csv gloo-lossy.csv fanin-lossy.csv",
        ],
        _CNN,
    ),
    "fanin launch -- sh -c 'torchrun --nproc_per_node 2 --nnodes $WORLD_SIZE --node_rank $RANK "
    "--master_addr $MASTER_ADDR --master_port $MASTER_PORT train.py'": (
        "tests/fanin/test_torch.py::"
        "test_two_ranks_on_each_host_have_the_same_weights_whoever_starts_them_and_whatever_is_lost"
    ),
    "fanin launch docs/how-to/torch/overlap.py": (
        "tests/fanin/test_torch.py::test_buckets_go_out_and_come_back_within_the_backward_pass"
    ),
    "fanin validate --tier closed-form": (
        "tests/fanin/verbs/test_validate_closed_form.py::"
        "test_the_exit_status_says_whether_sizes_held_out_are_predicted"
    ),
    "fanin validate": (
        "tests/fanin/verbs/test_validate.py::"
        "test_two_workers_do_the_same_in_both_worlds_and_times_that_differ_are_told"
    ),
}

# A lesson with something changed: its points are made, and their times expected; make test-long runs them, and
# tests/fanin/verbs/test_lesson.py the lesson.
_CHANGED_LESSON = re.compile(r"fanin lesson run --small (\S+)(?: --small)? (--set .*)")

# What is run is smaller than what is shown, in the place of the former the latter.
SMALLER = {
    "scenario:small-virtual": "scenario:small-virtual --set 'size=40 kB' --set seed=1",
    "--set loss=0,0.001,0.01 --set workers=2,4,8": "--set loss=0,0.001 --set workers=2,4",
    "fanin lesson run": "fanin lesson run --small",
    'size=16 MiB" --set workers=8,64': 'size=64 KiB" --set workers=2,4',
    "results/small-live results/small-live --across algorithm,transport --where-a algorithm=in-network "
    "--where-b algorithm=ring": "results/small-virtual results/small-virtual --across loss --where-a loss=0 "
    "--where-b loss=0",
    "results/before results/small-live": "results/small-virtual results/small-virtual",
    "results/before results/after --fail-if-slower 10%": "results/small-virtual results/small-virtual",
    "results/before results/after": "results/small-virtual results/small-virtual",
    "--seeds 1000": "--seeds 1",
    "--leases 2000": "--leases 300",
    "--racks 2,1 --chunks 3": "--racks 2 --chunks 1",
}


def examples(verb: str) -> list[str]:
    """The examples in the help of a verb and of the commands below it, each once."""
    return list(dict.fromkeys(example for _, each in helps(verb) for example in each))


def helps(verb: str) -> Iterator[tuple[str, list[str]]]:
    """A verb and the commands below it, each with the examples in its help."""
    command = load(verb)
    for name, each in (("", command), *getattr(command, "commands", {}).items()):
        # The lines have markup, and \\[ is a bracket in it.
        lines = re.findall(r"^\[cyan\] +(.*)\[/\]$", each.help.partition("\n\nExamples:\n")[2], re.M)
        yield f"{verb} {name}".rstrip(), lines


def text_of(document: str) -> str:
    """The text of a document: a file, or the examples in the help of all verbs."""
    if document == HELP:
        return "\n\n".join(indent("\n".join(examples(verb)), "    ") for verb in VERBS)
    return (ROOT / document).read_text()


@functools.cache
def commands(document: str) -> list[tuple[str, list[str]]]:
    """The commands of a document, in order, each with the lines that it is shown to print."""
    found: list[tuple[str, list[str]]] = []
    printed: list[str] = []
    for line in FENCE.sub("", text_of(document)).splitlines():
        if command := COMMAND.fullmatch(line):
            printed = []
            found.append((command[1], printed))
        elif line.startswith("    "):
            printed.append(line[4:])
        elif line:
            printed = []
    return found


def smaller(command: str) -> str:
    """Return the command that is run instead."""
    for shown, run in SMALLER.items():
        command = command.replace(shown, run)
    return sized(_CHANGED_LESSON.sub(r"fanin sweep lesson:\1 \2 --dry-run", command), command)


def to_run(document: str, *, live: bool) -> list[tuple[str, list[str]]]:
    """Return the commands that no other test runs, on a network that is up or without one, and their output."""
    return [
        (command, printed)
        for command, printed in commands(document)
        if document != BY_HAND
        and command not in EXEMPT
        and command not in ELSEWHERE
        and bool(NEEDS.match(command)) == live
    ]


def documents_to_run(*, live: bool) -> list[str]:
    """Names of the documents that have such commands."""
    return [document for document in TEXTS if to_run(document, live=live)]
