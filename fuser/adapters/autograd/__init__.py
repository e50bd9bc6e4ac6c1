"""Forward and backward graphs as functions that autograd, its cache or CUDA graphs run."""
