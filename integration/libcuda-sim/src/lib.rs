//! A simulated CUDA driver library that speaks the real MPS wire.
