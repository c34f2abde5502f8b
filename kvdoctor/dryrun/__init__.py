"""The dry launch: the only code that imports vLLM or torch. It runs inside a worker process of its own."""
