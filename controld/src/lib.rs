//! The control daemon that replaces `nvidia-cuda-mps-control`.
