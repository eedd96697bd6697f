"""What a candidate's text says, before anything of it runs: the screen, and the judge's own cut of
its kernels.
"""
