"""Compilers for generated kernels: NVRTC, and the C++ compiler of the host executor."""
