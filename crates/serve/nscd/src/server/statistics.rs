// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of a running server. `admin_requests` sends them.

use crate::protocol::Table;
use roster_messages::table::host;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Number of users or groups in the map; `None` without a map.
    pub entries: Option<usize>,
    /// Length of the map in bytes.
    pub bytes: u64,
    /// Number of maps since the start.
    pub made: u64,
    pub build_time: Duration,
    /// Number of added replies from other services.
    pub added: usize,
    /// Number of retired maps that clients may still read.
    pub retired: usize,
    /// Reason that the map is missing or outdated.
    pub problem: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    pub passwd: TableStats,
    pub group: TableStats,
    /// The map directory, if it shares its file system with other files.
    pub shared_filesystem: Option<PathBuf>,
    /// Mount point of the missing read-only mount of that directory.
    pub missing_read_only_mount: Option<PathBuf>,
    /// Number of map descriptors sent.
    pub maps_sent: u64,
    /// Number of replies over the socket.
    pub replies: u64,
    /// Number of queries to helpers.
    pub helper_queries: u64,
    /// Number of connections closed without a reply: over the limit, too slow, or invalid.
    pub dropped: u64,
    /// Number of open connections.
    pub connections: usize,
}

impl Statistics {
    pub fn table(&mut self, table: Table) -> &mut TableStats {
        match table {
            Table::Passwd => &mut self.passwd,
            Table::Group => &mut self.group,
        }
    }

    /// Formats the statistics for people and for line-based programs. A line about a fault ends with its code.
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
                    table.build_time.as_millis(),
                    table.made,
                    table.retired,
                    table.added,
                ),
                None => writeln!(
                    text,
                    "{name}: no map; programs ask their name services [{}]",
                    host::NSCD_MAP_MISSING
                ),
            };
            if let Some(problem) = &table.problem {
                let _ = writeln!(text, "{name}: {problem} [{}]", host::NSCD_MAP_MISSING);
            }
        }
        if let Some(folder) = &self.shared_filesystem {
            let _ = writeln!(
                text,
                "maps: {} is not a dedicated file system; clients holding old maps can fill it [{}]",
                folder.display(),
                host::NSCD_MAPS_SHARE_FILE_SYSTEM
            );
        }
        if let Some(place) = &self.missing_read_only_mount {
            let _ = writeln!(
                text,
                "descriptors: root of a container with this socket can write to maps: {} is not a read-only \
                 mount of their directory [{}]",
                place.display(),
                host::NSCD_MAPS_WRITABLE
            );
        }
        let Self {
            maps_sent: handed_out,
            replies: answered,
            helper_queries: helped,
            dropped,
            connections,
            ..
        } = self;
        let _ = writeln!(
            text,
            "socket: {connections} connections; {handed_out} maps handed out, {answered} questions \
             answered, {helped} of them by other name services; {dropped} connections dropped"
        );
        text
    }
}
