//! The preloaded library for CUDA programs under ReMPS.
