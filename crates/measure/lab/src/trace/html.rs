// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of a trace as an HTML page: one chart for stages without a provider, and one for each domain with its
//! provider. `compare::html` has the frame of the page.

use super::{RequestStage, StageRow, TraceReport};
use crate::compare::chart::{Chart, Series, Theme, escaped};
use crate::compare::html::{begin_warnings, framed, write_origin};
use crate::compare::html_table::HtmlTable;
use crate::report::text::milliseconds;
use std::fmt::Write;

/// Returns the rows of each chart by title, in the order of stages.
fn charts(hops: &[StageRow]) -> Vec<(String, Vec<&StageRow>)> {
    let mut charts: Vec<(String, Vec<&StageRow>)> = Vec::new();
    for row in hops {
        let title = row.provider.as_deref().unwrap_or("All requests");
        match charts.iter_mut().find(|(of, _)| of == title) {
            Some((_, rows)) => rows.push(row),
            None => charts.push((title.to_owned(), vec![row])),
        }
    }
    charts
}

fn line((at, row): (usize, &&StageRow)) -> Series {
    Series { name: row.hop.to_owned(), series: at, points: row.percentiles_ms.clone() }
}

/// Returns the whole page.
#[must_use]
pub fn html(report: &TraceReport) -> String {
    let title = format!("roster-lab trace: {}", report.of);
    let mut body = String::new();
    let _ = write!(body, "<h1>{}</h1>", escaped(&title));
    for line in report.summary() {
        let _ = write!(body, "<p class=\"verdict\">{}</p>", escaped(&line));
    }
    if !report.warnings.is_empty() {
        begin_warnings(&mut body);
        for warning in &report.warnings {
            let _ = write!(body, "<li>{}</li>", escaped(&warning.with_code()));
        }
        body.push_str("</ul></section>");
    }
    body.push_str("<div class=\"charts\">");
    let all: Vec<&StageRow> = report.hops.iter().collect();
    let among: Vec<Series> = all.iter().enumerate().map(line).collect();
    for (title, rows) in charts(&report.hops) {
        let lines: Vec<Series> = rows.iter().enumerate().map(line).collect();
        let chart = Chart::boxes(Theme::Page, &title, &lines, &among);
        let _ = write!(body, "<figure>{}</figure>", chart.svg());
    }
    body.push_str("</div>");
    write_table(&report.hops, &mut body);
    body.push_str("<h2>Stages</h2><ul>");
    for RequestStage { name, meaning } in &report.meanings {
        let _ = write!(body, "<li><b>{}</b>: {}</li>", escaped(name), escaped(meaning));
    }
    body.push_str("</ul><details><summary>Origin of these figures</summary>");
    write_origin(report.of, &report.origin, &mut body);
    body.push_str("</details>");
    framed(&title, &body)
}

fn write_table(hops: &[StageRow], body: &mut String) {
    let percentiles = [25.0, 50.0, 75.0, 90.0, 99.0, 99.9, 100.0];
    let mut table = HtmlTable::new(vec![
        "provider", "count", "p25", "median", "p75", "p90", "p99", "p99.9", "longest",
    ]);
    for row in hops {
        let mut cells =
            vec![escaped(row.provider.as_deref().unwrap_or("–")), row.count.to_string()];
        cells.extend(percentiles.map(|percentile| milliseconds(row.percentile(percentile))));
        table.add_row(&escaped(row.hop), &cells);
    }
    body.push_str(&table.html());
}
