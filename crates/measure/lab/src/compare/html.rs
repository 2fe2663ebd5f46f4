// SPDX-License-Identifier: MIT OR Apache-2.0
//! The self-contained HTML page, in light or dark colours, and the picture of its charts. `chart` draws the charts.

use super::chart::{self, Axis, AxisUnit, Bar, Chart, Series, Theme, WIDTH, escaped};
use super::html_table::HtmlTable;
use super::{
    LoadedOrigin, LoadedReport, compare_pair, differing_options, is_open, is_repeated, percent,
    samples, sentences, stats, with_code,
};
use crate::coded::{Coded, ensure_coded};
use crate::report::RunStats;
use crate::report::text::milliseconds;
use anyhow::Result;
use resvg::{tiny_skia, usvg};
use roster_messages::table::lab;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

/// Space around and between the charts of a picture.
const GAP: f32 = 24.0;
/// Pixels of a picture for each pixel of a page, for screens of high resolution.
const SCALE: f32 = 2.0;
/// Directories of fonts.
const FONT_DIRS: [&str; 2] = ["/usr/share/fonts", "/usr/local/share/fonts"];

/// Returns the charts with data of these runs.
fn charts(all: &[LoadedReport], theme: Theme) -> Vec<Chart> {
    // Pairs of low charts come first, so that a page of two columns has no gaps.
    let mut charts = vec![rates(all, theme), boxes(all, theme)];
    charts.extend(processor(all, theme));
    charts.extend([false, true].into_iter().flat_map(|open| curves(all, open, theme)));
    let lines: Vec<Series> = all.iter().enumerate().map(|(at, one)| percentiles(at, one)).collect();
    let x = Axis { unit: AxisUnit::Percentile, label: "of requests took no longer", is_log: true };
    let y = Axis { unit: AxisUnit::Milliseconds, label: "", is_log: true };
    charts.push(Chart::lines(theme, "Latency, percentile by percentile", x, y, &lines));
    charts.extend(over_time(all, theme));
    charts
}

fn boxes(all: &[LoadedReport], theme: Theme) -> Chart {
    let row = |(at, one): (usize, &LoadedReport)| Series {
        name: one.name.clone(),
        series: at,
        points: one.best().percentiles_ms.clone(),
    };
    let rows: Vec<Series> = all.iter().enumerate().map(row).collect();
    Chart::boxes(theme, "Latency", &rows, &rows)
}

fn rates(all: &[LoadedReport], theme: Theme) -> Chart {
    let bars = all.iter().enumerate().map(|(at, one)| {
        let run = one.best();
        let pieces = samples(one, is_repeated(one), |piece| piece.0);
        let spread = stats::spread(&pieces).map(|(_, spread)| spread);
        Bar { name: one.name.clone(), series: at, value: run.rate, spread }
    });
    let label = "requests a second, with 95 % confidence";
    Chart::bars(theme, "Requests a second", AxisUnit::Count, label, &bars.collect::<Vec<_>>())
}

/// Returns load curves by users or by requested rate, if a report has several runs.
fn curves(all: &[LoadedReport], open: bool, theme: Theme) -> Vec<Chart> {
    let of_kind = |one: &LoadedReport| one.runs().iter().any(is_open) == open;
    if !all.iter().any(|one| of_kind(one) && one.stages.len() > 1) {
        return Vec::new();
    }
    let load = |run: &RunStats| run.offered.unwrap_or(f64::from(run.users));
    let (label, by) = match open {
        true => ("requests a second, offered", "offered rate"),
        false => ("users", "users"),
    };
    let lines = |value: fn(&RunStats) -> f64| -> Vec<Series> {
        let line = |(at, one): (usize, &LoadedReport)| {
            let mut points: Vec<(f64, f64)> =
                one.runs().iter().map(|run| (load(run), value(run))).collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            Series { name: one.name.clone(), series: at, points }
        };
        all.iter().enumerate().filter(|(_, one)| of_kind(one)).map(line).collect()
    };
    let x = Axis { unit: AxisUnit::Count, label, is_log: !open };
    let count = Axis { unit: AxisUnit::Count, label: "", is_log: false };
    let time = Axis { unit: AxisUnit::Milliseconds, label: "", is_log: true };
    vec![
        Chart::lines(
            theme,
            &format!("Requests a second, by {by}"),
            x,
            count,
            &lines(|run| run.rate),
        ),
        Chart::lines(
            theme,
            &format!("Median latency, by {by}"),
            x,
            time,
            &lines(|run| run.latency_ms.p50),
        ),
        Chart::lines(
            theme,
            &format!("99th percentile, by {by}"),
            x,
            time,
            &lines(|run| run.latency_ms.p99),
        ),
    ]
}

