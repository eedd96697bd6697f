"""The stages of a verdict, in order: screen, trace, compile, check, time.

The check has two ways: `check_cpu` interprets the plans, and `check_gpu` replays them on a GPU.
"""
