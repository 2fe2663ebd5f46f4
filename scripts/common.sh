# SPDX-License-Identifier: MIT OR Apache-2.0
# Sourced by the scripts beside it: the same environment for every directory and every user.
# shellcheck shell=bash

set -euo pipefail
shopt -s inherit_errexit

# Files that are built, published or installed here must be readable by the programs of other users. The reader refuses
# files that others could write. The caller's umask must therefore not count.
umask 022

# The messages and formats of the machine's own tools are compared and parsed.
export LC_ALL=C.UTF-8

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# rustup puts cargo here, but a service, `su` or `sudo` does not always look there.
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:/usr/sbin:/sbin
CARGO_TARGET_DIR=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
export PATH CARGO_TARGET_DIR

# The directory of the build's results. The tools of the project lie beside them: nothing outside the tree is touched
# for those. (Each script uses some of them.)
# shellcheck disable=SC2034
PROGRAM=$CARGO_TARGET_DIR/release/roster DAEMON=$CARGO_TARGET_DIR/release/rosterd ROOTWRAP=$CARGO_TARGET_DIR/release/roster-rootwrap KRB5=$CARGO_TARGET_DIR/release/roster-krb5 CLIENT=$CARGO_TARGET_DIR/client/roster-exec LAB=$CARGO_TARGET_DIR/release/roster-lab MODULE=$CARGO_TARGET_DIR/module/libnss_roster.so.2 PAM_MODULE=$CARGO_TARGET_DIR/module/pam_roster.so TOOLS=$CARGO_TARGET_DIR/tools

# Reports the present step on standard error.
say() {
	printf '==> %s\n' "$*" >&2
}

# Reports an error and its remedy, and exits; further arguments are further lines.
die() {
	printf '%s\n' "${0##*/}: $1" "${@:2}" >&2
	exit 1
}
