//! The first words of a connection, and who may hold a GPU open.

use super::*;
use crate::io::packets::receive;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use remps_proto::shim::{Capabilities, Region, VERSION};
use std::fs;

const WELCOME: Welcome =
    Welcome { version: VERSION, capabilities: Capabilities::STATE, most_bytes: 1, most_regions: 1, ttl_ms: 1 };
/// Pseudo-terminals as a stand-in for GPUs: what major number they have, and one that there is not.
const TERMINALS: u32 = 136;
const NOBODYS: u32 = 99_999;

#[test]
fn no_gpu_is_held_open_for_who_has_not_its_device_file_open() {
    let own = nix::pty::openpty(None, None).unwrap();
    let name = nix::unistd::ttyname(&own.slave).unwrap();
    let minor: u32 = name.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (gpu, minor) in [("GPU-own", minor), ("GPU-others", NOBODYS)] {
        let listed = folder.path().join("gpus").join(gpu);
        fs::create_dir_all(&listed).unwrap();
        fs::write(listed.join("information"), format!("GPU UUID: {gpu}\nDevice Minor: {minor}\n")).unwrap();
        fs::write(folder.path().join(format!("nvidia{minor}")), "").unwrap();
    }
    let devices = Arc::new(Devices::of(&folder.path().join("gpus"), folder.path()));
    for (gpu, is_held) in [("GPU-others", false), ("GPU-own", true), ("GPU-others", false)] {
        let (here, _there) = std::os::unix::net::UnixStream::pair().unwrap();
        // session --requests--> driver
        let (requests, mut driver) = mpsc::channel::<Told>(1);
        let mut session = Session::new(here.into(), WELCOME, requests, Arc::clone(&devices));
        session.client = identify(&session.socket).ok().map(Arc::new);
        session.reach = Reach::of(TERMINALS);
        session.is_greeted = true;
        let served = std::thread::spawn(move || {
            let region = Region { key: 1, gpu: gpu.to_owned(), bytes: 1, ..Region::default() };
            let memory = Descriptor::proven(fs::File::open("/dev/null").unwrap().into());
            let proof = Some(Ok(Proven::Memory(memory)));
            session.answer(Ask::Escrow(region), proof, Some(std::process::id())).is_ok()
        });
        let Some(Told::Asked(request)) = driver.blocking_recv() else { panic!("{gpu}") };
        assert_eq!(request.device.is_some(), is_held, "{gpu}");
        drop(request);
        assert!(served.join().unwrap());
    }
}

#[test]
fn a_hello_that_comes_before_credentials_are_passed_is_heard_and_nothing_else() {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    for (ask, expected) in [
        (Ask::Hello { version: VERSION, capabilities: Capabilities::STATE }, Answer::Welcome(WELCOME)),
        (Ask::Where, Answer::Failed(Failure::IDENTITY)),
    ] {
        let (here, there) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
        let packet = FromShim { request: 7, ask }.encode().unwrap();
        send(here.as_fd(), &packet, &[]).unwrap();
        // session --requests--> driver
        let (requests, _driver) = mpsc::channel(1);
        let session = Session::new(there, WELCOME, requests, Arc::default());
        let served = std::thread::spawn(move || session.serve());
        assert!(wait(here.as_fd(), PollFlags::POLLIN, Some(PATIENCE)).is_ok());
        let mut buffer = [0; MAX_MESSAGE_BYTES];
        let got = receive(here.as_fd(), &mut buffer).unwrap();
        assert_eq!(ToShim::decode(&buffer[..got.bytes]).unwrap(), ToShim { request: 7, answer: expected });
        drop(here);
        served.join().unwrap();
    }
}
