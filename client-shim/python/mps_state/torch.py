"""PyTorch tensors that outlive their process. Needs torch; the rest of the package does not.

Nothing has to be hooked into PyTorch's allocator: what it allocates (``cudaMalloc``, and ``expandable_segments`` too) is
kept by the preloaded library already. What is missing is the way back: a successor's allocator knows nothing of the memory
that it adopts, so tensors over it are made from their address, as views that PyTorch does not free::

    state = mps_state.torch.State()          # adopts, or begins anew; before anything is allocated
    weights = state.tensor("weights", (4096, 4096), torch.float16, make=load, constant=True)
    cache = state.tensor("cache", (8, 1024), torch.float16)
    state.commit(step)

A tensor that was adopted keeps its address for good; one that is dropped stays allocated until the process ends.
"""

import torch

import mps_state


class _View:
    """Device memory at an address, in the form of ``__cuda_array_interface__``, version 3."""

    def __init__(self, address, size):
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


def view(address, shape, dtype, device="cuda"):
    """A tensor over memory that is there already; it is not freed with the tensor."""
    size = torch.empty((), dtype=dtype).element_size()
    for length in shape:
        size *= length
    return torch.as_tensor(_View(address, size), device=device).view(dtype).view(*shape)


class State:
    """The labelled tensors of a program."""

    def __init__(self, timeout=10.0, device="cuda"):
        torch.cuda.init()
        torch.cuda.current_stream(device).synchronize()
        self.device, self.tensors = device, {}
        self.recovery = None
        if mps_state.is_standby():
            while self.recovery is None:
                self.recovery = mps_state.wait_for_activation()
        elif mps_state.is_available():
            self.recovery = mps_state.adopt(timeout)

    @property
    def generation(self):
        """How far the predecessor was; None without one that had committed."""
        return self.recovery.generation if self.recovery is not None and self.recovery.is_committed else None

    def tensor(self, label, shape, dtype, make=None, constant=False):
        """The predecessor's tensor of this label, or a new one. ``make`` fills a new one, and one that is in doubt if it is
        to be constant: it was not registered so before."""
        found = mps_state.find(label) if self.recovery is not None else None
        if found is not None:
            tensor = view(found.address, shape, dtype, self.device)
            if tensor.numel() * tensor.element_size() != found.bytes:
                raise ValueError(f"{label} was another tensor: {found.bytes} bytes")
            fresh = constant and found.is_in_doubt
        else:
            tensor, fresh = torch.empty(shape, dtype=dtype, device=self.device), True
        if fresh and make is not None:
            make(tensor)
        self.tensors[label] = tensor
        if mps_state.is_available():
            mps_state.register(label, tensor.data_ptr(), tensor.numel() * tensor.element_size(), constant)
        return tensor

    def commit(self, generation, data=b"", timeout=10.0):
        """Notes how far the program has come, when all its streams are."""
        torch.cuda.synchronize(self.device)
        if mps_state.is_available():
            mps_state.commit(generation, data, timeout)