fn percentiles(at: usize, one: &LoadedReport) -> Series {
    let run = one.best();
    // A percentile with less than one request above it equals the maximum.
    #[expect(clippy::cast_precision_loss, reason = "a count")]
    let known = |percentile: f64| (1.0 - percentile / 100.0) * run.requests as f64 >= 0.999;
    let points = run.percentiles_ms.iter().filter(|point| point.0 < 100.0 && known(point.0));
    let points = points.filter(|point| point.1 > 0.0).copied().collect();
    Series { name: one.name.clone(), series: at, points }
}

/// Returns charts of the processor time of watched servers and of the client.
fn processor(all: &[LoadedReport], theme: Theme) -> Vec<Chart> {
    let bars = |of: fn(&RunStats) -> Option<f64>| -> Vec<Bar> {
        let bar = |(at, one): (usize, &LoadedReport)| {
            let value = of(one.best())?;
            Some(Bar { name: one.name.clone(), series: at, value, spread: None })
        };
        all.iter().enumerate().filter_map(bar).collect()
    };
    let label = "processor time a request";
    let costs = [
        ("Cost for the server", bars(|run| run.server_cpu_us_per_op)),
        ("Cost for the client", bars(|run| Some(run.client_cpu_us_per_op))),
    ];
    let known = costs.into_iter().filter(|(_, bars)| !bars.is_empty());
    known
        .map(|(title, bars)| Chart::bars(theme, title, AxisUnit::Microseconds, label, &bars))
        .collect()
}

/// Returns the chart of the rate over time.
fn over_time(all: &[LoadedReport], theme: Theme) -> Option<Chart> {
    let line = |(at, one): (usize, &LoadedReport)| {
        let run = one.best();
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let piece = run.seconds / run.batches.len().max(1) as f64;
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let points =
            run.batches.iter().enumerate().map(|(at, batch)| ((at as f64 + 0.5) * piece, batch.0));
        Series { name: one.name.clone(), series: at, points: points.collect() }
    };
    let lines: Vec<Series> =
        all.iter().enumerate().map(line).filter(|line| !line.points.is_empty()).collect();
    let x = Axis { unit: AxisUnit::Count, label: "seconds of the run", is_log: false };
    let y = Axis { unit: AxisUnit::Count, label: "", is_log: false };
    (!lines.is_empty()).then(|| Chart::lines(theme, "Requests a second, over time", x, y, &lines))
}

/// Returns the whole page.
#[must_use]
pub fn html(all: &[LoadedReport]) -> String {
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    let title = match names.as_slice() {
        [one] => format!("roster-lab: {one}"),
        _ => format!("roster-lab: {}", names.join(", ")),
    };
    let mut body = String::new();
    let _ = write!(body, "<h1>{}</h1>", escaped(&title));
    for sentence in sentences(all) {
        let _ = write!(body, "<p class=\"verdict\">{}</p>", escaped(&sentence));
    }
    write_warnings(all, &mut body);
    write_table(all, &mut body);
    body.push_str("<div class=\"charts\">");
    for chart in charts(all, Theme::Page) {
        let _ = write!(body, "<figure>{}</figure>", chart.svg());
    }
    body.push_str("</div>");
    write_probes(all, &mut body);
    write_origins(all, &mut body);
    framed(&title, &body)
}

