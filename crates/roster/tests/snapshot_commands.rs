// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of compile, inspect, verify and get: output, errors and exit statuses of the built program.

#![allow(missing_docs)]

mod common;

use common::{Bench, Run};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
                      # a comment\n\
                      alice:x:1000:1000:Alice,,,:/home/alice:/bin/sh\n\
                      broken\n\
                      alice:x:1001:1000:another:/:/bin/sh\n\
                      odd:x:1002:1000::/:/bin/sh:with:colons\n\
                      +@netgroup\n\
                      17:x:40:40:number:/n:\n";
const GROUP: &str = "root:x:0:\n\
                     staff:x:50:alice,bob, carol,,alice\n\
                     top:x:4294967295:alice\n\
                     alice:x:1000:\n\
                     twice:x:50:alice\n\
                     +nis:p:3:a,b\n";
const SHADOW: &str = "root:*:19000:0:99999:7:::\nalice:$6$x::::7::20000:3\nold:*:1:2:3\n";

const COMPILE: &str = "compile --passwd passwd --group group --output roster.snap";

fn sources() -> Bench {
    let bench = Bench::new();
    bench.write("passwd", PASSWD);
    bench.write("group", GROUP);
    bench.write("shadow", SHADOW);
    bench
}

fn compiled() -> Bench {
    let bench = sources();
    bench.roster(&format!("{COMPILE} --shadow shadow")).expect(0);
    bench
}

#[test]
fn compile_reports_counts_and_remarks() {
    let bench = sources();
    let run = bench.roster(COMPILE).expect(0);
    let lines: Vec<_> = run.out.lines().collect();
    assert!(lines[0].starts_with("roster.snap: 6 users, 6 groups, 8 memberships, "), "{lines:#?}");
    assert!(lines[0].ends_with(", generation 1"), "{lines:#?}");
    assert_eq!(lines[1..3], ["  1 line skipped", "  2 entries hidden behind an earlier one"]);
    assert!(lines[3].contains(" of memory"), "{lines:#?}");
    assert_eq!(
        run.err,
        "passwd:4: skipped, as `files` does: the uid field is missing [RST-9030]\n\
         passwd:5: lookups by name are answered from line 3, which has the same name [RST-9031]\n\
         group:5: lookups by gid are answered from line 2, which has the same gid [RST-9031]\n"
    );
    assert_eq!(bench.names(), ["group", "passwd", "roster.snap", "shadow"]);
}

#[test]
fn compile_text_has_twenty_remarks_json_all() {
    let bench = sources();
    bench.write("passwd", "broken\n".repeat(1000));
    bench.write("group", "");
    let run = bench.roster(COMPILE).expect(0);
    assert_eq!(run.err.lines().count(), 21);
    assert_eq!(run.err.lines().last(), Some("… and 980 more remarks; --json lists them"));

    let run = bench.roster(&format!("{COMPILE} --json")).expect(0);
    let report: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    let output = &report["outputs"][0];
    assert_eq!(output["skipped"], 1000);
    assert_eq!(output["generation"], 2);
    assert_eq!(
        output["remarks"][999],
        serde_json::json!({
            "file": "passwd",
            "line": 1000,
            "kind": "skipped",
            "code": "RST-9030",
            "text": "skipped, as `files` does: the uid field is missing",
        })
    );
    assert!(report["peak_memory_bytes"].as_u64() > Some(0));
    assert_eq!(run.err, "");
}

#[test]
fn compile_remarks_have_codes() {
    let bench = sources();
    bench.write("passwd", "nul:x:1:1:a\0b:/:/bin/sh\n  last:x:2:2::/:/bin/sh");
    bench.write("group", "#staff:x:50:alice\n");
    let run = bench.roster(COMPILE).expect(0);
    for code in ["RST-9032", "RST-9033", "RST-9034"] {
        assert!(run.err.contains(&format!(" [{code}]\n")), "{code}: {}", run.err);
    }
}

#[test]
fn files_of_wrong_type_are_errors_with_codes() {
    let bench = sources();
    for (command, code) in [
        ("verify .", "RST-9046"),
        ("enable --file .", "RST-9053"),
        ("generate --output passwd/x", "RST-9064"),
    ] {
        let run = bench.roster(command).expect(1);
        assert!(run.err.ends_with(&format!("[{code}]\n")), "{command}: {}", run.err);
    }
}

