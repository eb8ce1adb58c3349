//! What nobody has had a reason to change: each value with its own.
//!
//! They are values of the policy and not of their rooms because tests of the core need others, and because a test of
//! the daemon may be more patient ([`crate::patience`]). Those that were settings once are listed in
//! `settings/retired.rs`.

use core::time::Duration;

/// Values that are no settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Constants {
    /// How long a command waits for a server that is still starting.
    pub command_patience: Duration,
    /// Delay after the first failed start of a server: what made it fail may be over at once, and clients wait.
    pub first_retry: Duration,
    /// Largest delay between starts: a try costs nothing at this pace, and who has mended the cause waits no longer.
    pub largest_retry: Duration,
    /// A server that ends sooner than this after its hello, and has served nobody, has failed to start.
    pub stable_after: Duration,
    /// After how many failures within `breaker_window` no server of a domain is started any more; 0 is never. A failure
    /// is a server that could not be started, did not become ready, or ended without being told to before it had served
    /// anybody. A client's fault is none. The eighth comes some 13 s after the first, by the delays between starts alone:
    /// what passes has passed.
    pub breaker_failures: u32,
    /// For how long a failure counts: servers that end every half minute are as little use as those that don't start.
    pub breaker_window: Duration,
    /// How long no server is started; then one try decides about the next pause. Twice the largest delay between starts.
    pub breaker_pause: Duration,
    /// How many clients of one user may wait for a server, whatever is a domain: more than a machine runs, and each
    /// costs the daemon a connection.
    pub max_waiting_per_user: usize,
    /// How many clients may do their handshake with one server at a time. It does them one after the other; more would
    /// only lie in its socket, which is also the way of every other request.
    pub max_handshakes: usize,
    /// How long an incident waits for a better witness before an uncertain verdict is given; one that comes later still
    /// corrects it. Who can name a culprit for certain does so within milliseconds, on a machine that is not busy.
    pub evidence_window: Duration,
    /// How long before its coming a newcomer's server may have been known to be sound when it joins others there, and,
    /// after a sign of trouble, how long after its coming it must be; zero is not to ask. The server said `FAULT` 9.5 to
    /// 11.2 ms after the launch of a `trap`, and there is no sign before (H200, 580).
    pub settle_time: Duration,
    /// How long a server may owe something and do nothing before newcomers get another one. A sound one answers within
    /// a millisecond.
    pub silence: Duration,
    /// The same after a sign of a fault.
    pub suspected_silence: Duration,
}

impl Default for Constants {
    fn default() -> Self {
        Self {
            command_patience: Duration::from_secs(2),
            first_retry: Duration::from_millis(100),
            largest_retry: Duration::from_secs(30),
            stable_after: Duration::from_secs(2),
            breaker_failures: 8,
            breaker_window: Duration::from_secs(300),
            breaker_pause: Duration::from_secs(60),
            max_waiting_per_user: 4096,
            max_handshakes: 8,
            evidence_window: Duration::from_millis(500),
            settle_time: Duration::from_millis(12),
            silence: Duration::from_secs(1),
            suspected_silence: Duration::from_millis(500),
        }
    }
}
