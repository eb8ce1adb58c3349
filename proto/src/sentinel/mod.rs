//! What NVSentinel, NVIDIA's guard of nodes in Kubernetes, is told of a fault: messages of its public interface.

/// The types generated from `health_event.proto`; `proto/tests/bootstrap.rs` keeps them equal to it.
#[expect(missing_docs, reason = "the fields are NVIDIA's, who says what they mean")]
mod wire {
    include!("gen/datamodels.rs");
}

pub use wire::{Entity, HealthEvent, HealthEvents, RecommendedAction, Timestamp};

/// Where the call that tells of events is found on its server.
pub const CALL: &str = "/datamodels.PlatformConnector/HealthEventOccurredV1";

#[cfg(test)]
mod tests {
    use super::{HealthEvent, HealthEvents, RecommendedAction};
    use prost::Message as _;

    /// Field numbers and types as the public file has them: tag bytes, by hand.
    #[test]
    fn an_event_is_on_the_wire_what_the_public_file_says() {
        let event = HealthEvent {
            version: 1,
            agent: "a".to_owned(),
            recommended_action: RecommendedAction::RestartApp.into(),
            error_code: vec!["31".to_owned()],
            node_name: "n".to_owned(),
            ..HealthEvent::default()
        };
        let bytes = HealthEvents { version: 1, events: vec![event] }.encode_to_vec();
        let inner = [&[0x08, 1, 0x12, 1, b'a', 0x40, 39, 0x4a, 2][..], b"31", &[0x6a, 1, b'n']].concat();
        let expected = [&[0x08, 1, 0x12, u8::try_from(inner.len()).unwrap()][..], &inner].concat();
        assert_eq!(bytes, expected);
    }
}
