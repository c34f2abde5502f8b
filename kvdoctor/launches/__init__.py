"""What the user wants to launch, as plain values: the request, and what it is read from."""
