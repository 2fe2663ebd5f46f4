// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts as SVG: bars, boxes and lines, in the colours of a page or in fixed ones. `html` selects the charts.

use crate::report::text::milliseconds;
use std::fmt::Write;

/// Width of every chart.
pub const WIDTH: f64 = 720.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;
const RIGHT: f64 = 24.0;
/// Width of names, and of numbers.
const NAMES: f64 = 150.0;
const NUMBERS: f64 = 74.0;
const ROW: f64 = 34.0;
const LINES_HEIGHT: f64 = 300.0;
const LEGEND_ROW: f64 = 20.0;
/// Approximate width of a character.
const CHARACTER: f64 = 6.7;
const NAME_CHARACTERS: usize = 20;
/// Number of colours. More series reuse them.
const SERIES: usize = 6;

/// Source of colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Variables of the page, which follow the light or dark mode.
    Page,
    /// Fixed colours on white.
    Light,
}

/// Colours of the light mode, distinguishable with color vision deficiency.
pub const LIGHT: [&str; SERIES] =
    ["#1d63d8", "#c2570c", "#0b7a55", "#b4237a", "#6d3fd1", "#0a7490"];
/// Colours of the dark mode.
pub const DARK: [&str; SERIES] = ["#6ea8fe", "#f5a458", "#4fd1a1", "#f285c1", "#b79cff", "#4cc9e0"];

#[derive(Clone, Copy)]
enum Ink {
    Text,
    Muted,
    Grid,
    Series(usize),
}

impl Theme {
    fn ink(self, ink: Ink) -> String {
        match (self, ink) {
            (Self::Page, Ink::Text) => "var(--text)".to_owned(),
            (Self::Page, Ink::Muted) => "var(--muted)".to_owned(),
            (Self::Page, Ink::Grid) => "var(--grid)".to_owned(),
            (Self::Page, Ink::Series(at)) => format!("var(--s{})", at % SERIES),
            (Self::Light, Ink::Text) => "#1b1f24".to_owned(),
            (Self::Light, Ink::Muted) => "#57606a".to_owned(),
            (Self::Light, Ink::Grid) => "#d8dee4".to_owned(),
            (Self::Light, Ink::Series(at)) => LIGHT[at % SERIES].to_owned(),
        }
    }
}

/// Unit of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisUnit {
    /// A time, in milliseconds.
    Milliseconds,
    /// A time, in microseconds.
    Microseconds,
    /// A number.
    Count,
    /// A percentile, with space for the high ones.
    Percentile,
}

impl AxisUnit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Milliseconds => milliseconds_short(value),
            Self::Microseconds => milliseconds_short(value / 1e3),
            Self::Percentile => format!("{value} %"),
            Self::Count if value >= 1e6 => format!("{}M", trimmed(value / 1e6)),
            Self::Count if value >= 1e4 => format!("{}k", trimmed(value / 1e3)),
            Self::Count => trimmed(value),
        }
    }

    /// Formats a value with more digits, for the label of a bar.
    fn show_exactly(self, value: f64) -> String {
        match self {
            Self::Milliseconds => milliseconds(value),
            Self::Microseconds => milliseconds(value / 1e3),
            Self::Count if value < 100.0 => format!("{value:.1}"),
            Self::Count => grouped(value),
            Self::Percentile => self.show(value),
        }
    }
}

/// Formats a number in groups of digits: `12 345`.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let first = digits.len() % 3;
    let mut out = digits[..first].to_owned();
    for at in (first..digits.len()).step_by(3) {
        if !out.is_empty() {
            out.push('\u{202f}');
        }
        out.push_str(&digits[at..at + 3]);
    }
    out
}

fn milliseconds_short(value: f64) -> String {
    match value {
        below if below <= 0.0 => "0".to_owned(),
        below if below < 1.0 => format!("{} µs", trimmed(below * 1e3)),
        below if below < 1000.0 => format!("{} ms", trimmed(below)),
        _ => format!("{} s", trimmed(value / 1e3)),
    }
}

/// Formats a number without trailing zeros.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Mapping from values to positions.
#[derive(Clone, Copy, Debug)]
struct AxisScale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    is_log: bool,
}

