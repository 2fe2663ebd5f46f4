// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of each table: its maps, and the outcome of the last build. `map_rebuild` changes it.

use super::map_files::TableMaps;
use crate::protocol::Table;

/// Outcome of the last build of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BuildOutcome {
    /// No build has finished yet.
    #[default]
    Pending,
    /// The table has a map.
    Made,
    /// The build failed, and another attempt may succeed.
    Failed,
    /// The map is too large for clients until its sources shrink.
    TooLarge,
}

impl BuildOutcome {
    /// Returns whether the last build failed.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::TooLarge)
    }
}

#[derive(Default)]
pub struct TableState {
    pub maps: TableMaps,
    pub outcome: BuildOutcome,
    /// Number of finished builds, including failed ones.
    pub attempts: u64,
    /// The problem that was last logged.
    pub logged_problem: Option<String>,
}

#[derive(Default)]
pub struct Tables {
    passwd: TableState,
    group: TableState,
}

impl Tables {
    pub fn get(&self, table: Table) -> &TableState {
        match table {
            Table::Passwd => &self.passwd,
            Table::Group => &self.group,
        }
    }

    pub fn get_mut(&mut self, table: Table) -> &mut TableState {
        match table {
            Table::Passwd => &mut self.passwd,
            Table::Group => &mut self.group,
        }
    }

    /// Returns whether the last build of a table failed.
    pub fn has_failed(&self, table: Table) -> bool {
        self.get(table).outcome.is_failure()
    }
}
