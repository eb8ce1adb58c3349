"""A small Llama of Transformers with random weights generates text, with the allocator that the environment says."""

import torch
from frame import serve
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(1)
size = {"vocab_size": 1000, "hidden_size": 256, "intermediate_size": 512, "max_position_embeddings": 256}
config = LlamaConfig(**size, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4)
model = LlamaForCausalLM(config).to(torch.bfloat16).cuda().eval()
words = torch.arange(1, 17).reshape(1, 16)


def compute():
    return model.generate(words.cuda(), max_new_tokens=8, do_sample=False, pad_token_id=0).tolist()


serve(compute)
