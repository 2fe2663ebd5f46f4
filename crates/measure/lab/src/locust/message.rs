// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locust's messages: a type, its data and the worker's name, as MessagePack. `zmtp` sends and receives the bytes.

use crate::coded::Coded;
use anyhow::Result;
use roster_messages::table::lab;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Maximum nesting of lists and maps. The options of a class are at the fifth level.
const DEPTH_MAX: usize = 32;

/// Messages of a master. Unknown ones are ignored.
#[derive(Clone, Debug, PartialEq)]
pub enum MasterMessage {
    /// The master acknowledged this worker.
    Acknowledged {
        /// Index of this worker.
        index: u64,
    },
    /// The master sets the number of users of each class.
    Spawn(Box<SpawnRequest>),
    /// All users stop.
    Stop,
    /// The run and the master end.
    Quit,
    /// The master could not parse a message, and requests a new connection.
    Reconnect,
    /// Any other message, mostly heartbeats.
    Other,
}

/// Numbers of users.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct SpawnRequest {
    /// Time by the master's clock.
    #[serde(default)]
    pub timestamp: f64,
    /// Total number of users of each class.
    pub user_classes_count: BTreeMap<String, usize>,
    /// Options of the master, with those of roster-lab.
    #[serde(default)]
    pub parsed_options: Map<String, Value>,
}

/// Encodes a message.
pub fn pack(kind: &str, data: &impl Serialize, node: &str) -> Result<Vec<u8>> {
    let text = format_args!("message {kind}: cannot be encoded");
    rmp_serde::to_vec_named(&(kind, data, node)).coded(&lab::SYSTEM_ERROR, text)
}

/// Parses a message of a master.
pub fn read(bytes: &[u8]) -> Result<MasterMessage> {
    #[derive(Deserialize)]
    struct Acknowledged {
        index: u64,
    }
    let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
    reader.set_max_depth(DEPTH_MAX);
    let (kind, data, _): (String, Value, Value) =
        Deserialize::deserialize(&mut reader).coded(&lab::MASTER_MESSAGE, "invalid message")?;
    Ok(match kind.as_str() {
        "ack" => {
            // Masters before 2.10.2 send no index.
            let index = serde_json::from_value(data).map_or(0, |told: Acknowledged| told.index);
            MasterMessage::Acknowledged { index }
        }
        "spawn" => {
            let spawn = serde_json::from_value(data)
                .coded(&lab::MASTER_MESSAGE, "message spawn without users")?;
            MasterMessage::Spawn(Box::new(spawn))
        }
        "stop" => MasterMessage::Stop,
        "quit" => MasterMessage::Quit,
        "reconnect" => MasterMessage::Reconnect,
        _ => MasterMessage::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn heard(kind: &str, data: &Value) -> Result<MasterMessage> {
        read(&pack(kind, data, "me").unwrap())
    }

    #[test]
    fn what_masters_say_is_read() {
        assert_eq!(
            heard("ack", &json!({"index": 3})).unwrap(),
            MasterMessage::Acknowledged { index: 3 }
        );
        assert_eq!(heard("ack", &Value::Null).unwrap(), MasterMessage::Acknowledged { index: 0 });
        let data = json!({
            "timestamp": 5.5, "user_classes_count": {"A": 2}, "host": null, "stop_timeout": 0.0,
            "parsed_options": {"roster_lab": {"A": {}}, "tags": null},
        });
        let MasterMessage::Spawn(spawn) = heard("spawn", &data).unwrap() else { panic!("another") };
        assert_eq!((spawn.timestamp, spawn.user_classes_count["A"]), (5.5, 2));
        assert!(spawn.parsed_options.contains_key("roster_lab"));
        assert_eq!(heard("stop", &Value::Null).unwrap(), MasterMessage::Stop);
        assert_eq!(heard("of tomorrow", &json!([1])).unwrap(), MasterMessage::Other);
    }

    #[test]
    fn what_is_none_is_refused() {
        // The nesting is deeper than the stack.
        let nested = [&[0x93, 0xA1, b'x'][..], &vec![0x91; 1 << 20]].concat();
        for heard in [
            read(b""),
            read(b"GET / HTTP/1.1\r\n"),
            heard("spawn", &json!({"user_classes_count": {"A": -1}})),
            heard("spawn", &Value::Null),
            read(&nested),
        ] {
            let error = format!("{:#}", heard.unwrap_err());
            assert!(error.ends_with(&format!("[{}]", lab::MASTER_MESSAGE.code)), "{error}");
        }
    }
}
