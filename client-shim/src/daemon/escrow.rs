//! Gives the vault what the program keeps: compares what there is with what the daemon has said that it keeps, and asks
//! for the difference in batches.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::c_int,
    sync::atomic::Ordering,
    time::{Instant, SystemTime},
};

use remps_proto::shim::{Answer, Ask, Region};

use super::{
    connection::{Connection, Lost},
    ledger::{Ledger, Serial},
    link::{Link, Source, locked, source},
};
use crate::{
    cuda::{gpu_name, piece::Piece},
    process::{descriptors::Held, failpoint::reached, settings::succession},
};

/// Escrows and releases that are under way at a time: fewer than the descriptors that one user may have in flight.
const BATCH: usize = 16;

/// The worker's.
#[derive(Debug)]
pub(super) struct Escrow {
    source: Source,
    name: String,
    pub(super) ledger: Ledger,
    gpus: BTreeMap<c_int, String>,
}

impl Escrow {
    /// `None` as long as nothing is to be given, or under no name.
    pub(super) fn begin() -> Option<Self> {
        let source = source().filter(|_| succession::is_named())?;
        let nanoseconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
        let salt = u64::from(std::process::id() ^ nanoseconds.rotate_left(7) ^ (1 << 31));
        Some(Self { source, name: succession::name()?, ledger: Ledger::new(salt), gpus: BTreeMap::new() })
    }

    /// Takes over what has come from the vault and is noted as kept.
    pub(super) fn take_adopted(&mut self, link: &Link) {
        for (serial, region, _) in locked(&link.adopted).extract_if(.., |(_, _, is_noted)| *is_noted) {
            self.ledger.adopted(serial, region);
        }
    }

    /// Releases and escrows some of what is to be; whether there was anything.
    pub(super) fn give_some(&mut self, connection: &mut Connection, link: &Link) -> Result<bool, Lost> {
        let (now, ledger) = (Instant::now(), &self.ledger);
        let is_coming = |serial| locked(&link.adopted).iter().any(|(known, ..)| *known == serial);
        let due = |serial| link.may_escrow.load(Ordering::Acquire) && ledger.is_due(serial, now) && !is_coming(serial);
        let Some(there) = (self.source)(&due, BATCH) else { return Ok(false) };
        self.ledger.there_are(&there.iter().map(|memory| memory.serial).collect::<BTreeSet<_>>());
        let released = self.release_some(connection)?;
        let given = self.escrow_some(connection, there, now)?;
        Ok(released + given > 0)
    }

    fn release_some(&mut self, connection: &mut Connection) -> Result<usize, Lost> {
        let releases: Vec<(Serial, u64)> = self.ledger.releases().into_iter().take(BATCH).collect();
        let mut sent = Vec::new();
        for (serial, key) in releases {
            sent.push((serial, connection.send(Ask::Release { key }, None)?));
            reached("release-sent");
        }
        let count = sent.len();
        for (serial, request) in sent {
            connection.answers(request)?;
            reached("release-answered");
            self.ledger.released(serial);
        }
        Ok(count)
    }

    fn escrow_some(&mut self, connection: &mut Connection, there: Vec<Piece>, now: Instant) -> Result<usize, Lost> {
        let mut sent = Vec::new();
        for Piece { serial, device, size, address, copy } in there {
            let Some(number) = copy.as_ref().and_then(Held::number) else { continue };
            let region = match self.ledger.region(serial) {
                Some(region) => region.clone(),
                None => Region {
                    key: self.ledger.key(serial),
                    name: self.name.clone(),
                    gpu: self.gpus.entry(device).or_insert_with(|| gpu_name::name(device)).clone(),
                    bytes: size,
                    address,
                    handle_type: 1,
                    ..Region::default()
                },
            };
            let request = connection.send(Ask::Escrow(region.clone()), Some(number))?;
            sent.push((serial, region, request));
            reached("escrow-sent");
        }
        let count = sent.len();
        for (serial, region, request) in sent {
            let answer = match connection.answers(request)?.pop() {
                Some((Answer::Done { .. }, _)) => Ok(()),
                Some((Answer::Failed(failure), _)) => Err(failure),
                _ => return Err(Lost::Stranger),
            };
            reached("escrow-answered");
            self.ledger.answered(serial, region, answer, now);
        }
        Ok(count)
    }
}
