"""What can be told of CUDA kernels without a GPU: machine code, occupancy, and bounds."""
