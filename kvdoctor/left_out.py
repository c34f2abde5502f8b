"""What no dry launch takes: the steps of a boot that need the weights, the GPU or the machine of the launch."""

from kvdoctor.plan import Check

LEFT_OUT = tuple(
    Check(name=name, outcome="not_checked", note=why)
    for name, why in (
        ("weight files", "they are not read: whether they are there, whole, and what the config says of them"),
        ("memory profiling", "a forward pass on the GPU measures what is left for the KV cache; here it is estimated or given"),
        ("kernels and compilation", "nothing is compiled or run"),
        ("CUDA-graph capture", "graphs are captured on the GPU"),
        ("communication between GPUs", "no process group is made over the assumed GPUs"),
        ("server start", "the tokenizer and the chat template are not loaded, no port is opened, and no request is served"),
    )
)
