//! Small C programs, and a few large ones, run with the built library in `LD_PRELOAD`.

#[cfg(test)]
mod cost;
#[cfg(test)]
mod floors;
#[cfg(test)]
mod harmless;
#[cfg(test)]
mod lab;
#[cfg(test)]
mod lookup;
#[cfg(test)]
mod real_driver;
#[cfg(test)]
mod require;