impl AxisScale {
    /// Creates a linear scale from 0 to a round number above all values.
    fn linear(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 1.0 };
        let step = step(most);
        Self { low: 0.0, high: (most / step).ceil() * step, from, to, is_log: false }
    }

    /// Creates a logarithmic scale.
    fn log(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let positive = values.filter(|value| *value > 0.0 && value.is_finite());
        let (least, most) = positive.fold((f64::INFINITY, 0.0_f64), |(least, most), value| {
            (least.min(value), most.max(value))
        });
        let (least, most) = if least.is_finite() { (least, most) } else { (0.1, 1.0) };
        // The margin keeps points off the edge.
        Self { low: least / 1.25, high: most * 1.25, from, to, is_log: true }
    }

    fn at(self, value: f64) -> f64 {
        let share = if self.is_log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn ticks(self) -> Vec<f64> {
        if !self.is_log {
            let step = step(self.high);
            let count = (self.high / step).round() as u32;
            return (0..=count).map(|at| f64::from(at) * step).collect();
        }
        let decades = (self.high / self.low).log10();
        let steps: &[f64] = if decades > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let all = (first..=last)
            .flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        all.filter(|value| (self.low..=self.high).contains(value)).collect()
    }
}

/// Returns a round step for about five ticks.
fn step(most: f64) -> f64 {
    let rough = most / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let fits = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|times| times * power >= rough);
    fits.unwrap_or(10.0) * power
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    height: f64,
    title: String,
    body: String,
    theme: Theme,
}

impl Chart {
    fn new(theme: Theme, height: f64, title: &str) -> Self {
        let mut chart = Self { height, title: title.to_owned(), body: String::new(), theme };
        chart.text(0.0, 16.0, "start", Ink::Text, 15.0, title);
        chart
    }

    /// Returns the height.
    #[must_use]
    pub fn height(&self) -> f64 {
        self.height
    }

    /// Returns the content without the SVG element.
    #[must_use]
    pub fn body(&self) -> &str {
        &self.body
    }

