"""What vLLM writes, read as text: nothing of vLLM is imported for it."""
