//! .

use crate::role::{self, Context};

/// Runs until the role is to stop.
///
/// # Errors
///
/// What keeps the role from its work; the monitor starts it again.
pub async fn run(mut context: Context<role::Publisher>) -> anyhow::Result<()> {
    context.ready().await?;
    context.shutdown.wait().await;
    Ok(())
}
