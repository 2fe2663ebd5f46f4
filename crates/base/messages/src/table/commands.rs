//! Mistakes in policies, and refused or failed commands.

crate::messages! {}
