//! Copies in several dimensions, and those from and to arrays: row by row, in a stream's order.

use super::array::find;
use crate::abi::{In, entry_points};
use crate::allocations;
use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::contexts::current;
use crate::driver::{Tables, driver};
use crate::graphs::Task;
use crate::stream::NULL_STREAM;
use std::sync::{Arc, Mutex, PoisonError};

/// `CU_MEMORYTYPE_HOST`, `…_DEVICE`, `…_ARRAY`, `…_UNIFIED`.
const HOST: u64 = 1;
const DEVICE: u64 = 2;
const ARRAY: u64 = 3;
const UNIFIED: u64 = 4;

/// One end of a row.
#[derive(Clone, Copy)]
enum End {
    /// The host's memory.
    At(usize),
    /// A device's.
    On(usize),
    /// So many bytes into an array.
    In(usize, usize),
}

/// A row: where to, where from, and bytes.
type Row = (End, End, usize);

impl End {
    /// Where its bytes are now.
    fn place(self, tables: &Tables, size: usize) -> Outcome<usize> {
        match self {
            Self::At(address) => Ok(address),
            Self::On(address) if tables.ranges.is_accessible(address, size) => Ok(address),
            Self::On(_) => Err(Code::INVALID_VALUE),
            Self::In(array, offset) => {
                let array = find(tables, array)?;
                if offset as u64 + size as u64 > array.shape.bytes() {
                    return Err(Code::INVALID_VALUE);
                }
                // There is no memory.
                if array.bytes == 0 { Err(Code::LAUNCH_FAILED) } else { Ok(array.bytes + offset) }
            }
        }
    }

    /// By its address: what is device memory when the copy is asked for must still be when its turn comes, and so is host
    /// memory that the driver knows. The rest is read and written while the call lasts.
    fn unified(tables: &Tables, address: usize) -> Self {
        if tables.ranges.find(address).is_some() { Self::On(address) } else { Self::At(address) }
    }
}

