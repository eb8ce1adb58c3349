//! Defaults, as commands set them and as they are shown.

use super::*;

fn apply(defaults: &mut Defaults, line: &str) -> Applied {
    let command = Command::parse(line.as_bytes(), Personality::V580);
    defaults.apply(&command).expect("a command about defaults")
}

#[test]
fn an_invalid_value_leaves_the_old_one_and_is_remarked_in_the_log() {
    let mut defaults = Defaults::default();
    assert_eq!(apply(&mut defaults, "set_default_active_thread_percentage 33").answer, ["33.0"]);
    let refused = apply(&mut defaults, "set_default_active_thread_percentage 101");
    assert_eq!((refused.answer, refused.changed), (vec!["33.0".to_owned()], false));
    assert!(refused.remark.is_some());

    assert!(apply(&mut defaults, "set_default_device_pinned_mem_limit 0 1G").changed);
    for bad in ["0 10K", "0 -1G", "0 x", "0", "", "x 4G", "99 4G"] {
        let refused = apply(&mut defaults, &format!("set_default_device_pinned_mem_limit {bad}"));
        assert!(!refused.changed && refused.answer.is_empty() && refused.remark.is_some(), "{bad:?}");
    }
    assert_eq!(apply(&mut defaults, "get_default_device_pinned_mem_limit 0").answer, ["1G"]);
}

#[test]
fn the_limit_set_last_is_the_last_of_the_list() {
    let mut defaults = Defaults::default();
    for line in ["0 1G", "GPU-74d43ed3 2G", "1 3G", "0 4G", "1 0G"] {
        apply(&mut defaults, &format!("set_default_device_pinned_mem_limit {line}"));
    }
    let limits: Vec<_> = defaults.limits().iter().map(|(device, limit)| format!("{device}={limit}")).collect();
    assert_eq!(limits, ["GPU-74d43ed3=2G", "0=4G"]);
}

#[test]
fn the_list_of_limits_is_bounded() {
    let mut defaults = Defaults::default();
    for number in 0..=Defaults::MAX_LIMITS {
        let kept = defaults.set_limit(DeviceKey::Uuid(format!("GPU-{number:08x}")), MemLimit(1 << 30));
        assert_eq!(kept, number < Defaults::MAX_LIMITS);
    }
}

#[test]
fn what_is_written_is_read_again_whole_or_not_at_all() {
    let mut defaults = Defaults::default();
    assert_eq!(defaults.written(), "threads=100 priority=0");
    for line in
        ["active_thread_percentage 33.3", "device_pinned_mem_limit GPU-74d43ed3 8192M", "device_pinned_mem_limit 0 4G"]
    {
        assert!(apply(&mut defaults, &format!("set_default_{line}")).changed);
    }
    let line = defaults.written();
    assert_eq!(line, "threads=33.3 priority=0 memory=GPU-74d43ed3:8589934592 memory=0:4294967296");
    assert_eq!(Defaults::parse(&line), Some(defaults));
    assert_eq!(Defaults::parse(""), Some(Defaults::default()));
    for wrong in [
        "x",
        "threads=0x1",
        "threads=101",
        "priority=7",
        "memory=0",
        "memory=0:",
        "memory=0:0",
        "memory=:1",
        "memory=x y:1",
    ] {
        assert_eq!(Defaults::parse(&format!("{line} {wrong}")), None, "{wrong}");
    }
    let many: String = (0..=Defaults::MAX_LIMITS).map(|number| format!("memory=GPU-{number:08x}:1 ")).collect();
    assert_eq!(Defaults::parse(&many), None, "less than all is none to go by");
}
