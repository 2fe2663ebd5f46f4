//! Users and groups out of passwd(5) and group(5) text.