/// Returns a page with that title and that HTML body.
#[must_use]
pub fn framed(title: &str, body: &str) -> String {
    let (light, dark) = (variables(&chart::LIGHT), variables(&chart::DARK));
    let style = STYLE.replace("/*light*/", &light).replace("/*dark*/", &dark);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>{style}</style>\n\
         </head>\n<body>\n<main>{body}</main>\n</body>\n</html>\n",
        escaped(title)
    )
}

fn variables(colours: &[&str]) -> String {
    colours.iter().enumerate().fold(String::new(), |mut out, (at, colour)| {
        let _ = write!(out, "--s{at}:{colour};");
        out
    })
}

fn write_warnings(all: &[LoadedReport], body: &mut String) {
    let unlike = differing_options(all);
    let differences = unlike.iter().map(|difference| {
        ("These runs have different options", with_code(difference, Some(lab::RUNS_DIFFER.code)))
    });
    let warnings: Vec<(&str, String)> = all
        .iter()
        .flat_map(|one| one.warnings.iter().map(|said| (one.name.as_str(), said.with_code())))
        .chain(differences)
        .collect();
    if warnings.is_empty() {
        return;
    }
    begin_warnings(body);
    for (name, text) in warnings {
        let _ = write!(body, "<li><b>{}</b>: {}</li>", escaped(name), escaped(&text));
    }
    body.push_str("</ul></section>");
}

/// Begins the list of warnings.
pub fn begin_warnings(body: &mut String) {
    body.push_str("<section class=\"warnings\"><h2>Warnings about these figures</h2><ul>");
}

fn write_table(all: &[LoadedReport], body: &mut String) {
    let mut heads = vec![
        "requests/s",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "longest",
        "failed",
        "client CPU",
        "server CPU",
    ];
    if has_startup(all) {
        heads.push("start-up");
    }
    let compares = all.len() > 1;
    if compares {
        heads.extend(["rate, compared", "mean latency, compared"]);
    }
    let mut table = HtmlTable::new(heads);
    for (at, one) in all.iter().enumerate() {
        for run in one.runs() {
            add_row(all, at, run, &mut table);
        }
    }
    body.push_str(&table.html());
    if compares {
        body.push_str(
            "<p class=\"note\">Compared with the first row; 95 % confidence intervals in brackets.</p>",
        );
    }
}

/// Returns whether the reports are of commands, which have a start-up time.
fn has_startup(all: &[LoadedReport]) -> bool {
    all.iter().flat_map(LoadedReport::runs).any(|run| run.startup_ms.is_some())
}

fn add_row(all: &[LoadedReport], at: usize, run: &RunStats, table: &mut HtmlTable<'_>) {
    let one = &all[at];
    let load = match run.offered {
        Some(offered) => format!("{offered:.0}/s offered"),
        None if run.users == 1 => "1 user".to_owned(),
        None => format!("{} users", run.users),
    };
    let name = format!(
        "<i style=\"background:var(--s{})\"></i>{} <small>{load}</small>",
        at % chart::LIGHT.len(),
        escaped(&one.name)
    );
    let latency = run.latency_ms;
    let mut cells = vec![format!("{:.0}", run.rate)];
    cells.extend(
        [latency.p50, latency.p90, latency.p99, latency.p999, latency.max].map(milliseconds),
    );
    let none = || "–".to_owned();
    cells.push(run.failures.to_string());
    cells.push(format!("{:.1} µs", run.client_cpu_us_per_op));
    cells.push(run.server_cpu_us_per_op.map_or_else(none, |server| format!("{server:.1} µs")));
    if has_startup(all) {
        cells.push(run.startup_ms.map_or_else(none, milliseconds));
    }
    if let (Some(first), true) = (all.first(), all.len() > 1) {
        let verdict = (at > 0 && std::ptr::eq(run, one.best())).then(|| compare_pair(first, one));
        let cell = |ratio: Option<stats::RatioInterval>| {
            ratio.map_or(String::new(), |ratio| {
                let sure = if ratio.is_sure() { " class=\"sure\"" } else { "" };
                format!(
                    "<span{sure}>{}</span> <small>[{}, {}]</small>",
                    percent(ratio.value),
                    percent(ratio.low),
                    percent(ratio.high)
                )
            })
        };
        let (rate, latency) = verdict.map_or((None, None), |one| (one.rate, one.latency));
        cells.extend([cell(rate), cell(latency)]);
    }
    table.add_row(&name, &cells);
}

