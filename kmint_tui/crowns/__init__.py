"""Who is fastest: one crown for each operation, timed cell, device and versions of torch and Triton."""
