//! Mistakes in `roster.toml`. `roster check-config` and rosterd print them.

crate::messages! {
    UNKNOWN_KEY = 1001, "unknown key",
        cause: "The table has no key of this name. The name may be mistyped, or the key may belong to another table.",
        fix: "Correct the name, or remove the key. roster.toml(5) lists all keys.";
}
