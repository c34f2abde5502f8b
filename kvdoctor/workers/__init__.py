"""The processes that plan: a worker for each engine, GPU and environment, and the pool of them."""
