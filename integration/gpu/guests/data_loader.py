"""PyTorch's DataLoader with forked workers that stay, and a thread that pins what they bring."""

import torch
from frame import serve

torch.manual_seed(1)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((128,), float(index))


model = torch.nn.Linear(128, 16).cuda()
loader = torch.utils.data.DataLoader(Numbers(), batch_size=16, num_workers=2, pin_memory=True, persistent_workers=True)


@torch.no_grad()
def compute():
    return [model(batch.cuda(non_blocking=True)).cpu().numpy().tobytes() for batch in loader]


serve(compute)
