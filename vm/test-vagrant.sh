#!/bin/sh
# What a user of the Vagrantfile does, with a box made here (box.sh) and libvirt: vagrant up, doctor, the demo, vagrant
# provision twice (the second time nothing changes), vagrant destroy. In a copy of the tree, so that none that is up is
# touched. Without KVM the machine is emulated, and takes an hour for it.
# usage: test-vagrant.sh DISTRIBUTION KERNEL PIP     PIP: see image.sh
set -eu
distribution=$1 kernel=$2 pip=$3
here=$(cd "$(dirname "$0")" && pwd)
tree=$(dirname "$here")
for command in vagrant virsh; do
    command -v "$command" >/dev/null || {
        echo "test-vagrant: $command is not installed: apt-get install vagrant vagrant-libvirt libvirt-daemon-system" >&2
        exit 1
    }
done
virsh -c qemu:///system version >/dev/null || {
    echo "test-vagrant: libvirt's daemon does not answer; as root: systemctl start libvirtd" >&2
    exit 1
}
box=$("$here/box.sh" "$distribution" "$kernel" "$pip")

export FANIN_BOX="fanin/$distribution-$kernel" VAGRANT_DEFAULT_PROVIDER=libvirt
demo="fanin demo"
if [ -z "${FANIN_DRIVER:-}" ] && ! "$here/kvm.sh"; then
    export FANIN_DRIVER=qemu FANIN_BOOT_TIMEOUT=3600
    demo="fanin demo --workers 4 --leaves 2 --spines 1"
fi

work=$(mktemp -d)
mkdir "$work/fanin"
cd "$work/fanin"
(cd "$tree" && git ls-files -z --cached --others --exclude-standard |
    tar --null -T - --ignore-failed-read -cf "$work/tree.tar")
tar -xf "$work/tree.tar"
# shellcheck disable=SC2317  # a trap calls it
destroy() {
    vagrant destroy --force || true
    cd /
    rm -rf "$work"
}
trap destroy EXIT
trap 'exit 130' INT TERM

results=
failed=0
stage() { # stage NAME COMMAND...
    name=$1
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    begin=$(date +%s)
    status=0
    "$@" </dev/null || status=$?
    [ "$status" -eq 0 ] || failed=1
    results="$results$(printf '%-22s status %-3s %5s s' "$name" "$status" $(($(date +%s) - begin)))
"
}

vagrant box add --force --name "$FANIN_BOX" "$box"
stage "up" vagrant up --provider libvirt
stage "doctor" vagrant ssh -c 'fanin doctor'
stage "demo" vagrant ssh -c "$demo"
stage "provision" vagrant provision
state="dpkg-query -W; find /opt/fanin /usr/local -name __pycache__ -prune -o -printf '%p %T@\n'"
vagrant ssh -c "$state" >"$work/before"
stage "provision again" vagrant provision
vagrant ssh -c "$state" >"$work/after"
stage "nothing changed" diff "$work/before" "$work/after"
stage "destroy" vagrant destroy --force
vagrant box remove --force "$FANIN_BOX"

printf '\n%s' "$results"
echo "test-vagrant: ended with status $failed"
exit "$failed"