#[test]
fn compile_password_hashes_are_not_public() {
    let bench = compiled();
    let mode = |name| fs::metadata(bench.path(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("roster.snap"), mode("shadow.v3.snap")), (0o644, 0o640));
}

#[test]
fn compile_failure_keeps_old_snapshots() {
    let bench = compiled();
    let before = fs::read(bench.path("roster.snap")).unwrap();
    fs::remove_file(bench.path("group")).unwrap();
    let run = bench.roster(&format!("{COMPILE} --shadow shadow")).expect(1);
    assert_eq!(
        run.err,
        "roster: nothing was published: cannot read group: No such file or directory (os error 2). Fix \
         the source in the message, and compile again. [RST-9029]\n"
    );
    assert_eq!(fs::read(bench.path("roster.snap")).unwrap(), before);
    let run = bench.roster("get shadow root --snapshot roster.snap").expect(0);
    assert_eq!(run.out, "root:*:19000:0:99999:7:::\n");
}

#[test]
fn compile_never_overwrites_its_sources() {
    let bench = sources();
    fs::hard_link(bench.path("group"), bench.path("link")).unwrap();
    for output in ["passwd", "./group", "link"] {
        let command = format!("compile --passwd passwd --group group --output {output}");
        let run = bench.roster(&command).expect(1);
        let text = format!("roster: {output} is a source. Choose another output. [RST-9035]\n");
        assert_eq!(run.err, text);
    }
    assert_eq!(bench.read("passwd"), PASSWD);
    let run = bench.roster(&format!("{COMPILE} --shadow shadow --shadow-output roster.snap"));
    assert!(run.expect(1).err.contains("[RST-9037]"));
}

#[test]
fn compile_never_mixes_users_and_hashes() {
    let bench = sources();
    fs::create_dir(bench.path("other")).unwrap();
    for spelling in ["./roster.snap", "other/../roster.snap"] {
        let command = format!("{COMPILE} --shadow shadow --shadow-output {spelling}");
        let run = bench.roster(&command).expect(1);
        assert!(run.err.contains("cannot hold both users and password hashes"), "{}", run.err);
    }
    assert_eq!(bench.names(), ["group", "other", "passwd", "shadow"]);

    bench.roster(&format!("{COMPILE} --shadow shadow")).expect(0);
    let run =
        bench.roster("compile --passwd passwd --group group --output shadow.v3.snap").expect(1);
    assert_eq!(
        run.err,
        "roster: shadow.v3.snap holds password hashes. Choose another output, or remove the file first. \
         [RST-9036]\n"
    );
    let shadow = "--output new.snap --shadow shadow --shadow-output roster.snap";
    let run = bench.roster(&format!("compile --passwd passwd --group group {shadow}")).expect(1);
    assert_eq!(
        run.err,
        "roster: roster.snap holds users and groups. Choose another output, or remove the file first. \
         [RST-9036]\n"
    );
    bench.roster("verify roster.snap").expect(0);
    bench.roster("verify shadow.v3.snap").expect(0);
}

#[test]
fn compile_replaces_snapshots_only() {
    let bench = sources();
    bench.write("important", "a");
    let run = bench.roster("compile --passwd passwd --group group --output important").expect(1);
    assert_eq!(
        run.err,
        "roster: important holds other data. Choose another output, or remove the file first. \
         [RST-9036]\n"
    );
    assert_eq!(bench.read("important"), "a");
    // A damaged snapshot keeps its magic or its name. A new temporary file is empty.
    for (name, there) in [("accounts", "ROSTER\r\nrubbish"), ("accounts", ""), ("a.snap", "\0\0")] {
        bench.write(name, there);
        bench.roster(&format!("compile --passwd passwd --group group --output {name}")).expect(0);
        bench.roster(&format!("verify {name}")).expect(0);
    }
}

