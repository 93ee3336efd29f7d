"""Sample problems in the KernelBench format: own code, known architectures. They are read, never imported."""
