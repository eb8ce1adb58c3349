//! The reader on sockets that keep records apart as `/dev/kmsg` does, and on the real log where it may be read.

use std::os::unix::net::UnixDatagram;

use super::*;
use crate::core::XidClass;

/// How long a test waits for what must come.
const DEADLINE: Duration = Duration::from_secs(120);

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(DEADLINE, test).await.unwrap() });
}

fn log(pids_are_ours: bool) -> (UnixDatagram, Kmsg) {
    let (writer, reader) = UnixDatagram::pair().unwrap();
    reader.set_nonblocking(true).unwrap();
    (writer, Kmsg::from_fd(reader.into(), pids_are_ours).unwrap())
}

#[test]
fn the_kernels_signs_are_found_among_the_noise() {
    run(async {
        let (writer, mut log) = log(true);
        for line in [
            "6,10,1,-;eth0: link up\n",
            "3,11,2,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=649, name=python3, Ch 00000012, intr 0. MMU Fault\n",
            "12,12,3,-;NVRM: Xid (PCI:0000:3b:00): 79, a program says so\n",
            "3,13,4,-;Memory cgroup out of memory: Killed process 1234 (python3) total-vm:9020kB\n",
            "no record at all",
        ] {
            writer.send(line.as_bytes()).unwrap();
        }
        let signs = log.next().await.unwrap();
        let xid = Evidence::Xid {
            instance: None,
            number: 31,
            class: XidClass::Application,
            bus: "0000:3b:00".to_owned(),
            pid: Some(649),
            channel: Some(0x12),
            text: "pid=649, name=python3, Ch 00000012, intr 0. MMU Fault".to_owned(),
        };
        assert_eq!(signs, [KernelSign::Xid(xid), KernelSign::OutOfMemory(Some(1234))]);
        assert_eq!((log.lost(), log.unreadable), (0, 1));
    });
}

#[test]
fn a_gap_in_the_numbers_is_counted_to_the_record() {
    run(async {
        let (writer, mut log) = log(true);
        for sequence in [5_u64, 6, 106, 107] {
            writer.send(format!("6,{sequence},1,-;x\n").as_bytes()).unwrap();
        }
        log.next().await.unwrap();
        assert_eq!(log.lost(), 99);
    });
}

#[test]
fn pids_of_another_namespace_are_not_taken_for_ours() {
    run(async {
        let (writer, mut log) = log(false);
        writer.send(b"3,1,2,-;NVRM: Xid (PCI:0000:3b:00): 43, pid=649, name=x, Ch 00000012\n").unwrap();
        writer.send(b"3,2,2,-;Out of memory: Killed process 1234 (x) total-vm:9020kB\n").unwrap();
        let signs = log.next().await.unwrap();
        assert!(matches!(
            &signs[..],
            [KernelSign::Xid(Evidence::Xid { pid: None, number: 43, .. }), KernelSign::OutOfMemory(None)]
        ));
    });
}

#[test]
fn pids_of_the_first_namespace_are_looked_up_where_its_proc_is() {
    let there = OtherProc::open(Path::new(crate::sys::proc::FOLDER)).unwrap();
    if !there.is_first() {
        println!("Skipped(the first process can't be looked at, or is of a namespace of its own)");
        return;
    }
    run(async {
        let (writer, log) = log(false);
        let mut log = log.looking_up(Some(&there));
        assert!(log.names_processes());
        let own = std::process::id();
        // The kernel gives no pid as large as the second one's.
        for pid in [own, 4_194_304] {
            writer
                .send(format!("3,1,2,-;NVRM: Xid (PCI:0000:3b:00): 43, pid={pid}, name=x, Ch 00000012\n").as_bytes())
                .unwrap();
        }
        let signs = log.next().await.unwrap();
        let pids: Vec<_> = signs
            .iter()
            .map(|sign| {
                let KernelSign::Xid(Evidence::Xid { pid, .. }) = sign else { panic!("{sign:?}") };
                *pid
            })
            .collect();
        assert_eq!(pids, [Some(own), None]);
    });
}

#[test]
fn a_flood_is_taken_in_bounded_turns_and_then_waited_out() {
    run(async {
        // Before the log's first period begins.
        let began = Instant::now();
        let (writer, mut log) = log(true);
        writer.set_nonblocking(true).unwrap();
        let mut written = 0_u64;
        let mut turns = 0;
        // A little more than one period's share, so that the reader must wait once.
        while log.expected.unwrap_or(0) <= u64::from(RECORDS_PER_PERIOD) {
            while writer.send(format!("6,{written},1,-;flood\n").as_bytes()).is_ok() {
                written += 1;
            }
            let before = log.expected.unwrap_or(0);
            log.next().await.unwrap();
            assert!(log.expected.unwrap_or(0) - before <= u64::from(RECORDS_PER_TURN));
            turns += 1;
        }
        assert!(turns > RECORDS_PER_PERIOD / RECORDS_PER_TURN);
        assert!(began.elapsed() >= PERIOD, "the share of one period was exceeded");
        assert_eq!(log.lost(), 0);
    });
}

#[test]
fn a_log_that_ends_is_an_error() {
    run(async {
        let (writer, reader) = std::os::unix::net::UnixStream::pair().unwrap();
        reader.set_nonblocking(true).unwrap();
        let mut log = Kmsg::from_fd(reader.into(), true).unwrap();
        drop(writer);
        assert_eq!(log.next().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    });
}

#[test]
fn what_is_not_the_log_is_told_apart() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kmsg");
        assert!(matches!(Kmsg::open(&path), Err(KmsgError::Absent(_))));
        std::fs::write(&path, "").unwrap();
        assert!(matches!(Kmsg::open(&path), Err(KmsgError::Foreign(_))));
        assert!(matches!(Kmsg::open(Path::new("/dev/null")), Err(KmsgError::Foreign(_))));
    });
}

#[test]
fn the_real_log_is_read_from_its_end() {
    run(async {
        let mut log = match Kmsg::open(Path::new(KERNEL_LOG)) {
            Ok(log) => log,
            Err(error) => {
                println!("Skipped({error})");
                return;
            }
        };
        // Nothing that another reader of this machine's log could take for a fault.
        let line = "remps: a line of a test\n";
        if let Err(error) = std::fs::write(KERNEL_LOG, line) {
            println!("Skipped(the log can't be written: {error})");
            return;
        }
        while log.expected.is_none() {
            assert_eq!(log.next().await.unwrap(), []);
        }
        assert_eq!((log.lost(), log.unreadable), (0, 0));
    });
}
