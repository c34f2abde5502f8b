"""kvdoctor: vLLM's own KV-cache plan for a model, before the launch and without a GPU."""

__version__ = "0.1.0"
