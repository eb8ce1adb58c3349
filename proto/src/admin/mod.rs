//! The text commands of `nvidia-cuda-mps-control`: their grammar and the exact texts of the vendor's answers.