fn write_probes(all: &[LoadedReport], body: &mut String) {
    if all.iter().all(|one| one.probes.is_empty()) {
        return;
    }
    let mut table = HtmlTable::new(vec!["comparison", "ratio", "finding"]);
    for one in all {
        for probe in &one.probes {
            let ratio = probe.ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
            let seen = with_code(&probe.seen, probe.code.as_deref());
            let finding = format!("<span class=\"text\">{}</span>", escaped(&seen));
            table.add_row(&escaped(&one.name), &[escaped(&probe.what), ratio, finding]);
        }
    }
    let _ = write!(body, "<details><summary>Pre-run checks</summary>{}</details>", table.html());
}

fn write_origins(all: &[LoadedReport], body: &mut String) {
    body.push_str("<details><summary>Origin of these figures</summary>");
    for one in all {
        write_origin(&one.name, &one.origin, body);
    }
    body.push_str("</details>");
}

/// Writes the origin of figures.
pub fn write_origin(name: &str, from: &LoadedOrigin, body: &mut String) {
    let host = &from.host;
    let plan = serde_json::to_string_pretty(&from.plan).unwrap_or_default();
    let _ = write!(
        body,
        "<h3>{}</h3><p>roster-lab {} on {}: {}, {} × {}; begun <time>{}</time>.</p><pre>{}</pre>",
        escaped(name),
        escaped(&from.version),
        escaped(&host.name),
        escaped(&host.kernel),
        host.processors,
        escaped(&host.processor),
        moment(from.time),
        escaped(&plan)
    );
}

/// Formats a time: `2026-11-22 13:27:10 UTC`.
fn moment(time: u64) -> String {
    let since = std::time::Duration::from_secs(time.min(253_402_300_799));
    let stamp = crate::krb5::message::KerberosTime::from_time(std::time::UNIX_EPOCH + since).text;
    let part = |from: usize, to: usize| String::from_utf8_lossy(&stamp[from..to]).into_owned();
    format!(
        "{}-{}-{} {}:{}:{} UTC",
        part(0, 4),
        part(4, 6),
        part(6, 8),
        part(8, 10),
        part(10, 12),
        part(12, 14)
    )
}

