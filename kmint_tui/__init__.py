"""kmint: mint fused Triton kernels on your own machine."""

__version__ = "0.1.0"
