"""Which vLLM answers: the installed one, a fetched release, a checkout, another interpreter."""