/// Copies rows in a stream's order.
fn copy(rows: Vec<Row>, words: &[u64; 25], stream: usize, is_waiting: bool) -> Outcome {
    let (driver, context) = current()?;
    context.check()?;
    let found = super::stream::find(&context, stream)?;
    {
        // A context that dies takes its variables with it and says so, both with the tables in hand.
        let tables = context.at_work(driver)?;
        for (to, from, size) in &rows {
            for end in [to, from] {
                match end.place(&tables, *size) {
                    Ok(_) | Err(Code::LAUNCH_FAILED) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    if driver.is_captured(stream, &Task::Copy(*words))? {
        return Ok(());
    }
    let (staged, is_to_host) = {
        let staged: Vec<Option<Vec<u8>>> = rows
            .iter()
            .map(|(_, from, size)| {
                let End::At(address) = *from else { return None };
                let mut bytes = vec![0_u8; *size];
                allocations::copy(bytes.as_mut_ptr().expose_provenance(), address, *size);
                Some(bytes)
            })
            .collect();
        (staged, rows.iter().any(|(to, ..)| matches!(to, End::At(_))))
    };
    let is_wanted = Arc::new(Mutex::new(true));
    let wanted = Arc::clone(&is_wanted);
    let operation = move |context: &Context| {
        context.pass_time(Some(driver.copy_time))?;
        let tables = context.at_work(driver)?;
        let wanted = wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if !*wanted {
            return Ok(());
        }
        for ((to, from, size), staged) in rows.iter().zip(&staged) {
            let to = to.place(&tables, *size)?;
            let from = match staged {
                Some(bytes) => bytes.as_ptr().expose_provenance(),
                None => from.place(&tables, *size)?,
            };
            tables.ranges.copy(to, from, *size);
        }
        Ok(())
    };
    let ticket = found.enqueue(&context, Box::new(operation))?;
    if is_waiting || is_to_host {
        let waited = context.wait_until(|state| state.has_reached(ticket));
        if waited.is_err() {
            *is_wanted.lock().unwrap_or_else(PoisonError::into_inner) = false;
        }
        return waited;
    }
    Ok(())
}

fn number(word: u64) -> Outcome<usize> {
    usize::try_from(word).map_err(|_| Code::INVALID_VALUE)
}

/// The rows of one side of `CUDA_MEMCPY3D`, layer by layer.
fn ends(side: &[u64; 11], [width, height, depth]: [u64; 3]) -> Outcome<Vec<End>> {
    let [x, y, z, _level, kind, host, device, array, _, pitch, rows] = *side;
    let (pitch, rows) = (if pitch == 0 { width } else { pitch }, if rows == 0 { height } else { rows });
    let base = match kind & 0xffff_ffff {
        HOST => host,
        DEVICE | UNIFIED => device,
        ARRAY => {
            let handle = number(array)?;
            let shape = find(&driver()?.tables(), handle)?.shape;
            let [wide, high, deep, ..] = shape.0;
            if x + width > wide * shape.element() || y + height > high.max(1) || z + depth > deep.max(1) {
                return Err(Code::INVALID_VALUE);
            }
            let places = (0..depth).flat_map(|layer| (0..height).map(move |row| [x, y + row, z + layer]));
            return places.map(|place| Ok(End::In(handle, number(shape.offset(place))?))).collect();
        }
        _ => return Err(Code::INVALID_VALUE),
    };
    if base == 0 || pitch < x + width {
        return Err(Code::INVALID_VALUE);
    }
    let places = (0..depth).flat_map(|layer| (0..height).map(move |row| ((z + layer) * rows + y + row) * pitch + x));
    let is_device = kind & 0xffff_ffff == DEVICE;
    let driver = driver()?;
    let tables = driver.tables();
    let end = |address| if is_device { End::On(address) } else { End::unified(&tables, address) };
    places.map(|offset| Ok(end(number(base + offset)?))).collect()
}

pub(super) fn solid(words: &[u64; 25], stream: usize, is_waiting: bool) -> Outcome {
    let size = [words[22], words[23], words[24]];
    let side = |first: usize| <[u64; 11]>::try_from(&words[first..first + 11]).map_err(|_| Code::UNKNOWN);
    let (from, to) = (ends(&side(0)?, size)?, ends(&side(11)?, size)?);
    let width = number(size[0])?;
    let rows = to.into_iter().zip(from).map(|(to, from)| (to, from, width)).collect();
    copy(rows, words, stream, is_waiting)
}

/// `CUDA_MEMCPY2D` as `CUDA_MEMCPY3D`.
pub(super) fn flat(words: &[u64; 16], stream: usize, is_waiting: bool) -> Outcome {
    let mut solid_words = [0; 25];
    for (from, to) in [(0, 0), (7, 11)] {
        let side = &words[from..from + 7];
        solid_words[to..to + 2].copy_from_slice(&side[..2]);
        solid_words[to + 4..to + 8].copy_from_slice(&side[2..6]);
        solid_words[to + 9] = side[6];
    }
    solid_words[22..].copy_from_slice(&[words[14], words[15], 1]);
    solid(&solid_words, stream, is_waiting)
}

/// One row, or what counts as one.
fn row(to: End, from: End, size: usize, stream: usize, is_waiting: bool) -> Outcome {
    let [to, from] = {
        let driver = driver()?;
        let tables = driver.tables();
        [to, from].map(|end| if let End::At(address) = end { End::unified(&tables, address) } else { end })
    };
    let mut words = [0; 25];
    for (first, end) in [(0, from), (11, to)] {
        match end {
            End::At(address) | End::On(address) => (words[first + 4], words[first + 6]) = (UNIFIED, address as u64),
            End::In(array, offset) => {
                (words[first], words[first + 4], words[first + 7]) = (offset as u64, ARRAY, array as u64);
            }
        }
    }
    words[22..].copy_from_slice(&[size as u64, 1, 1]);
    copy(vec![(to, from, size)], &words, stream, is_waiting)
}

entry_points! {
    fn cuMemcpy2D_v2(asked: In<[u64; 16]>) {
        flat(&asked.get()?, NULL_STREAM, true)
    }

    fn cuMemcpy2DAsync_v2(asked: In<[u64; 16]>, stream: usize) {
        flat(&asked.get()?, stream, false)
    }

    fn cuMemcpy3D_v2(asked: In<[u64; 25]>) {
        solid(&asked.get()?, NULL_STREAM, true)
    }

    fn cuMemcpy3DAsync_v2(asked: In<[u64; 25]>, stream: usize) {
        solid(&asked.get()?, stream, false)
    }

    fn cuMemcpyAtoH_v2(to: usize, array: usize, offset: usize, size: usize) {
        row(End::At(to), End::In(array, offset), size, NULL_STREAM, true)
    }

    fn cuMemcpyAtoHAsync_v2(to: usize, array: usize, offset: usize, size: usize, stream: usize) {
        row(End::At(to), End::In(array, offset), size, stream, false)
    }

    fn cuMemcpyHtoA_v2(array: usize, offset: usize, from: usize, size: usize) {
        row(End::In(array, offset), End::At(from), size, NULL_STREAM, true)
    }

    fn cuMemcpyHtoAAsync_v2(array: usize, offset: usize, from: usize, size: usize, stream: usize) {
        row(End::In(array, offset), End::At(from), size, stream, false)
    }

    fn cuMemcpyAtoD_v2(to: usize, array: usize, offset: usize, size: usize) {
        row(End::On(to), End::In(array, offset), size, NULL_STREAM, true)
    }

    fn cuMemcpyDtoA_v2(array: usize, offset: usize, from: usize, size: usize) {
        row(End::In(array, offset), End::On(from), size, NULL_STREAM, true)
    }

    fn cuMemcpyAtoA_v2(to: usize, to_offset: usize, from: usize, from_offset: usize, size: usize) {
        row(End::In(to, to_offset), End::In(from, from_offset), size, NULL_STREAM, true)
    }
}
