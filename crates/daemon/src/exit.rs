//! Exit statuses, those of sysexits.h where it has one.

/// What was typed makes no sense.
pub const USAGE: u8 = 64;
/// A user that roles run as does not exist.
pub const NO_USER: u8 = 67;
/// Something that is needed is not there: dbus-daemon.
pub const UNAVAILABLE: u8 = 69;
/// Something went wrong that should not; a role ends so, and is started again.
pub const SOFTWARE: u8 = 70;
/// The system refuses something that should work.
pub const SYSTEM: u8 = 71;
/// A folder, socket or file cannot be made.
pub const CANNOT_CREATE: u8 = 73;
/// Later it may work: another rosterd runs here, or a role lost the bus.
pub const TEMPORARY: u8 = 75;
/// The configuration, or a file that it names, is wrong.
pub const CONFIG: u8 = 78;

/// Why the monitor ends, or does not begin.
#[derive(Debug)]
pub struct Failure {
    /// Exit status.
    pub status: u8,
    /// What to say.
    pub error: anyhow::Error,
}

/// Gives errors an exit status.
pub trait Status<T> {
    /// The same, ending the program with that status if it is an error.
    ///
    /// # Errors
    ///
    /// Those of `self`.
    fn status(self, status: u8) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> Status<T> for Result<T, E> {
    fn status(self, status: u8) -> Result<T, Failure> {
        self.map_err(|error| Failure { status, error: error.into() })
    }
}
