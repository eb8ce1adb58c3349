//! Who the program's user is to a daemon, which may be outside the user namespace that the program is in.
//!
//! The daemon learns it from the kernel when the program connects; this is for what has to be known before that, and
//! nobody but the program itself is concerned when it is wrong.

use std::{
    fs::{self, File},
    io::Read as _,
    os::unix::fs::MetadataExt,
};

use nix::unistd::getuid;

/// Which user namespace this process is in.
const NAMESPACE: &str = "/proc/self/ns/user";
/// Which users outside those of the namespace are.
const USERS: &str = "/proc/self/uid_map";
/// The kernel has 340 lines there at most.
const MOST_BYTES: u64 = 16 << 10;

/// The number of this process's user for who is in this user namespace: the process's own, or the one around it. `None`
/// when that can't be found out. Where it is not said which namespace, it is taken for the process's own.
///
/// It is the user who the kernel says has sent a packet: not the one as whom he opens files.
pub(crate) fn known_in(namespace: Option<u64>) -> Option<u32> {
    let user = getuid().as_raw();
    let own = fs::metadata(NAMESPACE).ok().map(|found| found.ino());
    match (namespace, own) {
        (Some(wanted), Some(own)) if wanted != own => outside(&map()?, user),
        _ => Some(user),
    }
}

fn map() -> Option<String> {
    let mut text = String::new();
    File::open(USERS).ok()?.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Which user of the namespace around it a user of a namespace is.
fn outside(map: &str, user: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u32>().ok());
        let [inner, outer, count] = [numbers.next()??, numbers.next()??, numbers.next()??];
        let place = user.checked_sub(inner).filter(|place| *place < count)?;
        outer.checked_add(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_of_a_namespace_is_the_one_that_the_kernels_map_says() {
        let map = "         0       1001          1\n      1000     100000      65536\n";
        let wanted = [(0, Some(1001)), (1, None), (999, None), (1000, Some(100_000)), (66535, Some(165_535))];
        for (inner, outer) in wanted.into_iter().chain([(66536, None)]) {
            assert_eq!(outside(map, inner), outer, "{inner}");
        }
        assert_eq!(outside("0 0 4294967295\n", 1001), Some(1001));
        for odd in ["", "0\n", "0 1\n", "x y z\n", "0 4294967295 2\n"] {
            assert_eq!(outside(odd, 1), None, "{odd:?}");
        }
    }

    #[test]
    fn who_is_where_the_daemon_is_has_its_own_number_there() {
        let own = fs::metadata(NAMESPACE).unwrap().ino();
        let user = getuid().as_raw();
        assert_eq!([known_in(None), known_in(Some(own))], [Some(user); 2]);
        assert_eq!(known_in(Some(own + 1)), outside(&map().unwrap(), user));
    }
}
