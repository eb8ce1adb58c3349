//! What the fat binaries and cubins in files have: `census [--gpu 90] FILE…`, libraries and programs among them. One line a
//! file, then a sum; nothing of what is read is written anywhere.
#![expect(clippy::print_stdout, reason = "its output")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use remps_gpu_code::{Contents, ELF, FAT, Gpus, UNKNOWN_STACK, fat};

#[derive(Default)]
struct Sum {
    images: u64,
    parts: u64,
    fixed: u64,
    with_variables: u64,
    heaps: u64,
    with_stack: u64,
    without_a_bound: u64,
    kernels: BTreeMap<String, u64>,
    most_variables: usize,
    most_bytes: u64,
    bytes: u64,
    read: u64,
    longest: Duration,
    unread: BTreeMap<String, u64>,
    names: BTreeMap<String, u64>,
}

impl Sum {
    fn look(&mut self, image: &[u8], gpus: &Gpus) {
        let begun = Instant::now();
        let contents = Contents::of(image, gpus);
        self.longest = self.longest.max(begun.elapsed());
        self.images += 1;
        self.read += image.len() as u64;
        self.parts += fat::parts(image).map_or(1, |parts| parts.len() as u64);
        let written = contents.written().count();
        self.fixed += u64::from(contents.is_fixed());
        self.with_variables += u64::from(written > 0);
        self.heaps += u64::from(contents.has_heap);
        let unbounded = contents.stacks.values().filter(|bytes| **bytes == UNKNOWN_STACK).count();
        self.with_stack += (contents.stacks.len() - unbounded) as u64;
        self.without_a_bound += unbounded as u64;
        for (name, _) in contents.stacks.iter().filter(|(_, bytes)| **bytes == UNKNOWN_STACK) {
            *self.kernels.entry(name.chars().take(60).collect()).or_default() += 1;
        }
        self.most_variables = self.most_variables.max(written);
        self.most_bytes = self.most_bytes.max(contents.bytes);
        self.bytes += contents.bytes;
        for name in contents.written() {
            *self.names.entry(name.chars().take(60).collect()).or_default() += 1;
        }
        for why in contents.unread {
            *self.unread.entry(why).or_default() += 1;
        }
    }

    fn print(&self, name: &str) {
        println!(
            "{name}: {} images of {} MiB with {} parts; fixed {}, with variables {} (most {}, {} bytes; {} bytes in all), \
             with the heap {}, kernels with stack {}, with any {}, longest look {:?}, not read {:?}",
            self.images,
            self.read >> 20,
            self.parts,
            self.fixed,
            self.with_variables,
            self.most_variables,
            self.most_bytes,
            self.bytes,
            self.heaps,
            self.with_stack,
            self.without_a_bound,
            self.longest,
            self.unread
        );
    }
}

/// The length of a fat binary that begins here.
fn length(bytes: &[u8]) -> Option<usize> {
    let header = usize::from(u16::from_le_bytes(*bytes.get(6..)?.first_chunk()?));
    let parts = usize::try_from(u64::from_le_bytes(*bytes.get(8..)?.first_chunk()?)).ok()?;
    header.checked_add(parts).filter(|length| header == 16 && *length <= bytes.len() && parts > 0)
}

fn main() {
    let mut capability = 90;
    let mut all = Sum::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--gpu" {
            capability = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(capability);
            continue;
        }
        let gpus = Gpus::new(vec![capability]);
        let Ok(bytes) = std::fs::read(&argument) else { continue };
        let mut sum = Sum::default();
        // A cubin is one image; whatever else has fat binaries has them at multiples of eight.
        if bytes.starts_with(&ELF) && bytes.get(18..20) == Some(&190_u16.to_le_bytes()) || argument.ends_with(".ptx") {
            sum.look(&bytes, &gpus);
            all.look(&bytes, &gpus);
        }
        let mut at = 0;
        while at + 16 <= bytes.len() {
            match length(&bytes[at..]).filter(|_| bytes[at..].starts_with(&FAT)) {
                Some(length) => {
                    sum.look(&bytes[at..at + length], &gpus);
                    all.look(&bytes[at..at + length], &gpus);
                    at += length.next_multiple_of(8);
                }
                None => at += 8,
            }
        }
        if sum.images > 0 {
            sum.print(&argument);
        }
    }
    all.print("all");
    let mut kernels: Vec<_> = all.kernels.iter().collect();
    kernels.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    kernels.iter().take(25).for_each(|(name, count)| println!("  any stack: {count} {name}"));
    let mut names: Vec<_> = all.names.into_iter().collect();
    names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    names.iter().take(25).for_each(|(name, count)| println!("  {count} {name}"));
}