#[test]
fn json_non_utf8_file_name_is_shown() {
    let bench = compiled();
    let name = OsStr::from_bytes(b"a\xff.snap");
    fs::copy(bench.path("roster.snap"), bench.folder().join(name)).unwrap();
    let source = OsStr::from_bytes(b"passwd\xff");
    fs::copy(bench.path("passwd"), bench.folder().join(source)).unwrap();
    let json = |words: &[&str], more: &[&OsStr]| {
        let words = words.iter().map(OsStr::new).chain(more.iter().copied());
        let run = bench.roster_with(&words.collect::<Vec<_>>()).expect(0);
        serde_json::from_str::<serde_json::Value>(&run.out).unwrap()
    };
    assert_eq!(json(&["inspect", "--json"], &[name])["file"], "a\u{fffd}.snap");
    assert_eq!(json(&["verify", "--json"], &[name])["file"], "a\u{fffd}.snap");
    let report = json(
        &["compile", "--json", "--group", "group", "--passwd"],
        &[source, OsStr::new("--output"), name],
    );
    assert_eq!(report["outputs"][0]["file"], "a\u{fffd}.snap");
    assert_eq!(report["outputs"][0]["remarks"][0]["file"], "passwd\u{fffd}");
}

#[test]
fn output_full_stream_is_error_without_abort() {
    let bench = compiled();
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let run = |words: &str, out: bool| {
        let mut command = bench.command();
        command.args(words.split_whitespace());
        // The test reads the other stream.
        let output = if out { command.stdout(full()) } else { command.stderr(full()) };
        Run::from_command(output)
    };
    let failed = run("get --snapshot roster.snap passwd", true).expect(1);
    assert!(
        failed.err.contains("\nroster: standard output: write failed: No space left on device")
            && failed.err.ends_with("[RST-9048]\n"),
        "{}",
        failed.err
    );
    run("get --snapshot nosuch passwd", false).expect(1);
    run("get --snapshot roster.snap initgroups", false).expect(3);
    run("verify passwd", false).expect(1);
    // Publication does not depend on the output of remarks.
    run(COMPILE, false).expect(0);
}

#[test]
fn compile_missing_directory_names_mkdir() {
    let bench = sources();
    let run = bench.roster("compile --passwd passwd --group group --output no/roster.snap");
    assert_eq!(
        run.expect(1).err,
        "roster: no/roster.snap: the snapshot was not published: cannot open the directory no: No such file \
         or directory (os error 2). Create the directory: `mkdir -p -m 755 no`. [RST-9039]\n"
    );
}

#[test]
fn get_prints_what_getent_prints() {
    let bench = compiled();
    for (words, code, out) in [
        ("passwd alice", 0, "alice:x:1000:1000:Alice,,,:/home/alice:/bin/sh\n"),
        (
            "passwd 1001 0",
            0,
            "alice:x:1001:1000:another:/:/bin/sh\nroot:x:0:0:root:/root:/bin/bash\n",
        ),
        ("passwd nobody root", 2, "root:x:0:0:root:/root:/bin/bash\n"),
        // getent takes a name of digits for an id, and no user has the id 17.
        ("passwd 17", 2, ""),
        ("passwd +1000", 0, "alice:x:1000:1000:Alice,,,:/home/alice:/bin/sh\n"),
        ("passwd 4294967296", 0, "root:x:0:0:root:/root:/bin/bash\n"),
        ("passwd 0x3e8", 2, ""),
        ("passwd +@netgroup", 2, ""),
        (
            "group staff 50",
            0,
            "staff:x:50:alice,bob,carol,alice\nstaff:x:50:alice,bob,carol,alice\n",
        ),
        ("group -- -1", 0, "top:x:4294967295:alice\n"),
        ("initgroups alice", 0, "alice                 50 50\n"),
        ("initgroups carol nobody", 0, "carol                 50\nnobody               \n"),
        ("initgroups a-name-of-more-than-21-bytes", 0, "a-name-of-more-than-21-bytes\n"),
        ("shadow alice", 0, "alice:$6$x::::7::20000:3\n"),
        ("shadow old nobody", 2, "old:*:1:2:3::::\n"),
        ("shadow 0", 2, ""),
    ] {
        let run = bench.roster(&format!("get --snapshot roster.snap {words}")).expect(code);
        assert_eq!(run.out, out, "{words}");
        assert_eq!(run.err, "", "{words}");
    }
}

