"""The interface of kernel authors: machines and targets, microkernels, and the sites that they emit code at."""
