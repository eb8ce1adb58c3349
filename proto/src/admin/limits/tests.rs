//! Limits of device memory, as the vendor's command takes them.

use super::*;

fn limit(text: &str) -> Result<String, InvalidMemLimit> {
    MemLimit::parse(text.as_bytes()).map(|limit| limit.to_string())
}

#[test]
fn a_memory_limit_is_read_in_g_and_m_and_shown_rounded_down() {
    for (text, want) in [
        ("4096M", "4G"),
        ("1044M", "1G"),
        ("900M", "900M"),
        ("10G", "10G"),
        ("8GB", "8G"),
        ("9mb", "9M"),
        ("6g", "6G"),
        ("10", "10M"),
        ("+3G", "3G"),
        ("512MiB", "512M"),
        ("17179869183G", "17179869183G"),
    ] {
        assert_eq!(limit(text).as_deref(), Ok(want), "{text:?}");
    }
    assert!(MemLimit::parse(b"0G").is_ok_and(MemLimit::is_none));
}

#[test]
fn a_memory_limit_that_the_vendor_would_misread_is_refused() {
    for (text, want) in [
        ("10K", InvalidMemLimit::Unit),
        ("1.5G", InvalidMemLimit::Unit),
        ("0x2G", InvalidMemLimit::Unit),
        ("-1G", InvalidMemLimit::NoNumber),
        ("x", InvalidMemLimit::NoNumber),
        ("G", InvalidMemLimit::NoNumber),
        ("", InvalidMemLimit::NoNumber),
        ("17179869184G", InvalidMemLimit::TooLarge),
        ("99999999999999999999999M", InvalidMemLimit::TooLarge),
    ] {
        assert_eq!(limit(text), Err(want), "{text:?}");
    }
}

#[test]
fn a_device_is_an_ordinal_below_32_or_a_uuid() {
    let uuid = "GPU-74d43ed3-cdf7-e667-3644-bf5b4f46ed65";
    assert_eq!(DeviceKey::parse(b"31"), Ok(DeviceKey::Ordinal(31)));
    assert_eq!(DeviceKey::parse(b"01"), Ok(DeviceKey::Ordinal(1)));
    assert_eq!(DeviceKey::parse(uuid.as_bytes()), Ok(DeviceKey::Uuid(uuid.to_owned())));
    assert!(DeviceKey::parse(b"GPU-74d43ed3").is_ok());
    for bad in ["32", "-1", "x", "2abc", "", "GPU-", "GPU-xyz", "GPU-74d43ed3-cdf7-e667-3644-bf5b4f46ed65a"] {
        assert_eq!(DeviceKey::parse(bad.as_bytes()), Err(InvalidDevice), "{bad:?}");
    }
}

#[test]
fn one_bad_entry_of_the_environment_leaves_the_others_alone() {
    let parsed = parse_device_limits("0=1G, 1=512MB,GPU-74d43ed3=2G,2,x=1G,3=1K,");
    let good: Vec<_> = parsed.iter().flatten().map(|(device, limit)| format!("{device}={limit}")).collect();
    assert_eq!(good, ["0=1G", "1=512M", "GPU-74d43ed3=2G"]);
    let bad: Vec<_> = parsed.iter().filter_map(|entry| entry.as_ref().err()).map(ToString::to_string).collect();
    assert_eq!(bad, ["\"2\" is not device=limit", "\"x=1G\" names no device", "\"3=1K\": a memory limit is in G or M"]);
}