    /// Returns the SVG element for a page.
    #[must_use]
    pub fn svg(&self) -> String {
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{}\" font-family=\"{FONTS}\">{}</svg>",
            self.height,
            escaped(&self.title),
            self.body
        )
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, ink: Ink, size: f64, text: &str) {
        let (fill, weight) = (self.theme.ink(ink), if size > 14.0 { 600 } else { 400 });
        let _ = write!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" \
             font-weight=\"{weight}\" style=\"fill:{fill}\">{}</text>",
            escaped(text)
        );
    }

    /// Draws a name, shortened to the available width, with the whole name as a tooltip.
    fn name(&mut self, x: f64, y: f64, anchor: &str, ink: Ink, name: &str) {
        if name.chars().count() <= NAME_CHARACTERS {
            return self.text(x, y, anchor, ink, 12.0, name);
        }
        let short: String = name.chars().take(NAME_CHARACTERS - 1).chain(['…']).collect();
        let _ = write!(self.body, "<g><title>{}</title>", escaped(name));
        self.text(x, y, anchor, ink, 12.0, &short);
        self.body.push_str("</g>");
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), ink: Ink, width: f64) {
        let ((x1, y1), (x2, y2), stroke) = (from, to, self.theme.ink(ink));
        let _ = write!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke-width=\"{width}\" \
             style=\"stroke:{stroke}\"/>"
        );
    }

    fn rectangle(&mut self, at: (f64, f64), size: (f64, f64), ink: Ink, opacity: f64, told: &str) {
        let ((x, y), (width, height), fill) = (at, size, self.theme.ink(ink));
        let _ = write!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" rx=\"2\" \
             style=\"fill:{fill};fill-opacity:{opacity}\"><title>{}</title></rect>",
            width.max(1.0),
            escaped(told)
        );
    }

    fn dot(&mut self, at: (f64, f64), radius: f64, ink: Ink, told: &str) {
        let fill = self.theme.ink(ink);
        let _ = write!(
            self.body,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\" style=\"fill:{fill}\"><title>{}</title></circle>",
            at.0,
            at.1,
            escaped(told)
        );
    }

    /// Draws the grid and the numbers of the lower axis.
    fn axis_below(&mut self, scale: AxisScale, unit: AxisUnit, label: &str, bottom: f64) {
        for tick in scale.ticks() {
            let x = scale.at(tick);
            self.line((x, TOP - 6.0), (x, bottom), Ink::Grid, 1.0);
            self.text(x, bottom + 16.0, "middle", Ink::Muted, 11.0, &unit.show(tick));
        }
        let middle = f64::midpoint(scale.from, scale.to);
        self.text(middle, bottom + 34.0, "middle", Ink::Muted, 11.0, label);
    }

    /// Draws a bar for each row, with its error.
    #[must_use]
    pub fn bars(theme: Theme, title: &str, unit: AxisUnit, label: &str, rows: &[Bar]) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let bottom = TOP + ROW * rows.len() as f64;
        let mut chart = Self::new(theme, bottom + BOTTOM, title);
        let values = rows.iter().map(|row| row.value + row.spread.unwrap_or_default());
        let scale = AxisScale::linear(values, NAMES, WIDTH - RIGHT - 60.0);
        chart.axis_below(scale, unit, label, bottom);
        for (at, row) in rows.iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "a few")]
            let y = TOP + ROW * (at as f64 + 0.5);
            let (start, end) = (scale.at(0.0), scale.at(row.value));
            let told = format!("{}: {}", row.name, unit.show_exactly(row.value));
            chart.name(NAMES - 10.0, y + 4.0, "end", Ink::Text, &row.name);
            chart.rectangle(
                (start, y - 9.0),
                (end - start, 18.0),
                Ink::Series(row.series),
                0.85,
                &told,
            );
            let mut behind = end;
            if let Some(spread) = row.spread {
                let ends = [row.value - spread, row.value + spread].map(|value| scale.at(value));
                chart.line((ends[0], y), (ends[1], y), Ink::Text, 1.5);
                for x in ends {
                    chart.line((x, y - 4.0), (x, y + 4.0), Ink::Text, 1.5);
                }
                behind = behind.max(ends[1]);
            }
            chart.text(
                behind + 8.0,
                y + 4.0,
                "start",
                Ink::Text,
                12.0,
                &unit.show_exactly(row.value),
            );
        }
        chart
    }

    /// Draws a box for each row of percentiles, from the 25th to the 75th with the median. Whiskers reach from the 1st
    /// to the 99th percentile, and a dot marks the maximum. The axis covers all of `among`, so that several charts have the same.
    #[must_use]
    pub fn boxes(theme: Theme, title: &str, rows: &[Series], among: &[Series]) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let bottom = TOP + ROW * rows.len() as f64;
        let mut chart = Self::new(theme, bottom + BOTTOM, title);
        let values = among.iter().flat_map(|row| {
            row.points.iter().filter(|(percentile, _)| *percentile >= 1.0).map(|(_, value)| *value)
        });
        let scale = AxisScale::log(values, NAMES, WIDTH - RIGHT);
        let unit = AxisUnit::Milliseconds;
        let label = "whiskers from the 1st to the 99th percentile, box from the 25th to the 75th, dot: the longest";
        chart.axis_below(scale, unit, label, bottom);
        for (at, Series { name, series, points: curve }) in rows.iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "a few")]
            let y = TOP + ROW * (at as f64 + 0.5);
            let ink = Ink::Series(*series);
            chart.name(NAMES - 10.0, y + 4.0, "end", Ink::Text, name);
            let value = |percentile: f64| {
                let found = curve.iter().find(|(at, _)| (at - percentile).abs() < 1e-9);
                found.map(|(_, value)| *value)
            };
            let points = [1.0, 25.0, 50.0, 75.0, 99.0, 100.0].map(value);
            let [Some(p1), Some(p25), Some(p50), Some(p75), Some(p99), Some(most)] = points else {
                continue;
            };
            let told = format!(
                "{name}: p1 {}, p25 {}, median {}, p75 {}, p99 {}, longest {}",
                unit.show_exactly(p1),
                unit.show_exactly(p25),
                unit.show_exactly(p50),
                unit.show_exactly(p75),
                unit.show_exactly(p99),
                unit.show_exactly(most)
            );
            chart.line((scale.at(p1), y), (scale.at(p99), y), ink, 1.5);
            for end in [p1, p99] {
                chart.line((scale.at(end), y - 5.0), (scale.at(end), y + 5.0), ink, 1.5);
            }
            let (from, to) = (scale.at(p25), scale.at(p75));
            chart.rectangle((from, y - 9.0), (to - from, 18.0), ink, 0.45, &told);
            chart.line((scale.at(p50), y - 9.0), (scale.at(p50), y + 9.0), Ink::Text, 2.5);
            chart.dot((scale.at(most), y), 3.0, ink, &told);
        }
        chart
    }

    /// Draws a line for each series.
    #[must_use]
    pub fn lines(theme: Theme, title: &str, x: Axis, y: Axis, series: &[Series]) -> Self {
        let legend = legend(series);
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let top = TOP + LEGEND_ROW * legend.last().map_or(0, |place| place.0 + 1) as f64;
        let bottom = top + LINES_HEIGHT - BOTTOM;
        let mut chart = Self::new(theme, bottom + BOTTOM, title);
        for ((row, at), line) in legend.iter().zip(series) {
            #[expect(clippy::cast_precision_loss, reason = "a few")]
            let here = TOP + 4.0 + LEGEND_ROW * *row as f64;
            chart.rectangle((*at, here - 9.0), (12.0, 10.0), Ink::Series(line.series), 1.0, "");
            chart.name(at + 18.0, here, "start", Ink::Text, &line.name);
        }
        let points = || series.iter().flat_map(|line| line.points.iter());
        let across = x.scale(points().map(|point| point.0), NUMBERS, WIDTH - RIGHT);
        let upward = y.scale(points().map(|point| point.1), bottom, top);
        for tick in upward.ticks() {
            let at = upward.at(tick);
            chart.line((NUMBERS, at), (WIDTH - RIGHT, at), Ink::Grid, 1.0);
            chart.text(NUMBERS - 8.0, at + 4.0, "end", Ink::Muted, 11.0, &y.unit.show(tick));
        }
        chart.axis_of_lines(x, across, bottom);
        for line in series {
            let places: Vec<(f64, f64)> = line
                .points
                .iter()
                .map(|point| (across.at(x.transform(point.0)), upward.at(point.1)))
                .collect();
            let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let stroke = theme.ink(Ink::Series(line.series));
            let _ = write!(
                chart.body,
                "<polyline points=\"{}\" fill=\"none\" stroke-width=\"2\" stroke-linejoin=\"round\" \
                 style=\"stroke:{stroke}\"/>",
                path.join(" ")
            );
            for (place, point) in places.iter().zip(&line.points) {
                let told = format!(
                    "{}: {} at {}",
                    line.name,
                    y.unit.show_exactly(point.1),
                    x.unit.show(point.0)
                );
                chart.dot(*place, 2.5, Ink::Series(line.series), &told);
            }
        }
        chart
    }

    fn axis_of_lines(&mut self, x: Axis, across: AxisScale, bottom: f64) {
        let ticks = match x.unit {
            AxisUnit::Percentile => {
                let shown = PERCENTILES_SHOWN.into_iter();
                shown.filter(|tick| x.transform(*tick) <= across.high * 1.001).collect()
            }
            _ => across.ticks(),
        };
        for tick in ticks {
            let at = across.at(x.transform(tick));
            self.line((at, bottom), (at, bottom + 4.0), Ink::Muted, 1.0);
            self.text(at, bottom + 17.0, "middle", Ink::Muted, 11.0, &x.unit.show(tick));
        }
        let middle = f64::midpoint(across.from, across.to);
        self.text(middle, bottom + 35.0, "middle", Ink::Muted, 11.0, x.label);
    }
}

