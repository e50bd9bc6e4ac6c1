"""Compiling and running generated kernels: NVRTC on one side, the host executor on the other."""
