//! Kills for want of memory, as the kernel tells of them (`mm/oom_kill.c`).
//!
//! Since Linux 4.19 two lines belong to a kill: `oom-kill:constraint=…,task=NAME,pid=N,uid=N`, and then `Memory cgroup
//! out of memory: Killed process N (NAME) …` or `Out of memory: Killed process N (NAME) …`. A group that is killed as one
//! (`memory.oom.group`) has one of the second kind for each process. Older kernels say `Kill process` and then `Killed
//! process` alone. A process chooses its name, so nothing behind a name is believed: the number before it is.

const OUT_OF_MEMORY: &str = "ut of memory";
const KILLED: &str = "Killed process ";

/// The pid, in the initial PID namespace, that a line of the kernel says was killed for want of memory.
pub(crate) fn killed_pid(text: &str) -> Option<u32> {
    let rest = match text.split_once(KILLED)? {
        ("", rest) => rest,
        (before, rest) if before.contains(OUT_OF_MEMORY) && !before.contains('(') => rest,
        // As in `Out of memory (oom_kill_allocating_task): Killed process …`.
        (before, rest) if before.starts_with("Out of memory (") => rest,
        _ => return None,
    };
    let (number, name) = rest.split_once([' ', ',', '\t'])?;
    name.starts_with('(').then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_kernels_of_ten_years_are_understood() {
        for (text, pid) in [
            (
                "Memory cgroup out of memory: Killed process 1234 (python3) total-vm:9020kB, anon-rss:7712kB, UID:0",
                1234,
            ),
            ("Out of memory: Killed process 77 (stress) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB", 77),
            ("Out of memory (oom_kill_allocating_task): Killed process 5 (a b) total-vm:1kB", 5),
            ("Killed process 9001 (java) total-vm:5641636kB, anon-rss:3203848kB, file-rss:0kB", 9001),
        ] {
            assert_eq!(killed_pid(text), Some(pid), "{text}");
        }
    }

    #[test]
    fn what_is_about_a_kill_and_is_none_is_left_alone() {
        for text in [
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,task=x,pid=12,uid=0",
            "Out of memory: Kill process 12 (java) score 1000 or sacrifice child",
            "oom_reaper: reaped process 12 (java), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
            "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
            "Tasks in /docker/abc are going to be killed due to memory.oom.group set",
            "Memory cgroup out of memory: Killed process x (python3) total-vm:9020kB",
            "Memory cgroup out of memory: Killed process 12",
        ] {
            assert_eq!(killed_pid(text), None, "{text}");
        }
    }

    #[test]
    fn a_name_cannot_put_another_pid_into_the_line() {
        let text = "Memory cgroup out of memory: Killed process 12 (Killed process 1) total-vm:9020kB";
        assert_eq!(killed_pid(text), Some(12));
        let text = "x (out of memory: Killed process 1 (a) invoked oom-killer: gfp_mask=0xcc0";
        assert_eq!(killed_pid(text), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}", head in "(Memory cgroup o|O)ut of memory: Killed process [0-9a-z ()]{0,20}") {
            let _ = (killed_pid(&text), killed_pid(&head));
        }
    }
}
