// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lint `clocks in tests`: no test depends on a clock. `make lint` runs it on the tree.
//!
//! A busy machine delays any process by any time. A test that compares times fails there without a
//! fault in the code. Tests therefore show that something waited for something: the outcome happens
//! although the other side is still blocked, and the test releases it afterwards.
//!
//! The lint covers the Rust sources of the workspace; `python.py` beside it covers Python. `clocks` has
//! the rule. Sleeps are out of scope, also those after which a test expects an outcome.
//!
//! usage: `roster-lint-clocks [ROOT]`

mod clocks;
mod exceptions;
mod source;

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use exceptions::Exceptions;

/// Accepted findings, one a line, from the root of the tree.
const EXCEPTIONS: &str = "tests/lint-clocks/exceptions.txt";

/// Directories of the workspace with Rust sources.
const ROOTS: [&str; 2] = ["crates", "tests"];

fn main() -> ExitCode {
    let root = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    match check(Path::new(&root)) {
        Ok(report) if report.is_empty() => ExitCode::SUCCESS,
        Ok(report) => {
            eprint!("{report}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("roster-lint-clocks: {error}");
            ExitCode::from(2)
        }
    }
}

/// The report on a tree: one line for each finding without an exception and for each exception
/// without a finding, then the advice. Empty when there is nothing to report.
fn check(root: &Path) -> Result<String, String> {
    let list = root.join(EXCEPTIONS);
    let list = std::fs::read_to_string(&list).map_err(|e| format!("{}: {e}", list.display()))?;
    let mut exceptions = Exceptions::parse(&list, ".rs")?;
    let sources = source::read_tree(root, &ROOTS)?;
    let mut report = String::new();
    for clocks::Finding { path, line, function, message } in clocks::find(&sources) {
        let file = std::fs::read_to_string(root.join(&path)).map_err(|e| format!("{path}: {e}"))?;
        let text = file.lines().nth(line - 1).unwrap_or_default().trim();
        if !exceptions.accept(&path, &function, text) {
            let _ = writeln!(report, "{path}:{line}: {function}: {message}: `{text}`");
        }
    }
    for (line, path, function) in exceptions.unused() {
        let _ = writeln!(
            report,
            "{EXCEPTIONS}:{line}: {path}: {function}: the exception matches nothing. Remove it."
        );
    }
    if !report.is_empty() {
        report.push_str(
            "Show that something waited for something, and bound waits by 30 s or more; or add a \
             line ``FILE: FUNCTION: `SOURCE LINE`: REASON`` to the exceptions.\n",
        );
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of one test file and a list of exceptions.
    fn tree(source: &str, exceptions: &str) -> std::path::PathBuf {
        let name = format!("lint-clocks-{}-{:?}", std::process::id(), std::thread::current().id());
        let root = std::env::temp_dir().join(name);
        std::fs::create_dir_all(root.join("crates/one/tests")).unwrap();
        std::fs::create_dir_all(root.join("tests/lint-clocks")).unwrap();
        std::fs::write(root.join("crates/one/tests/it.rs"), source).unwrap();
        std::fs::write(root.join(EXCEPTIONS), exceptions).unwrap();
        root
    }

    fn report(source: &str, exceptions: &str) -> Result<String, String> {
        let root = tree(source, exceptions);
        let report = check(&root);
        std::fs::remove_dir_all(root).unwrap();
        report
    }

    const TIMED: &str = "#[test]\nfn answer_is_quick() {\n    let start = Instant::now();\n    \
                         assert!(start.elapsed() < Duration::from_secs(1));\n}\n";

    const EXCEPTED: &str = "crates/one/tests/it.rs: answer_is_quick: \
        `assert!(start.elapsed() < Duration::from_secs(1));`: the figure is the subject\n";

    #[test]
    fn report_finding_names_file_line_function() {
        let report = report(TIMED, "").unwrap();
        assert!(report.starts_with("crates/one/tests/it.rs:4: answer_is_quick: "), "{report}");
    }

    #[test]
    fn report_excepted_finding_is_accepted() {
        assert_eq!(report(TIMED, &format!("# why\n\n{EXCEPTED}")).unwrap(), "");
    }

    #[test]
    fn report_second_finding_needs_second_exception() {
        let twice =
            TIMED.replace("}\n", "    assert!(start.elapsed() < Duration::from_secs(1));\n}\n");
        assert!(report(&twice, EXCEPTED).unwrap().starts_with("crates/one/tests/it.rs:5: "));
        assert_eq!(report(&twice, &EXCEPTED.repeat(2)).unwrap(), "");
    }

    #[test]
    fn report_stale_exception_fails() {
        let report = report("#[test]\nfn answer_is_quick() {}\n", EXCEPTED).unwrap();
        assert!(report.contains("exceptions.txt:1: crates/one/tests/it.rs"), "{report}");
        assert!(report.contains("matches nothing"), "{report}");
    }

    #[test]
    fn report_exception_without_reason_is_rejected() {
        let list = EXCEPTED.replace("the figure is the subject", "");
        let error = report(TIMED, &list).unwrap_err();
        assert!(error.contains("line 1"), "{error}");
    }

    #[test]
    fn report_unparsable_source_is_an_error() {
        let error = report("fn (", "").unwrap_err();
        assert!(error.contains("crates/one/tests/it.rs"), "{error}");
    }

    #[test]
    fn python_lint_passes_its_own_tests() {
        let mut python = std::process::Command::new("python3");
        python.args(["-B", "python_test.py"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        let done = python.output().expect("python3");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}
