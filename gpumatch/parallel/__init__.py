"""Several cores: threads that match, and processes that read and compile."""
