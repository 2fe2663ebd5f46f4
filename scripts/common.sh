# Sourced by the scripts beside it: the same footing wherever, and by whomever, they are run.
# shellcheck shell=bash

set -euo pipefail
shopt -s inherit_errexit

# What is built, published or installed here must be readable by the programs of other users, and
# the reader refuses what others could write: both whatever the caller's umask.
umask 022

# The messages and formats of the machine's own tools are compared and parsed.
export LC_ALL=C.UTF-8

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# rustup puts cargo here, but a service, `su` or `sudo` does not always look there.
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:/usr/sbin:/sbin
CARGO_TARGET_DIR=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
export PATH CARGO_TARGET_DIR

# Where the build leaves its results. The tools of the project lie beside them: nothing outside the
# tree is touched for those. (Each script uses some of them.)
# shellcheck disable=SC2034
PROGRAM=$CARGO_TARGET_DIR/release/roster DAEMON=$CARGO_TARGET_DIR/release/rosterd ROOTWRAP=$CARGO_TARGET_DIR/release/roster-rootwrap KRB5=$CARGO_TARGET_DIR/release/roster-krb5 CLIENT=$CARGO_TARGET_DIR/client/roster-exec LAB=$CARGO_TARGET_DIR/release/roster-lab MODULE=$CARGO_TARGET_DIR/module/libnss_roster.so.2 PAM_MODULE=$CARGO_TARGET_DIR/module/pam_roster.so TOOLS=$CARGO_TARGET_DIR/tools

# What is going on, for the person who watches.
say() {
	printf '==> %s\n' "$*" >&2
}

# What went wrong, and what to do about it; further arguments are further lines.
die() {
	printf '%s\n' "${0##*/}: $1" "${@:2}" >&2
	exit 1
}