const STYLE: &str = "
:root{--back:#fff;--card:#f6f8fa;--text:#1b1f24;--muted:#57606a;--grid:#d8dee4;--warn:#9a6700;--warnback:#fff8e5;/*light*/}
@media (prefers-color-scheme:dark){:root{--back:#0d1117;--card:#161b22;--text:#e6edf3;--muted:#9aa4af;--grid:#30363d;--warn:#e3b341;--warnback:#272115;/*dark*/}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);font:15px/1.5 system-ui,-apple-system,'Segoe UI','DejaVu Sans',Roboto,sans-serif}
main{max-width:1560px;margin:0 auto;padding:24px}
h1{font-size:22px;margin:0 0 12px;overflow-wrap:anywhere}
h2{font-size:16px;margin:0 0 6px}
h3{font-size:15px;margin:16px 0 4px}
.verdict{font-size:17px;max-width:75ch;margin:0 0 12px}
.warnings{background:var(--warnback);border-left:4px solid var(--warn);border-radius:4px;padding:12px 16px;margin:16px 0}
.warnings ul{margin:0;padding-left:20px}
.warnings li{max-width:110ch;margin:4px 0}
table{border-collapse:collapse;margin:16px 0 4px;font-variant-numeric:tabular-nums}
th,td{padding:5px 6px;text-align:right;vertical-align:baseline;border-bottom:1px solid var(--grid)}
td{white-space:nowrap}
thead th{color:var(--muted);font-weight:500;font-size:13px;vertical-align:bottom}
tbody th{text-align:left;font-weight:600;min-width:9em;overflow-wrap:anywhere}
.text{display:block;text-align:left;white-space:normal}
tbody i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:8px}
small{color:var(--muted);font-weight:400}
td small{display:block}
.sure{font-weight:600}
.note{color:var(--muted);font-size:13px;margin:0}
.charts{display:grid;align-items:start;grid-template-columns:repeat(auto-fit,minmax(min(100%,620px),1fr));gap:20px;margin:24px 0}
figure{margin:0;background:var(--card);border-radius:8px;padding:16px}
svg{display:block;width:100%;height:auto}
details{margin:12px 0}
summary{cursor:pointer;font-weight:600}
pre{background:var(--card);border-radius:8px;padding:12px;overflow-x:auto;font-size:13px}
@media (max-width:1199px){
table,tbody{display:block}
thead{display:none}
tr{display:grid;grid-template-columns:repeat(auto-fill,minmax(130px,1fr));gap:6px 16px;padding:10px 0;border-bottom:1px solid var(--grid)}
tbody th{grid-column:1/-1}
th,td{border:0;padding:0;text-align:left;white-space:normal}
td::before{content:attr(data-head);display:block;color:var(--muted);font-size:13px}
td:has(.text){grid-column:1/-1}
td:empty{display:none}
}
";

/// Draws the charts below each other, as PNG.
pub fn png(all: &[LoadedReport]) -> Result<Vec<u8>> {
    let charts = charts(all, Theme::Light);
    #[expect(clippy::cast_possible_truncation, reason = "pixels")]
    let heights: Vec<f32> = charts.iter().map(|chart| chart.height() as f32 + GAP).collect();
    let (width, height) = (WIDTH as f32 + 2.0 * GAP, heights.iter().sum::<f32>() + GAP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"{}\"><rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>",
        chart::FONTS
    );
    let mut y = GAP;
    for (chart, height) in charts.iter().zip(&heights) {
        let _ = write!(svg, "<g transform=\"translate({GAP} {y})\">{}</g>", chart.body());
        y += height;
    }
    svg.push_str("</svg>");
    let mut fonts = fontdb::Database::new();
    FONT_DIRS.iter().filter(|folder| Path::new(folder).exists()).for_each(|folder| {
        fonts.load_fonts_dir(folder);
    });
    let any = fonts.faces().find_map(|face| face.families.first()).map(|family| family.0.clone());
    let any = any.coded(&lab::FONTS_MISSING, "--png: this host has no fonts")?;
    fonts.set_sans_serif_family(if fonts.faces().any(|face| is_of(face, "DejaVu Sans")) {
        "DejaVu Sans".to_owned()
    } else {
        any
    });
    let options = usvg::Options { fontdb: Arc::new(fonts), ..usvg::Options::default() };
    let failed = "--png: the picture cannot be drawn";
    let tree = usvg::Tree::from_str(&svg, &options).coded(&lab::PICTURE_FAILED, failed)?;
    // A chart is a few hundred pixels high, so the numbers do not overflow.
    let (across, down) = ((width * SCALE) as u32, (height * SCALE) as u32);
    let pixels = tiny_skia::Pixmap::new(across, down);
    let mut pixels = pixels.coded(&lab::PICTURE_FAILED, "--png: the picture is too large")?;
    let scale = tiny_skia::Transform::from_scale(SCALE, SCALE);
    resvg::render(&tree, scale, &mut pixels.as_mut());
    let png = pixels.encode_png().coded(&lab::PICTURE_FAILED, failed)?;
    ensure_coded!(!png.is_empty(), PICTURE_FAILED, "--png: the picture is empty");
    Ok(png)
}

fn is_of(face: &fontdb::FaceInfo, family: &str) -> bool {
    face.families.iter().any(|one| one.0 == family)
}
