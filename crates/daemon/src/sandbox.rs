//! .
use crate::role::Launch;
/// .
pub fn apply(_launch: &Launch) -> String {
    String::new()
}
