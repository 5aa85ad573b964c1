"""The parts that targets for x86-64 share: cores and their layouts, kernels in vectors of any width, the emitter."""
