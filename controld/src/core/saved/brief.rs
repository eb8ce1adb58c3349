//! As much of a state as a daemon of an earlier release can read, which knows of no state in pieces.
//!
//! What is left out is what it would have lost anyway: its own daemon had kept the last state that fitted, and the servers
//! that came later ended with it. Here those that came first are in it with the named servers that they are of, since a
//! namespace's server without its namespace makes no sense, and then what else there is room for.

use super::{Saved, SavedNamed};
use prost::Message;

/// Most bytes of a field's tag and length.
const FIELD: usize = 6;

/// Takes a message's bytes from the room that is left, if it has that many.
fn takes(room: &mut usize, messages: &[&dyn Measured]) -> bool {
    let left = room.checked_sub(messages.iter().map(|message| message.bytes() + FIELD).sum());
    *room = left.unwrap_or(*room);
    left.is_some()
}

trait Measured {
    fn bytes(&self) -> usize;
}

impl<M: Message> Measured for M {
    fn bytes(&self) -> usize {
        self.encoded_len()
    }
}

impl Saved {
    /// The part of it that fits into so many bytes, encoded; nothing where not even what is there once does.
    pub(crate) fn brief(&self, most: usize) -> Vec<u8> {
        let (servers, named, spares, held) = Default::default();
        let mut brief = Self { servers, named, spares, held, limits: self.limits.clone(), ..*self };
        let Some(mut room) = most.checked_sub(brief.encoded_len()) else { return Vec::new() };
        for server in &self.servers {
            let name = server.group.as_ref().map_or("", |group| group.server.as_str());
            let is_missing = |named: &&SavedNamed| brief.named.iter().all(|known| known.name != named.name);
            let named = self.named.iter().find(|named| named.name == name).filter(is_missing);
            let both: Vec<&dyn Measured> =
                std::iter::once(server as &dyn Measured).chain(named.map(|named| named as &dyn Measured)).collect();
            if !takes(&mut room, &both) {
                break;
            }
            brief.named.extend(named.cloned());
            brief.servers.push(server.clone());
        }
        for named in &self.named {
            if brief.named.iter().all(|known| known.name != named.name) && takes(&mut room, &[named]) {
                brief.named.push(named.clone());
            }
        }
        for spare in &self.spares {
            if takes(&mut room, &[spare]) {
                brief.spares.push(spare.clone());
            }
        }
        for held in &self.held {
            if takes(&mut room, &[held]) {
                brief.held.push(held.clone());
            }
        }
        brief.encode_to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SavedGroup, SavedServer};
    use super::*;

    fn state(servers: u32) -> Saved {
        let name = |number: u32| format!("training-{}", number % 7);
        let group = |number| SavedGroup { server: name(number), namespace: "default".into(), ..SavedGroup::default() };
        let server =
            |number: u32| SavedServer { epoch: number.into(), group: Some(group(number)), ..SavedServer::default() };
        let named = |number| SavedNamed { name: name(number), ..SavedNamed::default() };
        Saved {
            next_epoch: 1000,
            servers: (0..servers).map(server).collect(),
            named: (0..7).rev().map(named).collect(),
            held: vec!["1 2 3".into()],
            ..Saved::default()
        }
    }

    #[test]
    fn a_state_that_fits_is_all_of_it_in_whatever_order() {
        let brief = Saved::decode(state(20).brief(4096).as_slice()).unwrap();
        let whole = state(20);
        assert_eq!((brief.servers, brief.held, brief.next_epoch), (whole.servers, whole.held, 1000));
        assert_eq!(brief.named.len(), 7);
    }

    #[test]
    fn what_does_not_fit_is_the_servers_that_came_last_and_no_server_lacks_its_name() {
        for most in [10, 100, 333, 1000, 2000] {
            let bytes = state(200).brief(most);
            assert!(bytes.len() <= most, "{} of {most}", bytes.len());
            let brief = Saved::decode(bytes.as_slice()).unwrap();
            assert_eq!(brief.servers, state(200).servers[..brief.servers.len()]);
            assert!(brief.servers.len() < 200 && (most < 1000 || brief.servers.len() > 7));
            for server in brief.servers {
                let name = server.group.unwrap().server;
                assert!(brief.named.iter().any(|named| named.name == name), "{name}");
            }
        }
        assert!(state(1).brief(0).is_empty());
    }
}
