//! What must hold for every sequence of bytes, one function for each decoder.
//!
//! The rule is that of a fixpoint: what is decoded and encoded again decodes to the same value. A field of text is the
//! one exception: bytes that are not UTF-8 are replaced when it is read, and a replacement is longer than what it
//! replaces, so it may be cut once more when it is written. From the second round on nothing changes any more.
//!
//! The fuzz targets call these functions with what libFuzzer makes up; the test `proto/tests/captures.rs` calls them
//! with every captured packet and with captured packets changed in fixed ways. Decoders of several packets take a
//! sequence of packets, each behind a `u16` with its length ([`packets`], [`sequence`]).

use std::fmt::Debug;

use remps_proto::admin::command::Command;
use remps_proto::admin::limits::parse_device_limits;
use remps_proto::admin::personality::Personality;
use remps_proto::holder::{FromHolder, ToHolder};
use remps_proto::mps::DecodeError;
use remps_proto::mps::client::{PIPES_DONE, Status, expect_pipes_done};
use remps_proto::mps::device::{DeviceInfo, DeviceKey, DeviceRecord};
use remps_proto::mps::handshake::{CREDENTIALS, DESCRIPTOR, GREETING, Role, expect_fixed};
use remps_proto::mps::log::{Decoder, MAX_TEXT, Record};
use remps_proto::mps::server::{Configuration, Dialect, Hello, Reply, ReplyDecoder, Request, RequestDecoder};
use remps_proto::mps::ui::{Announcement, FromDaemon, MAX_REPLY, decode_command, encode_command, output_packets};

use remps_proto::join::{MAX_PACKET, ToNode, ToThin};
use remps_proto::notice::{Notice, RECORD_SIZE, records};
use remps_proto::shim::{FromShim, ToShim};

/// The releases whose commands differ.
const RELEASES: [Personality; 5] =
    [Personality::V535, Personality::V550, Personality::V555, Personality::V580, Personality::V595];

