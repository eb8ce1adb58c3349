//! The grammar, row by row as measured on 535 and 550, and whatever bytes come in.

use super::*;
use proptest::prelude::*;

fn parse(line: &str) -> Command {
    Command::parse(line.as_bytes(), Personality::V595)
}

#[test]
fn blanks_carriage_returns_and_a_nul_do_not_matter() {
    for line in ["get_client_list 5", "\tget_client_list 5", " get_client_list\t 5 \r\n", "get_client_list \x0b5\0junk"]
    {
        assert_eq!(parse(line), Command::GetClientList { server: 5 }, "{line:?}");
    }
}

#[test]
fn an_unknown_command_is_named_by_its_first_word() {
    for (line, word) in [
        ("a b c d", "a"),
        ("GET_SERVER_LIST", "GET_SERVER_LIST"),
        ("get_server_list;ps", "get_server_list;ps"),
        ("get_client_list7", "get_client_list7"),
        ("quitx", "quitx"),
        (" foo \r\n", "foo"),
        ("", ""),
        ("\n", ""),
    ] {
        assert_eq!(parse(line), Command::Unknown(word.to_owned()), "{line:?}");
    }
    assert_eq!(Command::parse(b"\xff", Personality::V535), Command::Unknown("\u{fffd}".to_owned()));
}

#[test]
fn a_command_newer_than_the_release_is_unknown() {
    for (line, since) in [
        ("get_server_status", Personality::V550),
        ("device_query", Personality::V580),
        ("sm_partition", Personality::V595),
        ("lspart", Personality::V595),
    ] {
        for personality in Personality::ALL {
            let unknown = Command::parse(line.as_bytes(), personality) == Command::Unknown(line.to_owned());
            assert_eq!(unknown, personality < since, "{line} on {personality}");
        }
    }
}

#[test]
fn a_server_without_a_readable_pid_is_server_0_or_none() {
    assert_eq!(parse("get_client_list abc"), Command::GetClientList { server: 0 });
    assert_eq!(parse("get_server_status abc"), Command::GetServerStatus { server: None });
    assert_eq!(parse("get_server_status 0"), Command::GetServerStatus { server: Some(0) });
    assert_eq!(parse("get_device_client_list abc"), Command::GetDeviceClientList { server: None });
    assert_eq!(parse("get_device_client_list 0"), Command::GetDeviceClientList { server: None });
    assert_eq!(parse("get_device_client_list -1"), Command::GetDeviceClientList { server: Some(-1) });
    assert_eq!(parse("terminate_client 12abc 5"), Command::TerminateClient { server: 12, client: 5 });
    assert_eq!(parse("shutdown_server -f 1"), Command::ShutdownServer { server: 0, force: false });
    assert_eq!(parse("shutdown_server 1 -f"), Command::ShutdownServer { server: 1, force: true });
}

#[test]
fn ps_takes_its_option_only_as_the_second_word() {
    for (line, server) in [
        ("ps", None),
        ("ps x", None),
        ("ps 5", None),
        ("ps -x -p 5", None),
        ("ps --p 5", None),
        ("ps -p", Some(0)),
        ("ps -p abc", Some(0)),
        ("ps -p5x", Some(5)),
        ("ps  -p  5", Some(5)),
        ("ps -p 5 -p 6", Some(5)),
        ("ps -p -1", Some(-1)),
    ] {
        assert_eq!(parse(line), Command::Ps { server }, "{line:?}");
    }
}

#[test]
fn start_server_needs_a_user_that_is_a_number() {
    for (line, uid) in [
        ("start_server", None),
        ("start_server 1000", None),
        ("start_server -uid", None),
        ("start_server -uid abc", None),
        ("start_server -uid -", None),
        ("start_server 5 -uid 0", None),
        ("start_server -uid=0", None),
        ("start_server -UID 0", None),
        ("start_server -uid 0 extra", Some(0)),
        ("start_server -uid 65534x", Some(65534)),
        ("start_server -uid 0x7", Some(0)),
        ("start_server -uid +5", Some(5)),
        ("start_server -uid -1", None),
        ("start_server -uid 99999999999", None),
        ("start_server -uid 4294967295", None),
    ] {
        assert_eq!(parse(line), Command::StartServer { uid, mlopart: false }, "{line:?}");
    }
    let line = b"start_server -uid 7 -mlopart";
    assert_eq!(Command::parse(line, Personality::V595), Command::StartServer { uid: Some(7), mlopart: true });
    assert_eq!(Command::parse(line, Personality::V580), Command::StartServer { uid: Some(7), mlopart: false });
}

