#!/bin/sh
# What test-vm.sh has done in the virtual machine, as root, in the folder of the tree; the last line states how it ended.
set -u
cd "$(dirname "$0")/.." || exit
export HOME=/root LC_ALL=C.UTF-8 TERM=dumb COLUMNS=110
fanin=/usr/local/bin/fanin
limit=1200 # seconds for a stage
patience=1 # of the tests, and of what they start
tests=.
set --
machine=$(systemd-detect-virt)
if [ "$machine" != kvm ]; then # user-mode Linux has one processor and slow system calls; emulated, all takes 10 to 20 times
    limit=5400 patience=10
    set -- --workers 4 --leaves 2 --spines 1
fi
if [ "$machine" = qemu ]; then
    tests="tests/topologies tests/controller tests/experiments/live/test_run.py tests/p4switch/engine"
fi

results=
failed=0
stage() { # stage NAME COMMAND...
    name=$1
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    begin=$(date +%s)
    timeout --signal=INT --kill-after=60 "$limit" "$@" </dev/null # INT: pytest still prints what has failed
    status=$?
    [ "$status" -eq 0 ] || failed=1
    results="$results$(printf '%-22s status %-3s %5s s' "$name" "$status" $(($(date +%s) - begin)))
"
}
as_user() { # the shell's word for it, so that it can be a stage's command
    name=$1
    shift
    stage "$name" sudo -H -u fanin "$@"
}

# Of a machine that is provisioned: packages, settings, and what was installed into the virtual environment.
state() {
    dpkg-query -W
    cat /etc/sysctl.d/* /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null
    find /opt/fanin /usr/local -name __pycache__ -prune -o -printf '%p %T@\n'
}

uname -a
as_user "provision" sudo ./provision.sh
as_user "doctor" "$fanin" doctor
stage "in-network, root" "$fanin" run scenarios/small-live.toml --set algorithm=in-network --results /tmp/small
stage "demo, root" "$fanin" demo "$@" --results /tmp/demo-root
as_user "demo, ordinary user" "$fanin" demo "$@" --results /tmp/demo-user
state >/tmp/before
as_user "provision again" sudo ./provision.sh
state >/tmp/after
stage "nothing changed" diff /tmp/before /tmp/after
limit=$((2 * limit))
# shellcheck disable=SC2086  # a list of folders
stage "live tests, root" env FANIN_PATIENCE=$patience /opt/fanin/venv/bin/pytest -v -n 1 --dist loadgroup -m live \
    -o faulthandler_timeout=6000 -p no:cacheprovider $tests

printf '\n%s' "$results"
echo "test-vm: ended with status $failed"
