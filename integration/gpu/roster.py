"""The programs of others that the suite `programs` runs: the file of each, what it is told, and what must be there.

Python's are in `guests/`, and in `guests/samples/` those in CUDA C++.
"""

from pathlib import Path

HERE = Path(__file__).resolve().parent
GUESTS = HERE / "guests"
# Beside the sources in the repository, beside the programs where they were carried to a machine without them.
KERNELS = next((p for p in (HERE.parent / "src/programs/kernels.ptx", HERE.parent / "kernels.ptx") if p.exists()), Path("kernels.ptx"))
ALLOCATORS = {"native": "backend:native", "expandable segments": "expandable_segments:True", "cudaMallocAsync": "backend:cudaMallocAsync"}


def in_python(file, way="", module="torch", gpus=1, **environment):
    return {"file": file, "way": way, "module": module, "gpus": gpus, "environment": environment}


# Each program: its file, what it is told, what must be there.
ALL = {
    "PyTorch training, eager": in_python("torch_training.py", "eager"),
    "PyTorch training, compiled": in_python("torch_training.py", "compiled"),
    "PyTorch training, AMP": in_python("torch_training.py", "amp"),
    "PyTorch inference, eager": in_python("torch_inference.py", "eager"),
    "PyTorch inference, compiled": in_python("torch_inference.py", "compiled"),
    "PyTorch inference, AMP": in_python("torch_inference.py", "amp"),
    "PyTorch inference, graph": in_python("torch_inference.py", "graph"),
    "PyTorch inference, profiler on": in_python("torch_inference.py", "profiled"),
    **{
        f"Llama of Transformers, {name}": in_python("llama.py", module="transformers", PYTORCH_CUDA_ALLOC_CONF=way, PYTORCH_ALLOC_CONF=way)
        for name, way in ALLOCATORS.items()
    },
    "PyTorch DataLoader workers": in_python("data_loader.py"),
    "torch.multiprocessing": in_python("shared_tensors.py"),
    "CuPy": in_python("cupy_arrays.py", "plain", "cupy"),
    "CuPy, FFT": in_python("cupy_arrays.py", "fft", "cupy"),
    "CuPy, asynchronous pool": in_python("cupy_arrays.py", "async", "cupy"),
    "JAX": in_python("jax_jit.py", module="jax"),
    "Triton": in_python("triton_kernel.py", module="triton"),
    "NCCL, one GPU": in_python("nccl.py", "1"),
    "NCCL, two GPUs": in_python("nccl.py", "2", gpus=2),
    **{f"CUDA C++, {path.stem}": {"file": path} for path in sorted((GUESTS / "samples").glob("*.cu"))},
}
# What nvcc needs besides, where a sample needs more than the usual.
OPTIONS = {"nested": ["-rdc=true", "-lcudadevrt"]}
# What the driver does not do under MPS (811), with the library or without it.
NOT_UNDER_MPS = {"CUDA C++, nested": "Skipped(the driver launches no kernels from kernels under MPS)"}
