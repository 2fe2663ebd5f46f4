// SPDX-License-Identifier: MIT OR Apache-2.0
//! The proxy of the interface that all roles have.

use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::RoleProxy;
use roster_bus::zbus::proxy::CacheProperties;
use roster_bus::zbus::{self, Connection};

/// Returns the proxy of a role's common interface.
pub async fn role_proxy(
    connection: &Connection,
    role: &RoleName,
) -> zbus::Result<RoleProxy<'static>> {
    RoleProxy::builder(connection)
        .destination(role.bus_name())
        .path(role.path())
        .cache_properties(CacheProperties::No)
        .build()
        .await
}
