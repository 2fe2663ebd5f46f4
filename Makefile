# SPDX-License-Identifier: MIT OR Apache-2.0
# Targets for developers, packagers and pipelines. cargo and scripts/ do the work. Each target first installs missing
# packages, and prints their names.

# Directories of `make install`. The default of LIBDIR is the directory of glibc.
PREFIX ?= /usr/local
DESTDIR ?=
export PREFIX DESTDIR LIBDIR

# For `make module` and `make programs`: another glibc or processor than that of this machine, see scripts/cross-build.
GLIBC ?=
ARCH ?=
export GLIBC ARCH

# Arguments for `make bench`, `make test`, `make fuzz`.
ARGS ?=
# The commit that `make counts` compares with.
BASE ?= HEAD~1

export CARGO_TARGET_DIR ?= $(CURDIR)/target
# rustup installs cargo here. `su` and services leave this directory out of PATH.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

PROGRAM := $(CARGO_TARGET_DIR)/release/roster
MODULE := $(CARGO_TARGET_DIR)/module/libnss_roster.so.2
PAM_MODULE := $(CARGO_TARGET_DIR)/module/pam_roster.so
SOURCES := Cargo.toml Cargo.lock $(shell find crates -type f)
# roster-exec has no standard library. A separate build has no crate features of other programs.
CLIENT := --package roster-exec --bin roster-exec --no-default-features --features program --profile client
# Other users read the results, so the umask of the caller must not count. No path of this machine is in the results.
CARGO := umask 022 && RUSTFLAGS="$$(scripts/remap-paths) $$RUSTFLAGS" cargo

# Targets have absolute paths. make splits them at spaces.
$(if $(word 2,x$(PROGRAM)),$(error $(PROGRAM) has a space in it, which make cannot deal with: move the tree or set CARGO_TARGET_DIR))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help build programs module demo test test-busy test-long bench bench-base counts lint fuzz mutants install uninstall packages package-repository test-packages clean

help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

build: programs module ## build the programs and the NSS and PAM modules

programs: ## build the programs alone; GLIBC=2.28 ARCH=aarch64 KRB5_ROOT=… for another glibc or processor
ifneq ($(GLIBC)$(ARCH),)
	@scripts/need cross
	@scripts/cross-build programs
else
	@scripts/need build
	$(CARGO) build --release --locked
	$(CARGO) rustc $(CLIENT) --locked -- -C target-feature=+crt-static -C relocation-model=static
	@touch -- $(PROGRAM)
endif

# Each module is built separately, without the crate features of other programs.
module: ## build the NSS and PAM modules alone; GLIBC=2.17 ARCH=aarch64 for another glibc or processor
ifneq ($(GLIBC)$(ARCH),)
	@scripts/need cross
	@scripts/cross-build modules
else
	@scripts/need build
	$(CARGO) build --package roster-nss --profile module --locked
	$(CARGO) build --package roster-pam --profile module --locked
	@umask 022 && cp -- $(CARGO_TARGET_DIR)/module/libnss_roster.so $(MODULE).new && mv -f -- $(MODULE).new $(MODULE)
	@umask 022 && cp -- $(CARGO_TARGET_DIR)/module/libpam_roster.so $(PAM_MODULE).new && mv -f -- $(PAM_MODULE).new $(PAM_MODULE)
endif

demo: ## time id and getent on 10,000 users beside glibc's files; then the daemon, and a change seen
	@scripts/demo

test: ## run all tests; ARGS="-p roster-config" those of a crate (ARGS= for cargo test)
	@scripts/test $(ARGS)

test-busy: ## run all tests beside stress-ng on every processor and on the disk
	@$(MAKE) --no-print-directory test-long PART=busy

test-long: build ## run one part of the long tests: make test-long PART=NAME; PART=--help lists them
	@scripts/need test-long
	@scripts/test-long $(or $(PART),--help)

bench: ## measure against peers installed from packages, one table (ARGS= for bench/run)
	@scripts/need bench
	@bench/run $(ARGS)

counts: ## count instructions of code without I/O and compare with BASE=HEAD~1; 1 % more on a line fails
	@scripts/counts $(BASE)

# The variables of `make install` do not apply: the directory is BASE, the prefix /usr.
bench-base: ## build and install REV= into BASE= (bench/out/base/COMMIT) for `bench/run --against`; print BASE
	@scripts/bench-base

lint: ## check style, lints, licences, spelling, scripts and the policies of packaging/
	@scripts/lint

fuzz: ## fuzz for FUZZ_SECONDS=60 a target, compare with files on ROSTER_CORPORA=2000 corpora, read ROSTER_FORGED=10000 forged snapshots
	@scripts/fuzz $(ARGS)

mutants: ## test strength: each change of parsers and of decisions fails a test (CRATE=PART; a wrong name lists the parts)
	@scripts/mutants $(CRATE)

install: $(PROGRAM) $(MODULE) $(PAM_MODULE) ## install under DESTDIR= PREFIX=/usr/local; nsswitch.conf and pam.d stay as they are
	@scripts/install

uninstall: ## remove what `make install` with the same DESTDIR= PREFIX= put there
	@scripts/uninstall

packages: build ## build the .deb and .rpm packages in target/packages, with bills of materials
	@scripts/need packages
	@scripts/packages deb
	@scripts/package-rpm

package-repository: packages ## make a signed apt repository in target/packages/repository
	@scripts/packages repository

test-packages: packages ## install, upgrade, remove and purge the packages in ROOT=debian-12 or another release
	@scripts/need test-packages
	@scripts/packages test $(or $(ROOT),debian-12)

clean: ## remove everything that was built, the tools too
	cargo clean
	rm -rf -- fuzz/target bench/out

# For `make install` only: root needs no cargo after another user's build. cargo keeps a result that a changed file does
# not affect, so the rules above copy and touch it.
$(PROGRAM): $(SOURCES)
	@$(MAKE) --no-print-directory programs

$(MODULE) $(PAM_MODULE): $(SOURCES)
	@$(MAKE) --no-print-directory module