const PERCENTILES_SHOWN: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999];
/// Fonts of common systems.
pub const FONTS: &str = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Roboto, sans-serif";

/// A bar of a chart.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Name.
    pub name: String,
    /// Number of its colour.
    pub series: usize,
    /// Value of the bar.
    pub value: f64,
    /// Error of the value.
    pub spread: Option<f64>,
}

/// A line of a chart.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name.
    pub name: String,
    /// Number of its colour.
    pub series: usize,
    /// Points from left to right.
    pub points: Vec<(f64, f64)>,
}

/// An axis of a chart of lines.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Unit of its numbers.
    pub unit: AxisUnit,
    /// Label.
    pub label: &'static str,
    /// Whether the axis is logarithmic.
    pub is_log: bool,
}

impl Axis {
    /// Converts a percentile to the number of requests of which one is above it.
    fn transform(self, value: f64) -> f64 {
        // The right end is one request in a million.
        if self.unit == AxisUnit::Percentile {
            (1.0 / (1.0 - value / 100.0)).min(1e6)
        } else {
            value
        }
    }

    fn scale(self, values: impl Iterator<Item = f64>, from: f64, to: f64) -> AxisScale {
        match self.unit {
            // The axis ends at the next power of ten.
            AxisUnit::Percentile => {
                let most = values.map(|value| self.transform(value)).fold(10.0, f64::max);
                let high = 10_f64.powf((most.log10() - 0.001).ceil());
                AxisScale { low: 1.0, high, from, to, is_log: true }
            }
            _ if self.is_log => AxisScale::log(values, from, to),
            _ => AxisScale::linear(values, from, to),
        }
    }
}

