// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `roster-lab compare` with real runs, and of its page in a real browser.

mod common;

use common::{DN, PASSWORD, assert_fits_widths, has_code, run, slapd};
use resvg::tiny_skia::Pixmap;
use roster_messages::table::lab as messages;
use roster_system_tests::find_tool;
use roster_system_tests::servers::Relay;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Makes two runs with a slapd. The first reuses connections. The second opens one for each bind, and a relay delays
/// its replies by more than a busy machine does.
fn two_runs() -> (TempDir, [PathBuf; 2]) {
    let folder = tempfile::tempdir().expect("make a directory");
    let slapd = slapd(|_| {});
    let relay = Relay::to(slapd.port());
    let uri = relay.uri();
    let files = [("reuse", 0), ("new", 100)].map(|(how, delay_ms)| {
        relay.set_delay(Duration::from_millis(delay_ms));
        let file = folder.path().join(format!("{how}.json"));
        let what = ["ldap", "--uri", &uri, "--dn", DN, "--password", PASSWORD, "--users", "2"];
        let how = ["--connections", how, "--duration", "2", "--warm-up", "200ms", "--probe", "0"];
        let page = folder.path().join("one.html");
        let files = ["--json", path(&file), "--html", path(&page)];
        let output = run(&[&what[..], &how, &files].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        file
    });
    (folder, files)
}

#[test]
fn compare_difference_is_in_text_page_picture() {
    let (folder, [reuse, new]) = two_runs();
    let (html, png) = (folder.path().join("report.html"), folder.path().join("report.png"));
    let files = ["--html", path(&html), "--png", path(&png)];
    let output = run(&[&["compare", path(&reuse), path(&new)], &files[..]].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("The rate of requests of new is ") && said.contains("% lower"), "{said}");
    assert!(said.contains("different options: connections: reuse | new"), "{said}");
    assert!(has_code(&said, &messages::RUNS_DIFFER), "{said}");
    let page = fs::read_to_string(&html).expect("the page");
    for what in ["<h1>", "% lower than that of reuse", "Latency, percentile by percentile"] {
        assert!(page.contains(what), "{what}");
    }
    let picture = Pixmap::load_png(&png).expect("a picture");
    assert!(picture.width() > 1000 && picture.height() > 2000);
    let blue = picture.pixels().iter().filter(|one| one.blue() > 180 && one.red() < 80).count();
    assert!(blue > 2000, "bars are drawn");
    let dark = picture.pixels().iter().filter(|one| one.red() < 60 && one.blue() < 60).count();
    assert!(dark > 2000, "text is written");
    let single = fs::read_to_string(folder.path().join("one.html")).expect("the page of a run");
    assert!(single.contains("roster-lab: ldap ldap://127.0.0.1") && single.contains("<svg"));
    // A page with pre-run checks.
    let checked = folder.path().join("checked.html");
    let output =
        run(&["command", "--duration", "1", "--quiet", "--html", path(&checked), "--", "true"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_fits_widths(&[&html, &folder.path().join("one.html"), &checked]);
}

#[test]
fn report_page_is_self_contained_light_dark() {
    let (folder, [reuse, new]) = two_runs();
    let html = folder.path().join("report.html");
    let output = run(&["compare", path(&reuse), path(&new), "--html", path(&html)]);
    assert!(output.status.success());
    let page = fs::read_to_string(&html).expect("the page");
    for from_elsewhere in ["http://", "https://", "src=", "<link", "<script", "url("] {
        assert!(!page.contains(from_elsewhere), "{from_elsewhere}");
    }
    // Blink's numbers of the preferred colour schemes.
    let corners = [("0", "dark"), ("1", "light")].map(|(wish, name)| {
        let shot = folder.path().join(format!("{name}.png"));
        let output = Command::new(find_tool("chromium", "chromium"))
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", folder.path().join(name).display()))
            .arg(format!("--blink-settings=preferredColorScheme={wish}"))
            .args(["--window-size=1500,1600", &format!("--screenshot={}", shot.display())])
            .arg(format!("file://{}", html.display()))
            .output()
            .expect("start chromium");
        let said = String::from_utf8_lossy(&output.stderr);
        let picture = Pixmap::load_png(&shot).unwrap_or_else(|error| panic!("{error}: {said}"));
        let colours: std::collections::BTreeSet<_> =
            picture.pixels().iter().map(|one| (one.red(), one.green(), one.blue())).collect();
        assert!(colours.len() > 50, "{name}: charts and text are drawn: {}", colours.len());
        let corner = picture.pixel(2, 2).expect("a pixel");
        [corner.red(), corner.green(), corner.blue()]
    });
    assert_eq!(corners, [[0x0d, 0x11, 0x17], [0xff, 0xff, 0xff]]);
}

#[test]
fn what_is_no_report_is_told() {
    let folder = tempfile::tempdir().expect("make a directory");
    let other = folder.path().join("other.json");
    fs::write(&other, "{\"requests\": 5}").expect("write it");
    let none = folder.path().join("none.json");
    for (file, message) in [(&other, &messages::REPORT_FORMAT), (&none, &messages::FILE_UNREADABLE)]
    {
        let output = run(&["compare", path(file)]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && has_code(&said, message), "{said}");
    }
}
