//! Packets captured from the vendor's programs are read, and written again to the byte.
//!
//! `captures/*.hex` are conversations of driver 580.159.04 as seen by tracing system calls: one packet a line in
//! hexadecimal digits, `>` from the listed party and `<` to it, a `#` line before each conversation saying what it is.
//! They are also the seeds of the fuzz targets (`proto/fuzz`), whose properties are checked here with every captured
//! packet and with fixed changes of it, so that a machine without the fuzzer still runs them.

#[path = "../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "the functions are public for the fuzz targets")]
mod properties;

use std::fs;
use std::path::{Path, PathBuf};

use remps_proto::mps::DecodeError;
use remps_proto::mps::client::{PIPE_ENDS, Status, expect_pipes_done};
use remps_proto::mps::decode_u32;
use remps_proto::mps::handshake::{CREDENTIALS, DESCRIPTOR, GREETING, Role};
use remps_proto::mps::server::{Configuration, Hello, ReplyDecoder, RequestDecoder};
use remps_proto::mps::ui::{Announcement, FromDaemon, decode_command, encode_command};
use remps_proto::shim::{FromShim, ToShim};

/// A conversation, or a part of one.
struct Conversation {
    title: String,
    /// Whether the packet is marked `>`, and its bytes.
    packets: Vec<(bool, Vec<u8>)>,
}

impl Conversation {
    /// The packets of one direction.
    fn marked(&self, outgoing: bool) -> Vec<Vec<u8>> {
        self.packets.iter().filter(|(mark, _)| *mark == outgoing).map(|(_, packet)| packet.clone()).collect()
    }

    fn all(&self) -> Vec<Vec<u8>> {
        self.packets.iter().map(|(_, packet)| packet.clone()).collect()
    }
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(str::from_utf8(pair).expect("ascii"), 16).expect("hexadecimal digits");
    pairs.map(byte).collect()
}

fn read(path: &Path) -> Vec<Conversation> {
    let text = fs::read_to_string(path).expect("a capture can be read");
    let mut conversations = Vec::new();
    for part in text.split("\n\n").skip(1) {
        let mut title = String::new();
        let mut packets = Vec::new();
        for line in part.lines() {
            match line.split_once(' ').expect("a mark and a blank") {
                ("#", words) => title = words.to_owned(),
                (">", digits) => packets.push((true, bytes(digits))),
                ("<", digits) => packets.push((false, bytes(digits))),
                other => panic!("{}: {other:?}", path.display()),
            }
        }
        assert!(!title.is_empty() && !packets.is_empty(), "{}: {title:?}", path.display());
        conversations.push(Conversation { title, packets });
    }
    assert!(!conversations.is_empty(), "{} has no conversation", path.display());
    conversations
}

fn capture(name: &str) -> Vec<Conversation> {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures").join(name))
}

fn everything() -> Vec<Conversation> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [root.join("tests/captures"), root.join("fuzz/seeds")];
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).expect("a folder"))
        .map(|entry| entry.expect("an entry").path());
    // Images of GPU code are no conversations.
    let is_capture = |path: &PathBuf| path.extension().is_some_and(|end| end == "hex") && !path.ends_with("image.hex");
    files.filter(is_capture).flat_map(|path| read(&path)).collect()
}

#[test]
fn a_servers_conversation_is_read_and_written_to_the_byte() {
    for conversation in ["server-580.hex", "server-580-two-gpus.hex"].into_iter().flat_map(capture) {
        let title = &conversation.title;
        let (from_daemon, from_server) = (conversation.marked(true), conversation.marked(false));
        if title.starts_with("start:") {
            assert_eq!(from_daemon[0], GREETING);
            assert_eq!(from_server[0], CREDENTIALS);
            assert_eq!(Role::decode(&from_server[1]), Ok(Role::SERVER));
            let hello = Hello::decode(&from_server[2]).unwrap();
            assert!(hello.shared_memory.starts_with("mps.shm."), "{hello:?}");
            assert_eq!(hello.encode(), from_server[2]);
            let mut packets = from_daemon[1..].iter();
            let end = DecodeError::Length { what: "packet", expected: 1, got: 0 };
            let configuration = Configuration::decode(|| packets.next().cloned().ok_or(end.clone())).unwrap();
            assert_eq!(packets.len(), 0, "{title}");
            assert_eq!(configuration.packets(), from_daemon[1..]);
            continue;
        }
        let mut decoder = RequestDecoder::default();
        let request = from_daemon.iter().find_map(|packet| decoder.feed(packet).unwrap()).expect(title);
        assert_eq!(request.packets(), from_daemon, "{title}");
        let answer = ReplyDecoder::new(&request)
            .and_then(|mut decoder| from_server.iter().find_map(|packet| decoder.feed(packet).unwrap()));
        assert_eq!(answer.is_some(), request.is_answered(), "{title}");
        assert_eq!(answer.map(|answer| answer.packets()).unwrap_or_default(), from_server, "{title}");
    }
}

