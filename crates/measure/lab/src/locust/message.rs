//! Locust's messages: a type, its data and the worker's name, as MessagePack.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Lists and maps within each other: what a class says is at the fifth place.
const DEPTH_MAX: usize = 32;

/// Any of a master's messages may be for us only; what we do not know we pass over.
#[derive(Clone, Debug, PartialEq)]
pub enum MasterMessage {
    /// We are known.
    Acknowledged {
        /// Our place among the workers.
        index: u64,
    },
    /// So many users of each class are to be there.
    Spawn(Box<SpawnRequest>),
    /// Everybody is to leave.
    Stop,
    /// The run and the master end.
    Quit,
    /// It could not read us, and asks for another connection.
    Reconnect,
    /// Everything else, of which heartbeats are the most.
    Other,
}

/// Who is to be there.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct SpawnRequest {
    /// By the master's clock.
    #[serde(default)]
    pub timestamp: f64,
    /// All users of each class, not more or fewer than before.
    pub user_classes_count: BTreeMap<String, usize>,
    /// The master's options; ours are among them.
    #[serde(default)]
    pub parsed_options: Map<String, Value>,
}

/// The bytes of a message with these data.
pub fn pack(kind: &str, data: &impl Serialize, node: &str) -> Result<Vec<u8>> {
    rmp_serde::to_vec_named(&(kind, data, node)).with_context(|| format!("cannot pack {kind}"))
}

/// What a master said.
pub fn read(bytes: &[u8]) -> Result<MasterMessage> {
    #[derive(Deserialize)]
    struct Acknowledged {
        index: u64,
    }
    let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
    reader.set_max_depth(DEPTH_MAX);
    let (kind, data, _): (String, Value, Value) =
        Deserialize::deserialize(&mut reader).context("a message that is none of Locust's")?;
    Ok(match kind.as_str() {
        "ack" => {
            // Masters before 2.10.2 say nothing more.
            let index = serde_json::from_value(data).map_or(0, |told: Acknowledged| told.index);
            MasterMessage::Acknowledged { index }
        }
        "spawn" => {
            let spawn =
                serde_json::from_value(data).context("a message spawn without its users")?;
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
        assert!(read(b"").is_err());
        assert!(read(b"GET / HTTP/1.1\r\n").is_err());
        assert!(heard("spawn", &json!({"user_classes_count": {"A": -1}})).is_err());
        assert!(heard("spawn", &Value::Null).is_err());
        // Lists within lists, deeper than any stack.
        assert!(read(&[&[0x93, 0xA1, b'x'][..], &vec![0x91; 1 << 20]].concat()).is_err());
    }
}