#[test]
fn quit_without_a_readable_number_of_seconds_waits() {
    for (line, timeout_s) in [
        ("quit", None),
        ("quit 5", None),
        ("quit -x", None),
        ("quit -t", None),
        ("quit -t abc", None),
        ("quit -t1", None),
        ("quit -t -1", None),
        ("quit -t 0", Some(0)),
        ("quit -t 2", Some(2)),
        ("quit -t 1.5", Some(1)),
        ("quit -t 99999999999", Some(u32::MAX)),
    ] {
        assert_eq!(parse(line), Command::Quit { timeout_s }, "{line:?}");
    }
}

#[test]
fn a_question_for_a_limit_reads_any_other_word_as_device_0() {
    let ask = |line| parse(line);
    let ordinal = |ordinal| Command::GetDefaultDevicePinnedMemLimit { device: Ok(DeviceKey::Ordinal(ordinal)) };
    assert_eq!(Command::parse(b"get_default_device_pinned_mem_limit", Personality::V555), ordinal(0));
    assert_eq!(ask("get_default_device_pinned_mem_limit abc"), ordinal(0));
    assert_eq!(ask("get_default_device_pinned_mem_limit 01 x"), ordinal(1));
    let invalid = Command::GetDefaultDevicePinnedMemLimit { device: Err(InvalidDevice) };
    assert_eq!(ask("get_default_device_pinned_mem_limit"), invalid);
    assert_eq!(ask("get_default_device_pinned_mem_limit 32"), invalid);
    assert_eq!(ask("get_default_device_pinned_mem_limit -1"), invalid);
}

#[test]
fn device_query_and_sm_partition_take_their_arguments() {
    assert_eq!(parse("device_query"), Command::DeviceQuery { server: None, csv: false });
    assert_eq!(parse("device_query 5 --csv"), Command::DeviceQuery { server: Some(5), csv: true });
    assert_eq!(parse("device_query --csv"), Command::DeviceQuery { server: None, csv: true });
    let device = "GPU-74d43ed3".to_owned();
    assert_eq!(
        parse("sm_partition add GPU-74d43ed3 7"),
        Command::SmPartition(SmPartition::Add { device: device.clone(), chunks: 7 })
    );
    assert_eq!(
        parse("sm_partition rm GPU-74d43ed3 Jx"),
        Command::SmPartition(SmPartition::Remove { device, partition: "Jx".to_owned() })
    );
    for line in [
        "sm_partition",
        "sm_partition add",
        "sm_partition add GPU-7 0",
        "sm_partition add GPU-7 x",
        "sm_partition rm GPU-7",
    ] {
        assert_eq!(parse(line), Command::SmPartition(SmPartition::Invalid), "{line:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
        for personality in Personality::ALL {
            let _ = Command::parse(&line, personality);
        }
    }

    #[test]
    fn any_arguments_of_a_known_command_are_read_and_keep_its_name(
        index in 0..CommandName::ALL.len(),
        arguments in proptest::collection::vec("-?[a-zA-Z0-9.=_-]{0,24}", 0..5),
    ) {
        let name = CommandName::ALL[index];
        let line = format!("{name} {}", arguments.join(" "));
        prop_assert_eq!(Command::parse(line.as_bytes(), Personality::V595).name(), Some(name));
    }

    #[test]
    fn white_space_around_words_changes_nothing(
        words in proptest::collection::vec("[a-z_0-9-]{1,12}", 1..4),
        index in 0..CommandName::ALL.len(),
        gap in "[ \t\r\x0b\x0c]{1,4}",
    ) {
        let plain = format!("{} {}", CommandName::ALL[index], words.join(" "));
        let spaced = format!("{gap}{}{gap}\n", plain.replace(' ', &gap));
        // Every word here is a plain one, so equality needs no care for NaN.
        prop_assert_eq!(
            Command::parse(plain.as_bytes(), Personality::V595),
            Command::parse(spaced.as_bytes(), Personality::V595)
        );
    }
}
