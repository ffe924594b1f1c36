"""What can be known about CUDA kernels without a GPU: machine code, occupancy, and bounds."""
