// SPDX-License-Identifier: MIT OR Apache-2.0
//! The planes of the crates, and the borders that hold even if the table of ARCHITECTURE.md allows a dependency. They
//! hold for dependencies of the product; the table alone judges dev-dependencies.

/// A crate names crates of its own plane and of planes before it.
pub const PLANES: [&str; 5] = ["base", "serve", "sync", "act", "measure"];

/// Planes that name nothing of certain planes before them.
const CLOSED: [(&str, &str); 4] =
    [("act", "sync"), ("measure", "serve"), ("measure", "sync"), ("measure", "act")];

/// Crates of a tree without planes: `crates/NAME`.
const FLAT: [(&str, &str); 6] = [
    ("base", "calls confine descriptors manual record secret"),
    ("serve", "nscd nss snapshot snapshot-build wire"),
    ("sync", "admission bus config daemon krb5 pam provider provider-krb5 provider-ldap store"),
    ("act", "exec rootwrap"),
    ("measure", "lab"),
    ("roster", "cli"),
];

/// Borders within `sync`: a crate, the crates that it must not name, and the reason. A trailing `*`
/// stands for any rest of a name.
const BORDERS: [(&str, &[&str], &str); 5] = [
    (
        "responder",
        &["provider*", "auth-*", "domain-cache"],
        "the responder asks publisher and backends, and knows neither LDAP nor the cache",
    ),
    ("backend", &["snapshot", "snapshot-build"], "the publisher alone writes the snapshot"),
    ("provider*", &["wire"], "a provider knows no wire format of the modules"),
    ("auth-*", &["wire"], "a provider knows no wire format of the modules"),
    ("publisher", &["provider-ldap", "domain-cache"], "backends alone know LDAP and the cache"),
];

/// The plane of a crate's directory: `crates/PLANE/NAME`. `None` for the `roster` program in `crates/roster` and for
/// crates outside of `crates`.
pub fn plane(directory: &str) -> Option<&'static str> {
    let mut parts = directory.split('/');
    let (crates, plane, name) = (parts.next()?, parts.next()?, parts.next());
    name?;
    PLANES.into_iter().find(|one| crates == "crates" && *one == plane)
}

/// The plane of a crate of the product, also in a tree without planes. The `roster` program is a separate group.
pub fn group(directory: &str) -> Option<&'static str> {
    let name = directory.strip_prefix("crates/")?;
    let is_named = |names: &str| names.split(' ').any(|one| one == name);
    let flat = || FLAT.iter().find(|(_, names)| is_named(names)).map(|(plane, _)| *plane);
    let program = (name == "roster").then_some("roster");
    plane(directory).or(program).or_else(flat)
}

/// The reason for which one crate must not name another, by their directories; `None` if it may.
pub fn border(from: &str, to: &str) -> Option<String> {
    plane_border(from, to).or_else(|| crate_border(from, to))
}

/// The reason for which a crate's plane forbids a dependency on another crate. Tests and the `roster` program may
/// depend on any crate.
pub fn plane_border(from: &str, to: &str) -> Option<String> {
    let plane_of = |directory| group(directory).filter(|plane| PLANES.contains(plane));
    let plane = plane_of(from)?;
    let Some(other) = plane_of(to) else {
        return Some(format!("plane {plane} names no programs and tests"));
    };
    let position = |plane| PLANES.iter().position(|one| *one == plane);
    if position(other) > position(plane) {
        return Some(format!("plane {other} comes after {plane}"));
    }
    CLOSED.contains(&(plane, other)).then(|| format!("plane {plane} names nothing of {other}"))
}

fn crate_border(from: &str, to: &str) -> Option<String> {
    let name = |directory: &str| directory.rsplit('/').next().unwrap_or_default().to_owned();
    let (from, to) = (name(from), name(to));
    let (.., reason) = BORDERS.iter().find(|(one, closed, _)| {
        matches(one, &from) && closed.iter().any(|pattern| matches(pattern, &to))
    })?;
    Some((*reason).to_owned())
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => name == pattern,
    }
}
