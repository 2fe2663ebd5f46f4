//! The effective configuration: every key with its value and where that is from.

use std::fmt;

/// Where a value is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This line of the file.
    Line(usize),
    /// The default.
    Default,
    /// Other keys, in these words.
    Follows(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Default => f.write_str("default"),
            Self::Follows(how) => f.write_str(how),
        }
    }
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Path of its table, such as `domain.corp`.
    pub table: String,
    /// Its name.
    pub key: &'static str,
    /// Its value as it would be written; none where it is not set.
    pub value: Option<String>,
    /// Where the value is from.
    pub origin: Origin,
}

/// A file that says the same with every key written down; what is not set is a comment.
pub fn explain(settings: &[Setting]) -> String {
    let mut text = String::new();
    let mut tables: Vec<&str> = Vec::new();
    for setting in settings {
        if !tables.contains(&&*setting.table) {
            tables.push(&setting.table);
        }
    }
    for table in tables {
        let here = || settings.iter().filter(|setting| setting.table == table);
        let written: Vec<(String, String)> = here()
            .map(|Setting { key, value, origin, .. }| match (value, origin) {
                (Some(value), origin) => (format!("{key} = {value}"), origin.to_string()),
                (None, Origin::Follows(how)) => (format!("# {key}"), (*how).to_owned()),
                (None, _) => (format!("# {key}"), "not set".to_owned()),
            })
            .collect();
        // Long values do not push all remarks to the right.
        let width = written.iter().map(|(line, _)| line.chars().count()).filter(|&len| len <= 44);
        let width = width.max().unwrap_or_default();
        text += &format!("{}[{table}]\n", if text.is_empty() { "" } else { "\n" });
        for (line, remark) in written {
            text += &format!("{line:<width$}  # {remark}\n");
        }
    }
    text
}