/// Cuts a fuzzer's bytes into packets: a `u16` length, little-endian, then so many bytes or what is left.
pub fn packets(mut data: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk::<2>() {
        let (packet, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        packets.push(packet.to_vec());
        data = rest;
    }
    packets
}

/// The bytes that [`packets`] cuts into these packets.
pub fn sequence(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for packet in packets {
        bytes.extend(u16::try_from(packet.len()).expect("a captured packet is short").to_le_bytes());
        bytes.extend(packet);
    }
    bytes
}

/// For formats without text: the bytes of an accepted packet are the value's only bytes.
fn exact<T: Debug, E>(data: &[u8], decode: impl Fn(&[u8]) -> Result<T, E>, encode: impl Fn(&T) -> Vec<u8>) {
    if let Ok(value) = decode(data) {
        assert_eq!(encode(&value), data, "{value:?} has other bytes than it came from");
    }
}

/// For formats with text or padding: after one round nothing changes any more.
fn settles<T: Debug + PartialEq, E: Debug>(
    data: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, E>,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    let Ok(first) = decode(data) else { return };
    let second = decode(&encode(&first)).expect("our own bytes can be read");
    let third = decode(&encode(&second)).expect("our own bytes can be read");
    assert_eq!(second, third);
    assert_eq!(encode(&second), encode(&third));
}

/// Greeting, credentials, descriptor, role.
pub fn handshake(data: &[u8]) {
    exact(data, Role::decode, |role| role.encode().to_vec());
    for text in [GREETING, CREDENTIALS, DESCRIPTOR] {
        assert_eq!(expect_fixed("text", data, text).is_ok(), data == text);
    }
}

/// A client's status and the end of the row of pipes.
pub fn client(data: &[u8]) {
    exact(data, Status::decode, |status| status.encode().to_vec());
    assert_eq!(expect_pipes_done(data).is_ok(), data == PIPES_DONE);
}

/// A server's hello.
pub fn hello(data: &[u8]) {
    settles(data, Hello::decode, Hello::encode);
}

/// A server's configuration, in both dialects.
pub fn configuration(data: &[u8]) {
    let read = |packets: Vec<Vec<u8>>| {
        let mut packets = packets.into_iter();
        let end = DecodeError::Length { what: "packet", expected: 1, got: 0 };
        Configuration::decode(|| packets.next().ok_or(end.clone()))
    };
    let Ok(first) = read(packets(data)) else { return };
    for dialect in [Dialect::Keys, Dialect::Ordinals] {
        let second = read(first.packets_for(dialect)).expect("our own packets can be read");
        let third = read(second.packets_for(dialect)).expect("our own packets can be read");
        // Compared as packets, since a percentage that is no number is not equal to itself.
        assert_eq!(second.packets_for(dialect), third.packets_for(dialect));
    }
}

/// Every request in a sequence of packets, whatever lies between.
fn requests(packets: &[Vec<u8>]) -> Vec<(usize, Request)> {
    let mut decoder = RequestDecoder::default();
    let fed = packets.iter().enumerate();
    fed.filter_map(|(at, packet)| decoder.feed(packet).ok().flatten().map(|request| (at, request))).collect()
}

/// Requests to a server, in both dialects.
pub fn request(data: &[u8]) {
    for (_, request) in requests(&packets(data)) {
        for dialect in [Dialect::Keys, Dialect::Ordinals] {
            let Some(first) = request.packets_for(dialect) else { continue };
            // A snapshot's confirmation goes along and is no part of the request.
            let due = if request == Request::Snapshot { 1 } else { first.len() };
            let again = requests(&first[..due]);
            let [(last, again)] = again.as_slice() else { panic!("{request:?} is read as {again:?}") };
            assert_eq!(*last, due - 1, "no packet is left over");
            let second = again.packets_for(dialect).expect("it has just been written in this dialect");
            assert_eq!(requests(&second[..due]).len(), 1);
            assert_eq!(again.operation(), request.operation());
        }
    }
}

fn reply_of(request: &Request, packets: &[Vec<u8>]) -> Option<(usize, Reply)> {
    let mut decoder = ReplyDecoder::new(request)?;
    for (at, packet) in packets.iter().enumerate() {
        if let Some(reply) = decoder.feed(packet).ok()? {
            return Some((at, reply));
        }
    }
    None
}

/// A server's answers: a request's packets, then those of the answer.
pub fn reply(data: &[u8]) {
    let packets = packets(data);
    for (at, request) in requests(&packets) {
        let Some((_, first)) = reply_of(&request, &packets[at + 1..]) else { continue };
        let written = first.packets();
        let (last, second) = reply_of(&request, &written).expect("our own packets can be read");
        assert_eq!(last, written.len() - 1, "no packet is left over");
        let (_, third) = reply_of(&request, &second.packets()).expect("our own packets can be read");
        assert_eq!(second.packets(), third.packets());
    }
}

fn log_records(data: &[u8], piece: usize) -> (Vec<Record>, u64) {
    let mut decoder = Decoder::default();
    let mut records = Vec::new();
    for bytes in data.chunks(piece.max(1)) {
        decoder.push(bytes);
        records.extend(decoder.by_ref());
    }
    decoder.reset();
    (records, decoder.skipped())
}

/// The log FIFO: the records do not depend on how the bytes are cut, and every byte is in a record or counted.
pub fn log(data: &[u8]) {
    let (whole, skipped) = log_records(data, data.len());
    assert_eq!(log_records(data, 7), (whole.clone(), skipped));
    let bytes: Vec<u8> = whole.iter().flat_map(Record::encode).collect();
    assert_eq!(bytes.len() as u64 + skipped, data.len() as u64);
    assert_eq!(log_records(&bytes, bytes.len()), (whole.clone(), 0));
    for record in whole {
        assert!(record.text.len() <= MAX_TEXT);
        assert!(!record.line().contains(['\n', '\r', '\u{1b}']));
    }
}

/// The command line's packets, both directions.
pub fn ui(data: &[u8]) {
    exact(data, Announcement::decode, |announcement| announcement.encode().to_vec());
    exact(data, FromDaemon::decode, FromDaemon::encode);
    let command = decode_command(data);
    assert_eq!(decode_command(&encode_command(&command)), command);
    let text = String::from_utf8_lossy(data);
    for packet in output_packets(&text) {
        assert!(packet.len() <= MAX_REPLY);
        assert!(matches!(FromDaemon::decode(&packet), Ok(FromDaemon::Output(_))));
    }
}

/// Device keys and descriptions.
pub fn device(data: &[u8]) {
    settles(data, DeviceKey::decode, DeviceKey::encode);
    settles(data, DeviceRecord::decode, DeviceRecord::encode);
    settles(data, DeviceInfo::decode, DeviceInfo::encode);
}

/// Messages between the daemon and the holder.
pub fn holder(data: &[u8]) {
    if let Ok(first) = ToHolder::decode(data) {
        let again = ToHolder::decode(&first.clone().encode().expect("it was within the limits"));
        assert_eq!(again, Ok(first));
    }
    if let Ok(first) = FromHolder::decode(data) {
        let again = FromHolder::decode(&first.clone().encode().expect("it was within the limits"));
        assert_eq!(again, Ok(first));
    }
}

/// Messages between the preload library and the daemon.
pub fn shim(data: &[u8]) {
    if let Ok(first) = FromShim::decode(data) {
        let again = FromShim::decode(&first.clone().encode().expect("it was within the limits"));
        assert_eq!(again, Ok(first));
    }
    if let Ok(first) = ToShim::decode(data) {
        let again = ToShim::decode(&first.clone().encode().expect("it was within the limits"));
        assert_eq!(again, Ok(first));
    }
}

/// Commands and device limits as a user types them: blanks between words do not matter, nor does what follows a NUL.
pub fn command(data: &[u8]) {
    let line = data.split(|byte| *byte == 0).next().unwrap_or_default();
    let words: Vec<&[u8]> =
        line.split(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).filter(|word| !word.is_empty()).collect();
    let plain = words.join(&b' ');
    for release in RELEASES {
        let first = Command::parse(data, release);
        assert_eq!(Command::parse(&plain, release), first);
        if let Some(name) = first.name() {
            assert!(release.knows(name));
            assert_eq!(words.first().copied(), Some(name.spelling().as_bytes()));
        }
    }
    parse_device_limits(&String::from_utf8_lossy(line)).into_iter().for_each(drop);
}

/// A packet between the daemon of a node and a thin one.
pub fn join(packet: &[u8]) {
    if let Ok(message) = ToNode::decode(packet) {
        let encoded = message.encode();
        assert!(encoded.len() <= MAX_PACKET);
        assert_eq!(ToNode::decode(&encoded), Ok(message));
    }
    if let Ok(message) = ToThin::decode(packet) {
        let encoded = message.encode();
        assert!(encoded.len() <= MAX_PACKET);
        assert_eq!(ToThin::decode(&encoded), Ok(message));
    }
}

/// Records of the patched module.
pub fn notice(data: &[u8]) {
    for (record, bytes) in records(data).zip(data.chunks(RECORD_SIZE)) {
        if let Ok(record) = record {
            assert_eq!(record.encode(), bytes);
            assert_eq!(Notice::decode(bytes), Ok(record));
        }
    }
}