#[test]
fn get_enumerates_in_source_order() {
    let bench = compiled();
    let run = bench.roster("get passwd --snapshot roster.snap").expect(0);
    assert_eq!(
        run.out,
        "root:x:0:0:root:/root:/bin/bash\n\
         alice:x:1000:1000:Alice,,,:/home/alice:/bin/sh\n\
         alice:x:1001:1000:another:/:/bin/sh\n\
         +@netgroup::::::\n\
         17:x:40:40:number:/n:\n"
    );
    assert_eq!(
        run.err,
        "roster: warning: the passwd entry of \"odd\" cannot be printed as a line. Use --json to see the \
         entry, and correct its source. [RST-9047]\n"
    );
    let run = bench.roster("get group --snapshot roster.snap").expect(0);
    assert_eq!(run.out.lines().last(), Some("+nis:p::a,b"));
    let run = bench.roster("get shadow --snapshot shadow.v3.snap").expect(0);
    assert_eq!(run.out.lines().count(), 3);
}

#[test]
fn get_has_exit_statuses_of_getent() {
    let bench = compiled();
    bench.roster("get").expect(1);
    bench.roster("get hosts").expect(1);
    bench.roster("get passwd --no-such-option").expect(1);
    let run = bench.roster("get initgroups --snapshot roster.snap").expect(3);
    assert_eq!(run.err, "Enumeration not supported on initgroups\n");
    bench.roster("get --help").expect(0);
    bench.roster("no-such-command").expect(2);
}

#[test]
fn get_json_distinguishes_null_from_empty() {
    let bench = compiled();
    let run = bench.roster("get passwd --json --snapshot roster.snap").expect(0);
    let entries: Vec<serde_json::Value> =
        run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(entries[3]["shell"], "/bin/sh:with:colons");
    assert_eq!(entries[4]["shell"], serde_json::Value::Null);
    assert_eq!(entries[5]["shell"], "");
}

#[test]
fn damaged_snapshot_is_error_not_absence() {
    let bench = compiled();
    let mut bytes = fs::read(bench.path("roster.snap")).unwrap();
    // The first section holds the users.
    bytes[4096 + 4] ^= 1;
    bench.write("bad.snap", &bytes);
    let run = bench.roster("get passwd root --snapshot bad.snap").expect(1);
    assert!(run.err.starts_with("roster: bad.snap: the snapshot is damaged"), "{}", run.err);
    assert!(run.err.ends_with("[RST-2026]\n"), "{}", run.err);
    let run = bench.roster("verify bad.snap").expect(1);
    assert_eq!(
        run.err,
        "roster: bad.snap: user 0 does not match its checksum. Compile the snapshot again. Running \
         programs continue with the previous one. [RST-2026]\n"
    );
    let run = bench.roster("verify bad.snap --json").expect(1);
    let report: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((&report["ok"], &report["code"]), (&false.into(), &"RST-2026".into()));

    bench.write("cut.snap", &bytes[..1000]);
    let run = bench.roster("verify cut.snap").expect(1);
    assert!(run.err.contains("the file has 1000: cut or appended"), "{}", run.err);
    let run = bench.roster("inspect passwd").expect(1);
    assert!(run.err.contains("bytes are too short for a snapshot"), "{}", run.err);
    bench.write("long", PASSWD.repeat(9));
    let run = bench.roster("inspect long").expect(1);
    assert!(run.err.starts_with("roster: long: not a snapshot: "), "{}", run.err);
    let run = bench.roster("get passwd root --snapshot none.snap").expect(1);
    assert_eq!(
        run.err,
        "roster: none.snap does not exist. Create it with `roster compile`, or name another file. \
         [RST-9045]\n"
    );
}

#[test]
fn verify_reports_valid_snapshot() {
    let bench = compiled();
    let run = bench.roster("verify roster.snap").expect(0);
    assert_eq!(run.out, "roster.snap: valid, generation 1, 6 users, 6 groups\n");
    let run = bench.roster("verify shadow.v3.snap").expect(0);
    assert_eq!(run.out, "shadow.v3.snap: valid, generation 1, 3 shadow entries\n");
}

#[test]
fn inspect_shows_counts_and_sections() {
    let bench = compiled();
    let run = bench.roster("inspect roster.snap").expect(0);
    let title = "roster.snap: accounts, format version 3, generation 1, ";
    assert!(run.out.starts_with(title), "{}", run.out);
    for line in [
        "users             6",
        "memberships       8",
        "distinct shells   4",
        "largest group     staff, 4 members",
        "most groups       alice, 3 groups",
    ] {
        assert!(run.out.lines().any(|found| found == line), "no {line:?} in\n{}", run.out);
    }
    let run = bench.roster("inspect roster.snap --json").expect(0);
    let report: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((&report["kind"], &report["users"]), (&"accounts".into(), &6.into()));
    assert_eq!(report["largest_group"], serde_json::json!({"name": "staff", "size": 4}));
    assert_eq!(report["bytes"], fs::metadata(bench.path("roster.snap")).unwrap().len());
    assert!(report["sections"].as_array().unwrap().iter().any(|s| s["name"] == "by_user_name"));
    let run = bench.roster("inspect shadow.v3.snap").expect(0);
    assert!(run.out.contains("shadow entries    3\n"), "{}", run.out);
}

