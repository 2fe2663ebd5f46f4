//! What is told of a running server.

use crate::protocol::Table;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// Of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfTable {
    /// Users or groups in its map; nothing where none is handed out.
    pub entries: Option<usize>,
    /// Bytes of the map.
    pub bytes: u64,
    /// Maps made since the start.
    pub made: u64,
    /// How long the last one took.
    pub took: Duration,
    /// Answers of other services that are in it.
    pub added: usize,
    /// Maps before it that somebody may still read.
    pub before: usize,
    /// Why there is none, or not the newest.
    pub problem: Option<String>,
}

/// Of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// By table.
    pub passwd: OfTable,
    /// By table.
    pub group: OfTable,
    /// The folder of maps, where it shares its file system with other files.
    pub shared: Option<PathBuf>,
    /// The place where a read-only mount of that folder is missing.
    pub unsealed: Option<PathBuf>,
    /// Descriptors of maps that were handed out.
    pub handed_out: u64,
    /// Questions answered over the socket.
    pub answered: u64,
    /// Questions put to other name services.
    pub helped: u64,
    /// Connections that were closed without an answer: too many, too slow, or nonsense.
    pub dropped: u64,
    /// Connections now.
    pub connections: usize,
}

impl Figures {
    /// Those of a table.
    pub fn table(&mut self, table: Table) -> &mut OfTable {
        match table {
            Table::Passwd => &mut self.passwd,
            Table::Group => &mut self.group,
        }
    }

    /// For people, and for programs that read lines.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, table) in [("passwd", &self.passwd), ("group", &self.group)] {
            let _ = match table.entries {
                Some(entries) => writeln!(
                    text,
                    "{name}: {entries} entries in a map of {} bytes, made in {} ms; {} made since the \
                     start, {} before it still held; {} answers of other services in it",
                    table.bytes,
                    table.took.as_millis(),
                    table.made,
                    table.before,
                    table.added,
                ),
                None => writeln!(text, "{name}: no map; programs ask the name services themselves"),
            };
            if let Some(problem) = &table.problem {
                let _ = writeln!(text, "{name}: {problem}");
            }
        }
        if let Some(folder) = &self.shared {
            let _ = writeln!(
                text,
                "maps: {} has no file system of its own: who holds old maps can fill the one that it is in",
                folder.display()
            );
        }
        if let Some(place) = &self.unsealed {
            let _ = writeln!(
                text,
                "descriptors: root of a container with this socket can write to maps: {} is not a read-only \
                 mount of their folder",
                place.display()
            );
        }
        let Self { handed_out, answered, helped, dropped, connections, .. } = self;
        let _ = writeln!(
            text,
            "socket: {connections} connections; {handed_out} maps handed out, {answered} questions \
             answered, {helped} of them by other name services; {dropped} connections dropped"
        );
        text
    }
}