/// Returns row and position of each name of a legend.
fn legend(series: &[Series]) -> Vec<(usize, f64)> {
    let (mut row, mut at) = (0, NUMBERS);
    let place = |line: &Series| {
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let width = 40.0 + CHARACTER * line.name.chars().count().min(NAME_CHARACTERS) as f64;
        if at > NUMBERS && at + width > WIDTH - RIGHT {
            (row, at) = (row + 1, NUMBERS);
        }
        let here = (row, at);
        at += width;
        here
    };
    series.iter().map(place).collect()
}

/// Escapes text for HTML and SVG, attributes included.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML does not permit control characters.
            control if control.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_scale() {
        let linear = AxisScale::linear([3.0, 87_300.0].into_iter(), 0.0, 100.0);
        assert_eq!(linear.ticks(), [0.0, 20_000.0, 40_000.0, 60_000.0, 80_000.0, 100_000.0]);
        let log = AxisScale::log([0.08, 7.0].into_iter(), 0.0, 100.0);
        assert_eq!(log.ticks(), [0.1, 0.2, 0.5, 1.0, 2.0, 5.0]);
        let wide = AxisScale::log([0.011, 900.0].into_iter(), 0.0, 100.0);
        assert_eq!(wide.ticks(), [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]);
        for scale in [linear, log, wide, AxisScale::linear(std::iter::empty(), 0.0, 1.0)] {
            for tick in scale.ticks() {
                assert!((0.0..=100.0).contains(&scale.at(tick)), "{scale:?} {tick}");
            }
        }
    }

    #[test]
    fn numbers_are_shown_in_the_unit_that_fits() {
        let show = |unit: AxisUnit, value: f64| unit.show(value);
        assert_eq!(show(AxisUnit::Milliseconds, 0.05), "50 µs");
        assert_eq!(show(AxisUnit::Milliseconds, 2.5), "2.5 ms");
        assert_eq!(show(AxisUnit::Milliseconds, 2000.0), "2 s");
        assert_eq!(show(AxisUnit::Microseconds, 20.0), "20 µs");
        assert_eq!(show(AxisUnit::Count, 120_000.0), "120k");
        assert_eq!(show(AxisUnit::Percentile, 99.9), "99.9 %");
        assert_eq!(grouped(1_234_567.0), "1\u{202f}234\u{202f}567");
        assert_eq!(grouped(12.0), "12");
    }

    #[test]
    fn names_are_text_and_never_markup() {
        let rows = [Bar { name: "<b>&\"x\u{1}".to_owned(), series: 9, value: 1.0, spread: None }];
        let svg = Chart::bars(Theme::Page, "t", AxisUnit::Count, "l", &rows).svg();
        assert!(svg.contains("&lt;b&gt;&amp;&quot;x\u{fffd}") && !svg.contains("<b>"), "{svg}");
    }
}