#[test]
fn inspect_shows_control_characters_as_escapes() {
    let bench = sources();
    bench.write("group", "\x1b]0;owned\x07g:x:5:alice\u{301}\n");
    bench.roster(COMPILE).expect(0);
    let run = bench.roster("inspect roster.snap").expect(0);
    assert!(run.out.contains("\\u{1b}]0;owned\\u{7}g, 1 member\n"), "{:?}", run.out);
}

#[test]
fn help_shows_usage() {
    let bench = Bench::new();
    let run = bench.roster("help").expect(0);
    assert!(run.out.contains("Usage: roster <COMMAND>"), "{}", run.out);
    let run = bench.roster("help get").expect(0);
    assert!(run.out.contains("Usage: roster get [OPTIONS] <DATABASE> [KEY]..."), "{}", run.out);
}

#[test]
fn generate_is_reproducible_and_keeps_other_files() {
    let bench = Bench::new();
    let generate = "generate --users 100 --groups 50 --members 5 --shape zipf --shadow --output";
    let run = bench.roster(&format!("{generate} a")).expect(0);
    assert_eq!(
        run.out,
        "a/passwd: 100 users\n\
         a/group: 50 groups, 250 memberships, the largest group has 55 members\n\
         a/shadow: 100 users, all without a valid password\n"
    );
    bench.roster(&format!("{generate} b")).expect(0);
    bench.roster(&format!("{generate} b")).expect(0);
    for name in ["passwd", "group", "shadow"] {
        assert_eq!(bench.read(&format!("a/{name}")), bench.read(&format!("b/{name}")));
    }
    bench.write("etc/passwd", PASSWD);
    let run = bench.roster(&format!("{generate} etc")).expect(1);
    assert_eq!(
        run.err,
        "roster: etc/passwd is not an earlier corpus. Remove the file first, or choose another --output. \
         [RST-9065]\n"
    );
    assert_eq!(bench.read("etc/passwd"), PASSWD);
}

#[test]
fn man_pages_and_completions_match_arguments() {
    let bench = Bench::new();
    bench.roster("man pages").expect(0);
    for page in
        ["roster.1", "roster-status.1", "roster-domain-rejected.1", "roster.toml.5", "pam_roster.8"]
    {
        assert!(bench.path("pages").join(page).is_file(), "{page}");
    }
    // The lines of a page have at most 80 bytes.
    let compile = bench.read("pages/roster-compile.1").replace('\n', " ");
    assert!(
        compile.contains("\\-\\-passwd <FILE> \\-\\-group <FILE> \\-\\-output <FILE>"),
        "{compile}"
    );
    let get = bench.read("pages/roster-get.1");
    assert!(get.contains("[OPTIONS] <DATABASE> [KEY]..."), "{get}");
    assert!(get.contains("ROSTER_SNAPSHOT"), "{get}");
    for shell in ["bash", "zsh", "fish"] {
        let run = bench.roster(&format!("completions {shell}")).expect(0);
        assert!(run.out.contains("consecutive"), "{shell}");
    }
}

#[test]
fn explain_prints_row_and_rejects_unknown_code() {
    let bench = Bench::new();
    let message = roster_messages::find("RST-1001").unwrap();
    let run = bench.roster("explain rst-1001").expect(0);
    assert_eq!(
        run.out,
        format!(
            "RST-1001: {}\n  Cause: {}\n  Fix:   {}\n",
            message.title, message.cause, message.fix
        )
    );
    let run = bench.roster("explain --json 1001 RST-0000").expect(1);
    let rows: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(rows[0]["code"], "RST-1001");
    assert_eq!(rows.as_array().unwrap().len(), 1);
    assert!(run.err.starts_with("roster: RST-0000: unknown code. "), "{}", run.err);
    assert!(run.err.ends_with("[RST-9066]\n"), "{}", run.err);
}
