// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster-rootwrap-daemon` and the client of oslo.rootwrap 7.10 from PyPI. Each test is a scenario of
//! `oslo_client.py`, which has its assertions.

mod pythons;

use pythons::{bounded, minor, needs_root, own, python, pythons, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const DAEMON: &str = env!("CARGO_BIN_EXE_roster-rootwrap-daemon");

/// Creates a directory with a rootwrap.conf that has the given lines.
fn lay_out(lines: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules");
    fs::create_dir(&rules).unwrap();
    let noise = folder.path().join("noise");
    let filters = format!(
        "[Filters]\nsh: CommandFilter, sh, root\ncat: CommandFilter, cat, root\n\
         echo: CommandFilter, echo, root\nid: CommandFilter, id, nobody\n\
         no: CommandFilter, /no/such/no-executable, root\nnoise: CommandFilter, {}, root\n",
        noise.display()
    );
    fs::write(rules.join("a.filters"), filters).unwrap();
    fs::write(&noise, "\x7fELF or not").unwrap();
    fs::set_permissions(&noise, fs::Permissions::from_mode(0o755)).unwrap();
    let conf = folder.path().join("rootwrap.conf");
    let text =
        format!("[DEFAULT]\nfilters_path={}\nexec_dirs=/usr/bin,/bin\n{lines}\n", rules.display());
    fs::write(&conf, text).unwrap();
    (folder, conf)
}

fn scenario(name: &str, lines: &str) {
    let (folder, conf) = lay_out(lines);
    run(bounded(python())
        .arg(own("oslo_client.py"))
        .args([name, DAEMON])
        .arg(conf)
        .arg(folder.path()));
}

#[test]
fn no_byte_is_lost_on_any_way() {
    if needs_root() {
        scenario("streams", "");
        scenario("streams", "roster_mode=strict");
    }
}

#[test]
fn exit_codes_are_those_of_the_original() {
    if needs_root() {
        scenario("codes", "");
    }
}

#[test]
fn commands_have_their_users_rights_and_nothing_of_the_daemon() {
    if needs_root() {
        scenario("rights", "rlimit_nofile=200");
        scenario("rights", "rlimit_nofile=200\nroster_mode=strict");
    }
}

#[test]
fn many_threads_are_served_at_once() {
    if needs_root() {
        scenario("threads", "");
    }
}

#[test]
fn large_streams_leave_the_daemon_small() {
    if needs_root() {
        scenario("large", "");
    }
}

#[test]
fn what_is_larger_than_the_bound_is_told_and_killed() {
    if needs_root() {
        scenario("too_much", "roster_data_max=1048576");
    }
}

#[test]
fn a_daemon_that_is_told_to_end_answers_first_and_leaves_nothing() {
    if needs_root() {
        scenario("graceful", "");
    }
}

#[test]
fn a_killed_client_leaves_no_daemon() {
    if needs_root() {
        scenario("client_killed", "");
    }
}

#[test]
fn a_killed_daemon_leaves_nothing_for_long() {
    if needs_root() {
        scenario("daemon_killed", "");
    }
}

#[test]
fn an_idle_daemon_ends_however_often_it_was_asked() {
    if needs_root() {
        scenario("idle", "daemon_timeout=1");
    }
}

#[test]
fn a_grandchild_that_keeps_the_pipes_blocks_nobody() {
    if needs_root() {
        scenario("grandchild", "");
    }
}

#[test]
fn a_thousand_strangers_are_turned_away_without_a_byte() {
    if needs_root() {
        scenario("strangers", "");
        scenario("allowed", "");
    }
}

#[test]
fn strangers_without_end_do_not_keep_the_daemon_from_ending() {
    if needs_root() {
        scenario("flooded", "");
    }
}

#[test]
fn nobody_waits_for_what_a_stranger_has_sent() {
    if needs_root() {
        scenario("lingering", "");
    }
}

#[test]
fn a_command_begins_with_nothing_that_clients_have_sent() {
    if needs_root() {
        scenario("leaving", "");
        scenario("apart", "");
    }
}

#[test]
fn silent_and_slow_connections_do_not_keep_the_client_out() {
    if needs_root() {
        scenario("silent", "");
    }
}

#[test]
fn hostile_lengths_and_words_cost_nothing() {
    if needs_root() {
        scenario("hostile", "");
    }
}

#[test]
fn an_input_may_come_in_any_pieces() {
    if needs_root() {
        scenario("pieces", "");
    }
}

#[test]
fn a_command_whose_input_breaks_off_is_killed() {
    if needs_root() {
        scenario("broken_input", "");
    }
}

#[test]
fn with_few_open_files_commands_wait() {
    if needs_root() {
        scenario("few_files", "rlimit_nofile=64");
    }
}

#[test]
fn a_command_that_never_ends_holds_nobody_up() {
    if needs_root() {
        scenario("never_ends", "");
    }
}

#[test]
fn full_pipes_and_a_client_that_takes_nothing_hold_nobody_else_up() {
    if needs_root() {
        scenario("full_pipes", "");
    }
}

#[test]
fn no_descriptor_is_left_to_a_command_or_in_the_daemon() {
    if needs_root() {
        scenario("leaks", "");
        scenario("leaks", "roster_mode=strict");
    }
}

#[test]
fn what_cannot_be_executed_is_an_exception_of_the_client() {
    if needs_root() {
        scenario("unserializable", "");
    }
}

#[test]
fn the_log_is_told_what_the_configuration_wants() {
    if !needs_root() {
        return;
    }
    let lines = "use_syslog=True\nsyslog_log_facility=local1\nsyslog_log_level=WARNING";
    let (folder, conf) = lay_out(lines);
    let script = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec \"$@\"";
    run(bounded("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .args([&python(), &own("oslo_client.py")])
        .args(["syslog", DAEMON])
        .args([&conf, folder.path()]));
}

#[test]
fn a_full_disk_is_told_and_the_daemon_goes_on() {
    if !needs_root() {
        return;
    }
    let (folder, conf) = lay_out("");
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let script =
        "mount -t tmpfs -o size=1m none \"$1\" && export TMPDIR=\"$1\" && shift && exec \"$@\"";
    run(bounded("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .args([&disk, &python(), &own("oslo_client.py")])
        .args(["full_disk", DAEMON])
        .args([&conf, folder.path()]));
}

#[test]
fn every_python_knows_the_daemon_for_what_it_is() {
    if !needs_root() {
        return;
    }
    let (_folder, conf) = lay_out("");
    for python in pythons() {
        run(bounded(python).arg(own("multiprocessing_handshake.py")).arg(DAEMON).arg(&conf));
    }
}

#[test]
fn a_key_of_any_bytes_arrives_whole() {
    if needs_root() {
        let (_folder, conf) = lay_out("");
        run(bounded(python()).arg(own("eventlet_key_read.py")).arg(DAEMON).arg(conf));
    }
}

/// Versions without further packages, and their oldest Python 3. The newest version runs with all others.
const OLDER_CLIENTS: [(&str, usize); 3] = [("6.3", 6), ("7.0", 8), ("7.4", 9)];

#[test]
fn older_clients_are_served_under_every_python_that_they_know() {
    if !needs_root() {
        return;
    }
    // The path is BIN/python in one of several directories of tools.
    let tools = python().ancestors().nth(3).unwrap().to_owned();
    std::thread::scope(|scope| {
        for (version, oldest) in OLDER_CLIENTS {
            let client = tools.join(format!("oslo-rootwrap-{version}"));
            assert!(client.exists(), "{} is missing: run scripts/need test", client.display());
            for python in pythons().into_iter().filter(|python| minor(python) >= oldest) {
                let client = client.clone();
                scope.spawn(move || {
                    for name in ["streams", "codes", "graceful"] {
                        let (folder, conf) = lay_out("");
                        let mut command = bounded(&python);
                        command.env("PYTHONPATH", &client).arg(own("oslo_client.py"));
                        run(command.args([name, DAEMON]).args([&conf, folder.path()]));
                    }
                });
            }
        }
    });
}

#[test]
fn the_originals_own_functional_tests_pass() {
    if !needs_root() {
        return;
    }
    for eventlet in [None, Some(("TEST_EVENTLET", "1"))] {
        let mut command = bounded(python());
        command
            .arg(own("oslo_functional_tests.py"))
            .args([env!("CARGO_BIN_EXE_roster-rootwrap"), DAEMON]);
        run(command.envs(eventlet));
    }
}

#[test]
fn the_originals_own_unit_tests_pass_with_our_judge() {
    let folder = tempfile::tempdir().unwrap();
    let rootwrap = env!("CARGO_BIN_EXE_roster-rootwrap");
    run(bounded(python()).arg(own("oslo_unit_tests.py")).arg(rootwrap).arg(folder.path()));
}

#[test]
fn wrong_calls_have_the_codes_of_the_original() {
    let code = |args: &[&str]| {
        let output = Command::new(DAEMON).args(args).stdin(Stdio::null()).output().unwrap();
        assert!(output.stdout.is_empty());
        output.status.code().unwrap()
    };
    assert_eq!((code(&[]), code(&["a", "b"]), code(&["--no"])), (98, 98, 98));
    assert_eq!(code(&["/no/such.conf"]), 97);
}
