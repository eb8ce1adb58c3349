//! Which events are shared, from their making to their end.

use super::{
    EXTERNAL, Event, INTERPROCESS, is_made_now, is_used, loss, may_be, owner::Exported, peer::Imported, shared,
};
use crate::{
    cuda::{gate, names},
    process::settings,
};

/// What an event is to a call that names it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// For other processes, but given to none.
    Made,
    /// Another process may wait for it.
    Exported(Exported),
    /// Another process's.
    Imported(Imported),
}

/// After `cuEventCreate`. What had the handle before ended in a way that nobody saw.
pub(crate) fn made(handle: usize, flags: u32) {
    let is_for_others = flags & INTERPROCESS != 0 && settings::is_recording() && gate::is_armed();
    if may_be() {
        ended(names::name_of(handle));
    }
    if is_for_others {
        // Before the program has its handle: nothing that no export could make good goes unseen.
        is_made_now();
        shared(|shared| shared.events.insert(names::name_of(handle), Event::Made));
    }
}

/// What an event is, by name; `None` of an ordinary one.
pub(crate) fn kind(name: usize) -> Option<Kind> {
    if name == 0 {
        return None;
    }
    shared(|shared| shared.events.get(&name).copied()).map(|event| match event {
        Event::Made => Kind::Made,
        Event::Exported(exported) => Kind::Exported(exported),
        Event::Imported(imported) => Kind::Imported(imported),
    })
}

/// An event, by name, has ended. Work that was to record it, or to wait for it, goes on.
pub(crate) fn ended(name: usize) {
    shared(|shared| {
        if let Some(Event::Exported(exported)) = shared.events.remove(&name) {
            shared.free(&exported);
        }
    });
}

/// A context, by name, has ended with its work and its events.
pub(crate) fn ended_context(context: usize) {
    if !is_used() {
        return;
    }
    loss::lose(Some(context), EXTERNAL);
    shared(|shared| {
        let is_gone = |event: &Event| matches!(event, Event::Exported(of) if of.context == context);
        let gone: Vec<Event> =
            shared.events.extract_if(.., |_, event| is_gone(event)).map(|(_, event)| event).collect();
        for event in gone {
            if let Event::Exported(exported) = event {
                shared.free(&exported);
            }
        }
    });
}