#[test]
fn a_clients_conversation_with_the_daemon_is_the_one_described() {
    for conversation in capture("client-580.hex") {
        let (from_daemon, from_client) = (conversation.marked(true), conversation.marked(false));
        assert_eq!(from_daemon[0], GREETING);
        let [credentials, role, rest @ ..] = from_client.as_slice() else {
            assert!(conversation.title.starts_with("the probe"), "{}", conversation.title);
            continue;
        };
        assert_eq!(credentials, CREDENTIALS);
        assert_eq!(Role::decode(role), Ok(Role::CLIENT));
        for packet in &from_daemon[1..] {
            assert_eq!(packet, DESCRIPTOR);
        }
        assert_eq!(rest.len(), from_daemon.len() - 1, "a client answers the descriptor with one status");
        for status in rest {
            assert_eq!(Status::decode(status).unwrap().encode(), status.as_slice());
        }
    }
}

#[test]
fn a_clients_conversation_with_its_server_is_the_one_described() {
    for conversation in capture("client-server-580.hex") {
        let (from_server, from_client) = (conversation.marked(true), conversation.marked(false));
        let (ends, rest) = from_server.split_at(PIPE_ENDS);
        assert!(ends.iter().all(|packet| packet == DESCRIPTOR));
        assert_eq!(expect_pipes_done(&rest[0]), Ok(()));
        assert_eq!(Status::decode(&rest[1]), Ok(Status::SUCCESS));
        assert_eq!(from_client[0], CREDENTIALS);
        let context = decode_u32("context id", &from_client[1]).unwrap();
        assert_eq!(conversation.title.starts_with("the process connection"), context == 0, "{}", conversation.title);
        assert_eq!(from_client.len(), 3);
    }
}

#[test]
fn a_session_of_the_command_line_is_read_and_written_to_the_byte() {
    for conversation in capture("ui-580.hex") {
        let title = &conversation.title;
        let (from_daemon, from_ui) = (conversation.marked(true), conversation.marked(false));
        assert_eq!(from_daemon[0], GREETING);
        assert_eq!(from_ui[0], CREDENTIALS);
        assert_eq!(Role::decode(&from_ui[1]), Ok(Role::UI));
        let mut packets = from_ui[2..].iter();
        while let Some(packet) = packets.next() {
            let announcement = Announcement::decode(packet).unwrap();
            assert_eq!(announcement.encode(), packet.as_slice());
            if let Announcement::Command(length) = announcement {
                let command = packets.next().expect(title);
                assert_eq!(command.len(), length, "{title}");
                assert_eq!(encode_command(&decode_command(command)), *command);
            }
        }
        for packet in &from_daemon[1..] {
            assert_eq!(FromDaemon::decode(packet).unwrap().encode(), *packet, "{title}");
        }
    }
}

/// Calls every property of a single packet.
fn single(packet: &[u8]) {
    properties::handshake(packet);
    properties::client(packet);
    properties::hello(packet);
    properties::log(packet);
    properties::ui(packet);
    properties::device(packet);
    properties::holder(packet);
    properties::shim(packet);
    properties::command(packet);
    properties::notice(packet);
    properties::join(packet);
}

/// Calls every property of a sequence of packets.
fn several(packets: &[Vec<u8>]) {
    let data = properties::sequence(packets);
    assert_eq!(properties::packets(&data), packets);
    properties::configuration(&data);
    properties::request(&data);
    properties::reply(&data);
}

#[test]
fn every_captured_packet_and_its_changes_decode_to_a_fixpoint() {
    for conversation in everything() {
        for packet in conversation.all() {
            single(&packet);
            for at in 0..packet.len() {
                single(&packet[..at]);
                for change in [0x01, 0x80, 0xff] {
                    let mut changed = packet.clone();
                    changed[at] ^= change;
                    single(&changed);
                }
            }
        }
    }
}

#[test]
fn every_captured_exchange_and_its_changes_decode_to_a_fixpoint() {
    for conversation in everything() {
        let packets = conversation.all();
        for start in 0..packets.len() {
            several(&packets[start..]);
            let mut twice = packets.clone();
            twice.insert(start, packets[start].clone());
            several(&twice);
            let mut without = packets.clone();
            without.remove(start);
            several(&without);
            for at in 0..packets[start].len() {
                let mut changed = packets.clone();
                changed[start][at] ^= 0xff;
                several(&changed);
                changed[start].truncate(at);
                several(&changed);
            }
        }
    }
}

#[test]
fn messages_of_the_preload_library_are_read_and_written_again_to_the_byte() {
    let seeds = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/shim.hex"));
    assert!(seeds.len() >= 22, "a seed for every message");
    for conversation in seeds {
        for packet in conversation.marked(true) {
            let message = FromShim::decode(&packet).expect(&conversation.title);
            assert_eq!(message.encode().expect("it was within the limits"), packet, "{}", conversation.title);
        }
        for packet in conversation.marked(false) {
            let message = ToShim::decode(&packet).expect(&conversation.title);
            assert_eq!(message.encode().expect("it was within the limits"), packet, "{}", conversation.title);
        }
    }
}
