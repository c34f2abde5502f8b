"""Which vLLM answers, and the worker process in which it does."""
