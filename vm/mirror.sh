#!/bin/sh
# Prints the address of an archive of Debian: DEBIAN_MIRROR, or the one that this machine has, if it runs Debian.
set -eu
# shellcheck source=/dev/null
codename=$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME") || codename=none
# shellcheck disable=SC2016
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
    sed -n "s/^$codename //p" | head -n 1)}
[ -n "$mirror" ] || {
    echo "set DEBIAN_MIRROR to the address of an archive of Debian" >&2
    exit 1
}
echo "$mirror"
